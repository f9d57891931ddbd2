"""The Event that tells the owner of an unfinished pod that nobody will stop its proxy any more."""

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
"""The reason that the Event names."""


def leave(context: situation.Situation, asked: workload.WorkloadClient) -> None:
    """Leave an Event on each pod that will hang when its payload is done.

    Which pods those are, the workload decides; without its answer nobody is told, which must not
    keep the application from being removed.
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
            # Another unit that leaves may have said it; a namespace that is going takes no Event.
            logger.info("%s gets no Event about the removal: %s", cluster.reference(pod), error)


def candidates(api: cluster.Cluster, namespaces: Iterable[str]) -> list[cluster.Object]:
    """List the pods with a classic sidecar; all other rules about them are the workload's.

    No label tells: `istioctl kube-inject` sets none on a CronJob's pods.
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
