"""Whether a model is to be in ambient mode, and whether the cluster supports it."""

from __future__ import annotations

from collections.abc import Mapping

from integrator_contract import booleans, names
from istio_integrator.istio import installation
from istio_integrator.kube import cluster

_DAEMONS = (
    ("ztunnel", {"app": "ztunnel"}),
    ("Istio's node agent istio-cni-node", {"k8s-app": "istio-cni-node"}),
)
"""Name and selector of each DaemonSet on every node; a selector is immutable (istio
manifests/charts: ztunnel, istio-cni)."""
_SWITCH = "PILOT_ENABLE_AMBIENT"
"""A variable of istiod (istio pilot/pkg/features, ambient.go); without it ztunnel gets no
configuration."""


def is_chosen(mode: str, labels: Mapping[str, str | None]) -> bool:
    """Tell whether a model is to be in ambient mode."""
    return mode == "ambient" or (mode != "sidecar" and is_labelled(labels))


def is_labelled(labels: Mapping[str, str | None]) -> bool:
    """Tell whether a namespace is in ambient mode."""
    return labels.items() >= names.AMBIENT.items()


def find_missing_part(api: cluster.Cluster, mesh: installation.Mesh) -> str:
    """Name the part of ambient mode that the cluster lacks; empty if all are present."""

    def read(daemon: cluster.Object) -> list[tuple[str, bool]]:
        chosen = cluster.at(daemon, "spec", "selector", "matchLabels")
        status = cluster.at(daemon, "status")
        serves = not status.get("desiredNumberScheduled") or bool(status.get("numberReady"))
        return [(name, serves) for name, labels in _DAEMONS if chosen.items() >= labels.items()]

    found = cluster.read_each(api.list(cluster.DAEMON_SET), read)
    for name, _ in _DAEMONS:
        serving = [serves for each, serves in found if each == name]
        if not any(serving):
            return f"no pod of {name} is ready" if serving else f"the cluster has no {name}"
    # A value from another object (`valueFrom`) is not known here and counts as empty.
    environment = mesh.settings.environment
    switch = "" if environment is None else environment.get(_SWITCH, "false")
    is_off = bool(switch) and not booleans.parse(switch, default=False)
    return f"istiod has no {_SWITCH}=true" if is_off else ""
