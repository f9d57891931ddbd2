"""The Event on an unfinished pod whose proxy will not be stopped after the charm's removal."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable

from integrator_contract import names
from integrator_contract.answers import Action
from istio_integrator.kube import cluster, errors
from istio_integrator.lifecycle import workload
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)

REASON = "ProxyShutdownEnds"
"""The reason of the Event."""


def leave(context: situation.Situation, asked: workload.WorkloadClient) -> None:
    """Create an Event on each pod that will hang when its payload ends.

    The workload decides which pods those are. Without its answer there are no Events, since a
    failure must not block the application's removal.
    """
    try:
        pods = candidates(context.cluster, context.served_namespaces)
        answers = asked.explain(pods) if pods else []
    except errors.CharmError as error:
        logger.warning("Unfinished pods get no Event about the removal: %s", error)
        return
    hanging = {(one.namespace, one.name) for one in answers if one.decision is Action.WAIT}
    for pod in pods:
        if (pod["metadata"]["namespace"], pod["metadata"]["name"]) not in hanging:
            continue
        try:
            context.cluster.create(_event(pod))
        except errors.CharmError as error:
            # Another unit may have created it, and a terminating namespace rejects new Events.
            logger.info("%s gets no Event about the removal: %s", cluster.reference(pod), error)


def candidates(api: cluster.Cluster, namespaces: Iterable[str]) -> list[cluster.Object]:
    """List the pods with a classic sidecar; the workload applies all other rules.

    A label selector would miss pods: `istioctl kube-inject` sets no label on a CronJob's pods.
    """
    return [
        pod
        for namespace in namespaces
        for pod in api.list(cluster.POD, namespace)
        for each in cluster.parts(cluster.at(pod, "spec"), "containers")
        if each.get("name") == names.PROXY
    ]


def _event(pod: cluster.Object) -> cluster.Object:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    uid = str(pod["metadata"].get("uid", ""))
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{REASON.lower()}.{uid[:8]}", "namespace": namespace},
        "involvedObject": about,
        "type": "Warning",
        "reason": REASON,
        "message": (
            "istio-integrator is removed: nobody stops the proxy when the other containers are "
            f"done. Then run: kubectl exec -n {namespace} {name} -c istio-proxy -- "
            "pilot-agent request POST quitquitquit"
        ),
        "source": {"component": "istio-integrator"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
