"""What the owners of unfinished pods are told when nobody will stop their proxies any more."""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections.abc import Iterable
from typing import Any

import cluster
import component
import errors
import lifecycle
import manifests
import policy

logger = logging.getLogger(__name__)

_INJECTED = "security.istio.io/tlsMode"
_PART_OF = {"app.kubernetes.io/part-of": "kubeflow-profile"}
_LABELLED = {f"{manifests.PREFIX}lifecycle": "enabled"}
REASON = "ProxyShutdownEnds"
"""Of that Event."""


def say(scope: component.Scope, workload: lifecycle.Lifecycle) -> None:
    """Leave an Event on each pod that will hang when its payload is done.

    Which pods those are, the workload decides; without its answer nobody is told, which must not
    keep the application from being removed.
    """
    try:
        pods = candidates(scope.cluster, namespaces(scope))
        for line in workload.explain(pods) if pods else ():
            if line["decision"] == "wait":
                # Several units may leave at the same time, and say the same.
                with contextlib.suppress(errors.ConflictError):
                    scope.cluster.create(_event(line, pods))
    except errors.CharmError as error:
        logger.warning("Unfinished pods are not told that we go: %s", error)


def namespaces(scope: component.Scope) -> list[str]:
    """List the namespaces whose proxies are stopped by this application."""
    served = [scope.model]
    groups = scope.config.lifecycle_namespaces
    owner = scope.manifests.owner
    for group, labels in (("profiles", _PART_OF), ("labelled", _LABELLED)):
        if group in groups:
            found = scope.cluster.list(cluster.NAMESPACE, labels=labels)
            served += [
                namespace["metadata"]["name"]
                for namespace in found
                if cluster.at(namespace, "metadata", "labels").get(policy.SERVED_BY, owner)
                == owner
            ]
    return list(dict.fromkeys(served))


def candidates(api: cluster.Cluster, namespaces: Iterable[str]) -> list[cluster.Object]:
    """List injected pods that run to completion; the rest of the rules are the workload's."""
    return [
        pod
        for namespace in namespaces
        for pod in api.list(cluster.POD, namespace=namespace, labels={_INJECTED: None})
        if cluster.at(pod, "spec").get("restartPolicy") != "Always"
    ]


def _event(line: dict[str, Any], pods: list[cluster.Object]) -> cluster.Object:
    namespace, name = line["namespace"], line["name"]
    uid = next(
        pod["metadata"].get("uid", "")
        for pod in pods
        if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == (namespace, name)
    )
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{REASON.lower()}.{uid[:8]}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
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
