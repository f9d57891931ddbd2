"""Slim types of the objects that only convergence reads."""

# Field names are those of the Kubernetes API.
# ruff: noqa: N815

from __future__ import annotations

import msgspec

from . import types

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""The annotation by which apps/v1 shows the number of a DaemonSet's template; the API keeps it."""


class Scale(types.Model):
    """How many pods a workload should have."""

    replicas: int | None = None


class UpdateStrategy(types.Model):
    """How a changed template gets to the pods."""

    type: str = ""


class OwnPods(Scale):
    """The part of a StatefulSet's or DaemonSet's specification that decides about its pods."""

    updateStrategy: UpdateStrategy = msgspec.field(default_factory=UpdateStrategy)


class StatefulSetStatus(types.Model):
    """Which template a StatefulSet's new pods get."""

    observedGeneration: int = 0
    updateRevision: str = ""


class DaemonSetStatus(types.Model):
    """How many nodes a DaemonSet should run on."""

    desiredNumberScheduled: int = 0


def _apps(kind: str) -> types.Api:
    return types.Api("apps", "v1", kind, f"{kind.lower()}s")


class ReplicaSet(types.Object):
    """What stands between a Deployment and its pods."""

    api = _apps("ReplicaSet")


class Deployment(types.Object):
    """A Deployment, as far as it decides about its pods."""

    api = _apps("Deployment")

    spec: Scale = msgspec.field(default_factory=Scale)


class StatefulSet(types.Object):
    """A StatefulSet, as far as it decides about its pods."""

    api = _apps("StatefulSet")

    spec: OwnPods = msgspec.field(default_factory=OwnPods)
    status: StatefulSetStatus = msgspec.field(default_factory=StatefulSetStatus)


class DaemonSet(types.Object):
    """A DaemonSet, as far as it decides about its pods."""

    api = _apps("DaemonSet")

    spec: OwnPods = msgspec.field(default_factory=OwnPods)
    status: DaemonSetStatus = msgspec.field(default_factory=DaemonSetStatus)


class ConfigMap(types.Object):
    """A ConfigMap."""

    api = types.Api("", "v1", "ConfigMap", "configmaps")

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


def withheld_from(workload: types.Object) -> str | None:
    """Return the template of new pods, as their labels name it, if only a deleted pod gets it.

    Empty while it is not known; None with another update strategy than OnDelete.
    """
    if not isinstance(workload, StatefulSet | DaemonSet):
        return None
    if workload.spec.updateStrategy.type != "OnDelete":
        return None
    meta = workload.metadata
    if isinstance(workload, DaemonSet):
        return meta.annotations.get(TEMPLATE_GENERATION, "")
    status = workload.status
    return status.updateRevision if status.observedGeneration == meta.generation else ""
