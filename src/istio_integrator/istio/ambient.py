"""Whether a model is to be in ambient mode, and whether the cluster has what that takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from integrator_contract import booleans, names
from istio_integrator.istio import installation
from istio_integrator.kube import cluster, fences

_DAEMONS = (
    ("ztunnel", {"app": "ztunnel"}),
    ("Istio's node agent istio-cni-node", {"k8s-app": "istio-cni-node"}),
)
"""What runs on every node, and what its DaemonSet selects, which Kubernetes lets nobody change
(istio manifests/charts: ztunnel, istio-cni)."""
_SWITCH = "PILOT_ENABLE_AMBIENT"
"""In istiod's environment (istio pilot/pkg/features, ambient.go); without it ztunnel is told
nothing."""
_SWITCHED_OFF = f"istiod has no {_SWITCH}=true"


def is_chosen(mode: str, labels: Mapping[str, str | None]) -> bool:
    """Tell whether a model is to be in ambient mode."""
    return mode == "ambient" or (mode != "sidecar" and is_labelled(labels))


def is_labelled(labels: Mapping[str, str | None]) -> bool:
    """Tell whether a namespace is in ambient mode."""
    return labels.items() >= names.AMBIENT.items()


def missing(api: cluster.Cluster, mesh: installation.Mesh) -> str:
    """Say which part of ambient mode the cluster lacks; empty if none is known to be missing."""
    return judge(api.list(cluster.DAEMON_SET), mesh.environment)


def judge(daemons: Iterable[cluster.Object], environment: Mapping[str, str] | None) -> str:
    """Say what is missing, as all DaemonSets show it and istiod's environment, if it is known."""
    ready: dict[str, bool] = {}
    for each in daemons:
        with fences.around(cluster.reference(each)):
            chosen = cluster.at(each, "spec", "selector", "matchLabels")
            status = cluster.at(each, "status")
            serves = not status.get("desiredNumberScheduled") or bool(status.get("numberReady"))
            for name, labels in _DAEMONS:
                if chosen.items() >= labels.items():
                    ready[name] = ready.get(name, False) or serves
    for name, _ in _DAEMONS:
        if name not in ready:
            return f"the cluster has no {name}"
        if not ready[name]:
            return f"no pod of {name} is ready"
    # A switch whose value is in another object is not known here.
    switch = "" if environment is None else environment.get(_SWITCH, "false")
    return "" if not switch or booleans.parse(switch, default=False) else _SWITCHED_OFF
