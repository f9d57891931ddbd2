"""Slim types of the objects that only convergence and the observers read."""

# Names are those of the Kubernetes API, and msgspec copies empty defaults.
# ruff: noqa: N815, D101, RUF012

from __future__ import annotations

from typing import Any

import msgspec

from . import types

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""The annotation by which apps/v1 shows the number of a DaemonSet's template; the API keeps it."""
ORDERED = "OrderedReady"
"""The policy of a StatefulSet that creates a pod only while each lower ordinal is Ready."""


class Partition(types.Partial):
    partition: int = 0


class UpdateStrategy(types.Partial):
    type: str = ""
    rollingUpdate: Partition = msgspec.field(default_factory=Partition)


class _Spec(types.Partial):
    replicas: int = 1
    podManagementPolicy: str = ""
    updateStrategy: UpdateStrategy = msgspec.field(default_factory=UpdateStrategy)


class WorkloadStatus(types.Partial):
    observedGeneration: int = 0
    replicas: int = 0
    currentRevision: str = ""
    updateRevision: str = ""
    desiredNumberScheduled: int = 0
    currentNumberScheduled: int = 0
    readyReplicas: int = 0
    conditions: tuple[types.Condition, ...] = ()


class ReplicaSet(types.Object):
    api = types.Api("apps/v1", "ReplicaSet")


class Workload(types.Object):
    """A Deployment, StatefulSet or DaemonSet, with the fields that decide about its pods."""

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class Deployment(Workload):
    api = types.Api("apps/v1", "Deployment")


class StatefulSet(Workload):
    api = types.Api("apps/v1", "StatefulSet")


class DaemonSet(Workload):
    api = types.Api("apps/v1", "DaemonSet")


class Job(types.Object):
    api = types.Api("batch/v1", "Job")


class CronJob(types.Object):
    api = types.Api("batch/v1", "CronJob")


class Template(types.Partial):
    metadata: types.ObjectMeta = msgspec.field(default_factory=types.ObjectMeta)
    spec: dict[str, Any] = {}
    """Copied as it is."""


class Ordinals(types.Partial):
    start: int = 0


class CreatorSpec(_Spec):
    template: Template = msgspec.field(default_factory=Template)
    jobTemplate: dict[str, Any] = {}
    ordinals: Ordinals = msgspec.field(default_factory=Ordinals)
    serviceName: str = ""
    volumeClaimTemplates: tuple[types.Object, ...] = ()


class Creator(types.Object):
    """An owner of pods, or of Jobs with pods, with its complete pod template."""

    spec: CreatorSpec = msgspec.field(default_factory=CreatorSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class ConfigMap(types.Object):
    api = types.Api("v1", "ConfigMap")

    data: dict[str, str] = {}


WORKLOADS: dict[str, type[Workload]] = {
    each.api.kind: each for each in (Deployment, StatefulSet, DaemonSet)
}

JOBS: dict[str, type[types.Object]] = {each.api.kind: each for each in (Job, CronJob)}


def count_desired(workload: Workload) -> int:
    """Return the desired number of pods."""
    if isinstance(workload, DaemonSet):
        return workload.status.desiredNumberScheduled
    return workload.spec.replicas


def is_short(kind: str, workload: Creator) -> bool:
    """Tell whether a workload of a kind has fewer pods than it should."""
    status = workload.status
    if kind == "DaemonSet":
        return status.currentNumberScheduled < status.desiredNumberScheduled
    return kind not in JOBS and status.replicas < workload.spec.replicas


def creates_pods(workload: Creator) -> bool:
    """Tell whether a workload is not a Job that has ended."""
    conditions = workload.status.conditions
    return not any(
        each.type in ("Complete", "Failed") and each.status == "True" for each in conditions
    )


def find_withheld(workload: types.Object) -> str | None:
    """Return the template of new pods, as their labels name it, under the strategy OnDelete.

    Empty if unknown; None with another update strategy.
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
