"""From pods as Kubernetes has them to the few facts that the plan decides on."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from integrator_contract import names, pods, selectors
from sidecar_lifecycle.decide import eligible, stale
from sidecar_lifecycle.model import types

_TEMPLATE_LABELS = ("pod-template-hash", "controller-revision-hash")

Verdict = Literal["injects", "skips", "down", "refused", "cannot-start", "wrong-order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One live pod."""

    name: str
    uid: str
    created: float
    workload: str = ""
    """Such as `StatefulSet/foo`."""
    in_mesh: bool = False
    """Whether it is there as its model is: with a sidecar, or in ambient mode without."""
    stale: str = ""
    """What is old about its proxy."""
    wanted: bool = True
    fixable: bool = True
    reason: str = ""
    message: str = ""
    """Why it should be in the mesh; when it is not ours to evict, why not."""
    ready_since: float | None = None
    crash_looping: bool = False
    terminating: bool = False
    ended: bool = False
    """Its containers have ended for good; somebody's finalizer may keep what is left."""
    revision: str = ""

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return self.ready_since is not None and not self.terminating

    @property
    def missing(self) -> bool:
        """Whether it should be in the mesh as its model is, and is not."""
        return self.wanted and not self.in_mesh and not self.terminating


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the apiserver said to a dry-run creation of a pod of the workload."""

    verdict: Verdict
    message: str
    uid: str
    """Of the pod that was tried."""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The model as it is now."""

    replicas: tuple[Replica, ...] = ()
    desired: Mapping[str, int] = field(default_factory=dict[str, int])
    """Replicas that each workload should have; a workload that is gone is absent."""
    application_created: float | None = None
    data_plane: pods.DataPlane = "sidecar"
    fingerprint: str = ""
    """Of all that decides about injection in this namespace."""
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])


def timestamp(text: str | None) -> float | None:
    """Return seconds since the epoch for a time of the API."""
    return datetime.datetime.fromisoformat(text).timestamp() if text else None


def replica(
    pod: types.Pod,
    wanted: eligible.Wanted,
    ownership: eligible.Ownership,
    proxy: stale.Proxy = stale.UNKNOWN,
    *,
    in_mesh: bool,
) -> Replica:
    """Return the facts of one pod.

    Args:
        pod: the pod.
        wanted: whether it should be in the mesh.
        ownership: whether it is ours to replace.
        proxy: what new pods get.
        in_mesh: whether it is there as its model is.
    """
    ours = ownership.fixable
    return Replica(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        created=timestamp(pod.metadata.creationTimestamp) or 0.0,
        workload=ownership.workload,
        in_mesh=in_mesh,
        stale=stale.behind(pod, proxy) if wanted.wanted and in_mesh else "",
        wanted=wanted.wanted,
        fixable=ours,
        reason=wanted.reason if ours or not wanted.wanted else ownership.reason,
        message=wanted.message if ours or not wanted.wanted else ownership.message,
        ready_since=_ready_since(pod),
        crash_looping=_crash_looping(pod),
        terminating=pod.metadata.deletionTimestamp is not None,
        ended=not eligible.alive(pod),
        revision=next(
            (pod.metadata.labels[key] for key in _TEMPLATE_LABELS if key in pod.metadata.labels),
            "",
        ),
    )


def _ready_since(pod: types.Pod) -> float | None:
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            return timestamp(condition.lastTransitionTime) or 0.0
    return None


def _crash_looping(pod: types.Pod) -> bool:
    statuses = (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
    return any(
        each.state.waiting is not None and each.state.waiting.reason == "CrashLoopBackOff"
        for each in statuses
    )


def fingerprint(scope: eligible.Scope, injectors: tuple[str, ...]) -> str:
    """Return a digest of what decides about injection.

    Args:
        scope: the namespace's labels and our settings.
        injectors: identities of the injector's webhook configurations, as far as known.
    """
    keys = (names.INJECTION, names.REVISION, names.DATAPLANE_MODE)
    parts = [
        {key: scope.namespace_labels.get(key) for key in keys},
        scope.mesh_revision,
        scope.membership,
        scope.data_plane,
        repr(_sorted(scope.included)),
        repr(_sorted(scope.excluded)),
        sorted(injectors),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _sorted(selector: selectors.Selector) -> list[tuple[str, bool, list[str] | None]]:
    return [
        (each.key, each.is_negated, sorted(set(each.values)) if each.values else None)
        for each in selector
    ]
