"""Whether a model is to be in ambient mode, and whether the cluster has what that takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from integrator_contract import booleans, names
from istio_integrator.istio import installation, meshconfig
from istio_integrator.kube import cluster, errors, fences

_DAEMONS = (
    ("ztunnel", {"app": "ztunnel"}),
    ("Istio's node agent istio-cni-node", {"k8s-app": "istio-cni-node"}),
)
"""What runs on every node, and what its DaemonSet selects, which Kubernetes lets nobody change
(istio manifests/charts: ztunnel, istio-cni)."""
_SWITCH = "PILOT_ENABLE_AMBIENT"
"""In istiod's environment (istio pilot/pkg/features, ambient.go); without it ztunnel is told
nothing."""


def is_chosen(mode: str, labels: Mapping[str, str | None]) -> bool:
    """Tell whether a model is to be in ambient mode."""
    return mode == "ambient" or (mode != "sidecar" and is_labelled(labels))


def is_labelled(labels: Mapping[str, str | None]) -> bool:
    """Tell whether a namespace is in ambient mode."""
    return labels.items() >= names.AMBIENT.items()


def missing(
    api: cluster.Cluster, mesh: installation.Mesh | None, labels: Mapping[str, str | None]
) -> str:
    """Say what the cluster lacks for ambient mode; empty where nothing is seen to be missing.

    Args:
        api: The API server.
        mesh: The Istio that was found.
        labels: The model's namespace's. One that is in ambient mode stays so where nobody may
            look; none is brought there unseen.

    Raises:
        ForbiddenError: The charm may not look at the nodes' DaemonSets.
    """
    try:
        daemons = api.list(cluster.DAEMON_SET)
    except errors.ForbiddenError:
        if is_labelled(labels):
            return ""
        raise
    istiod = None
    if mesh is not None and mesh.namespace:
        istiod = api.get(cluster.DEPLOYMENT, mesh.service, mesh.namespace)
    return judge(daemons, istiod)


def judge(daemons: Iterable[cluster.Object], istiod: cluster.Object | None) -> str:
    """Say what is missing, as the cluster's objects show it.

    Args:
        daemons: All DaemonSets.
        istiod: Its Deployment; None where it has none here, so that only ztunnel tells.
    """
    ready: dict[str, bool] = {}
    for each in daemons:
        with fences.around(cluster.reference(each)):
            chosen = cluster.at(each, "spec", "selector", "matchLabels")
            for name, labels in _DAEMONS:
                if chosen.items() >= labels.items():
                    ready[name] = ready.get(name, False) or _serves(each)
    for name, _ in _DAEMONS:
        if name not in ready:
            return f"the cluster has no {name}"
        if not ready[name]:
            return f"no pod of {name} is ready"
    # One that is taken from elsewhere is not known here.
    switch = meshconfig.environment(istiod).get(_SWITCH, "false")
    if istiod is not None and switch and not booleans.parse(switch, default=False):
        return f"istiod has no {_SWITCH}=true"
    return ""


def _serves(daemon: cluster.Object) -> bool:
    status = cluster.at(daemon, "status")
    return not status.get("desiredNumberScheduled") or bool(status.get("numberReady"))
