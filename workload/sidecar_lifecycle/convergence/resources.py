"""Slim types of the objects that only convergence reads."""

# Field names are those of the Kubernetes API.
# ruff: noqa: N815

from __future__ import annotations

import msgspec
from lightkube.core import resource

from sidecar_lifecycle.kube import types


class Scale(types.Model):
    """How many pods a workload should have."""

    replicas: int | None = None


class DaemonSetStatus(types.Model):
    """How many nodes a DaemonSet should run on."""

    desiredNumberScheduled: int = 0


def _apps(kind: str) -> resource.ApiInfo:
    return resource.ApiInfo(
        resource.ResourceDef("apps", "v1", kind), f"{kind.lower()}s", ["get", "list"]
    )


class ReplicaSet(resource.NamespacedResourceG, types.Object):
    """What stands between a Deployment and its pods."""

    _api_info = _apps("ReplicaSet")


class Deployment(resource.NamespacedResourceG, types.Object):
    """A Deployment, as far as it decides about its pods."""

    _api_info = _apps("Deployment")

    spec: Scale = msgspec.field(default_factory=Scale)


class StatefulSet(resource.NamespacedResourceG, types.Object):
    """A StatefulSet, as far as it decides about its pods."""

    _api_info = _apps("StatefulSet")

    spec: Scale = msgspec.field(default_factory=Scale)


class DaemonSet(resource.NamespacedResourceG, types.Object):
    """A DaemonSet, as far as it decides about its pods."""

    _api_info = _apps("DaemonSet")

    status: DaemonSetStatus = msgspec.field(default_factory=DaemonSetStatus)


class ConfigMap(resource.NamespacedResourceG, types.Object):
    """A ConfigMap."""

    _api_info = resource.ApiInfo(
        resource.ResourceDef("", "v1", "ConfigMap"),
        "configmaps",
        ["get", "list", "watch", "post", "put"],
    )

    data: dict[str, str] = msgspec.field(default_factory=dict[str, str])


Workload = Deployment | StatefulSet | DaemonSet
WORKLOADS: dict[str, type[Workload]] = {
    "Deployment": Deployment,
    "StatefulSet": StatefulSet,
    "DaemonSet": DaemonSet,
}


def desired(workload: Workload) -> int:
    """Return how many pods the workload should have."""
    if isinstance(workload, DaemonSet):
        return workload.status.desiredNumberScheduled
    return 1 if workload.spec.replicas is None else workload.spec.replicas
