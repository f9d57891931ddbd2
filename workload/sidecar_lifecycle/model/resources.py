"""Slim types of the objects that only convergence reads."""

# Field names are those of the Kubernetes API.
# ruff: noqa: N815

from __future__ import annotations

from typing import Any

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


class TemplateMeta(types.Model):
    """What pods of a template are labelled with."""

    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    annotations: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    finalizers: list[str] = msgspec.field(default_factory=list[str])


class Template(types.Model):
    """What a controller makes pods of; the specification is copied as it is."""

    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class Ordinals(types.Model):
    """The numbers of a StatefulSet's pods."""

    start: int = 0


class Partition(types.Model):
    """Below which ordinal a StatefulSet's pods keep the earlier template."""

    partition: int = 0


class Rollout(types.Model):
    """How a changed template gets to the pods."""

    rollingUpdate: Partition = msgspec.field(default_factory=Partition)


class CreatorSpec(Scale):
    """How the pods of a workload are made."""

    template: Template = msgspec.field(default_factory=Template)
    ordinals: Ordinals = msgspec.field(default_factory=Ordinals)
    serviceName: str = ""
    volumeClaimTemplates: list[types.Object] = msgspec.field(default_factory=list[types.Object])
    updateStrategy: Rollout = msgspec.field(default_factory=Rollout)


class CreatorStatus(types.Model):
    """Which pods of a workload there are."""

    replicas: int = 0
    currentRevision: str = ""
    updateRevision: str = ""
    desiredNumberScheduled: int = 0
    currentNumberScheduled: int = 0


class Creator(types.Object):
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet, with all that its pods are made of."""

    spec: CreatorSpec = msgspec.field(default_factory=CreatorSpec)
    status: CreatorStatus = msgspec.field(default_factory=CreatorStatus)


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


def is_short(kind: str, workload: Creator) -> bool:
    """Tell whether a workload of a kind has fewer pods than it should."""
    status = workload.status
    if kind == "DaemonSet":
        return status.currentNumberScheduled < status.desiredNumberScheduled
    return status.replicas < (1 if workload.spec.replicas is None else workload.spec.replicas)


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
