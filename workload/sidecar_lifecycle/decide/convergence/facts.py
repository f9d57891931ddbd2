"""Conversion of Kubernetes pods into the facts that the plan needs."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Literal

from integrator_contract import names
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import eligible, stale
from sidecar_lifecycle.model import types

_TEMPLATE_LABELS = ("pod-template-hash", "controller-revision-hash")

Fault = Literal["", "missing", "unwanted", "order"]
"""The fault of a pod: its sidecar is missing or unwanted, or its controller does not support the
order of its containers."""

_HANGS = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
    }
)
"""The kubelet's waiting reasons for containers that it could not start."""
_LONGEST_WORDS = 120
"""Characters of another program's message that are quoted."""


@dataclass(frozen=True, slots=True)
class Ailment:
    """A container that is not Ready, or an init container that has not ended."""

    container: str
    """`the pod`, if it is not Ready although its containers are."""
    reason: str
    """Such as the kubelet's `ImagePullBackOff`."""
    words: str = ""
    hangs: bool = False
    """Whether it failed, as opposed to being about to start."""

    def __str__(self) -> str:
        return f"{self.container}: {self.reason}{f': {self.words}' * bool(self.words)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One live pod."""

    name: str
    uid: str
    created: float
    workload: str = ""
    """Such as `StatefulSet/foo`."""
    wanted: bool = True
    """Whether it should be in the mesh."""
    fault: Fault = ""
    """The reason to replace it."""
    stale: str = ""
    """A description of how its proxy is outdated."""
    fixable: bool = True
    forbids: str = ""
    """The annotation that forbids its disruption."""
    reason: str = ""
    message: str = ""
    """A description of its fault, or the reason not to evict it."""
    ready_since: float | None = None
    unready_since: float = 0.0
    """Since when it has not been Ready, if it is not."""
    ailments: tuple[Ailment, ...] = ()
    """The causes of not being Ready, worst first."""
    terminating: bool = False
    ends_by: float = 0.0
    """The end of its grace period, if it is terminating."""
    ended: bool = False
    """Whether its containers have ended; a finalizer may keep the object."""
    revision: str = ""

    @property
    def in_mesh(self) -> bool:
        """Whether it is in the mesh in the model's mode, sidecar or ambient."""
        return self.wanted and not self.fault and not self.terminating

    @property
    def ready(self) -> bool:
        """Whether it is Ready."""
        return self.ready_since is not None and not self.terminating

    @property
    def faulty(self) -> bool:
        """Whether it should be replaced."""
        return bool(self.fault) and not self.terminating

    @property
    def lost(self) -> bool:
        """Whether its first container keeps it from ever starting."""
        return self.fault == "order" and self.faulty and not self.ready

    @property
    def ordinal(self) -> int:
        """Its ordinal in a StatefulSet; -1 if its name has none."""
        found = re.search(r"-(\d{1,9})$", self.name)
        return int(found[1]) if found else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of a dry run of a workload's next pod."""

    reason: Reason | None
    """The reason why that pod would not be right; None: it would be in the mesh and start."""
    message: str
    uid: str
    """UID of the pod to replace."""
    at: float

    def is_right_for(self, replica: Replica) -> bool:
        """Tell whether the replacement would not have the pod's fault."""
        return self.reason is (Reason.INJECTOR_SKIPS if replica.fault == "unwanted" else None)


def parse_timestamp(text: str | None) -> float | None:
    """Return a Kubernetes timestamp in seconds since the epoch."""
    return datetime.datetime.fromisoformat(text).timestamp() if text else None


def read_replica(
    pod: types.Pod, scope: eligible.Scope, proxy: stale.Proxy = stale.UNKNOWN
) -> Replica:
    """Return the facts of one pod but for its owner."""
    wanted = eligible.decide_membership(pod, scope)
    fault, reason, message = _find_fault(pod, scope, wanted)
    created = parse_timestamp(pod.metadata.creationTimestamp) or 0.0
    ready = next((each for each in pod.status.conditions if each.type == "Ready"), None)
    changed = parse_timestamp(ready.lastTransitionTime) if ready else None
    is_ready = ready is not None and ready.status == "True"
    labels, notes = pod.metadata.labels, pod.metadata.annotations
    forbidding = (
        key for key, value in names.FORBIDS_DISRUPTION.items() if notes.get(key) == value
    )
    return Replica(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        created=created,
        wanted=wanted.wanted,
        fault=fault,
        stale=stale.describe_age(pod, proxy) if wanted.wanted and not fault else "",
        forbids=next(forbidding, ""),
        reason=reason,
        message=message,
        ready_since=(changed or 0.0) if is_ready else None,
        unready_since=changed or created,
        ailments=() if is_ready else tuple(list_ailments(pod)),
        terminating=pod.metadata.deletionTimestamp is not None,
        ends_by=parse_timestamp(pod.metadata.deletionTimestamp) or 0.0,
        ended=not eligible.is_alive(pod),
        revision=next((labels[key] for key in _TEMPLATE_LABELS if key in labels), ""),
    )


def add_ownership(replica: Replica, ownership: eligible.Ownership) -> Replica:
    """Return the facts with the pod's workload, and the reason if the pod may not be evicted."""
    found = dataclasses.replace(replica, workload=ownership.workload, fixable=ownership.fixable)
    if ownership.fixable or not (replica.wanted or replica.fault):
        return found
    return dataclasses.replace(found, reason=ownership.reason, message=ownership.message)


def _find_fault(
    pod: types.Pod, scope: eligible.Scope, wanted: eligible.MembershipDecision
) -> tuple[Fault, str, str]:
    """Return the fault of a pod, with a reason and a message."""
    if wanted.wanted and not eligible.is_in_mesh(pod, scope):
        return "missing", wanted.reason, wanted.message
    is_kept_out = wanted.reason in (Reason.MODEL_OPERATOR, Reason.EXCLUDED)
    if is_kept_out and scope.data_plane == "sidecar" and eligible.is_injected(pod):
        # It was injected before admission could exclude it from the mesh.
        message = f"{wanted.message}, and it has a sidecar"
        if wanted.reason is Reason.EXCLUDED:
            return "unwanted", Reason.EXCLUDED, f"{message}: run restart-uninjected"
        return "unwanted", Reason.SIDECAR_UNWANTED, message
    if wanted.wanted and (first := eligible.find_displaced(pod)):
        message = f"its first container is not {first}, which its controller addresses"
        return "order", Reason.WRONG_ORDER, message
    return "", wanted.reason, wanted.message


def list_ailments(pod: types.Pod) -> list[Ailment]:
    """Return the causes why a pod is not Ready, worst first."""
    unscheduled = next(
        (
            ("not scheduled", _shorten(each.message))
            for each in pod.status.conditions
            if each.type == "PodScheduled" and each.status == "False"
        ),
        ("not started", ""),
    )
    statuses = {
        each.name: each
        for each in (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
    }
    found: list[Ailment] = []
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        status = statuses.get(container.name)
        if status is None:
            found.append(Ailment(container.name, *unscheduled))
            continue
        ends = container in pod.spec.initContainers and container.restartPolicy != "Always"
        ended = status.state.terminated
        if not (ended is not None and ended.exitCode == 0 if ends else status.ready):
            found.append(_describe_ailment(status, ends=ends))
    if not found:
        # The condition names what else keeps the pod from being Ready, such as a readiness gate.
        ready = next((each for each in pod.status.conditions if each.type == "Ready"), None)
        reason, message = (ready.reason, ready.message) if ready else (None, None)
        found.append(Ailment("the pod", reason or "not Ready", _shorten(message)))
    return sorted(found, key=lambda each: not each.hangs)


def _describe_ailment(status: types.ContainerStatus, *, ends: bool) -> Ailment:
    state = status.state
    if state.running is not None:
        return Ailment(status.name, "running" if ends else "running and not Ready")
    ended = state.terminated or status.lastState.terminated
    last = f"exit code {ended.exitCode} ({ended.reason or 'Error'})" if ended else ""
    if state.terminated is not None:
        return Ailment(status.name, "ended", last, hangs=ends)
    reason = (state.waiting.reason if state.waiting else None) or "not started"
    words = last or _shorten(state.waiting.message if state.waiting else None)
    return Ailment(status.name, reason, words, hangs=reason in _HANGS)


def _shorten(text: str | None) -> str:
    words = " ".join((text or "").split())
    return words if len(words) <= _LONGEST_WORDS else f"{words[:_LONGEST_WORDS]}…"


def compute_fingerprint(scope: eligible.Scope, injectors: tuple[str, ...]) -> str:
    """Return a digest of the settings that decide injection."""
    keys = (names.INJECTION, names.REVISION, names.DATAPLANE_MODE)
    parts = [
        {key: scope.namespace_labels.get(key) for key in keys},
        scope.mesh_revision,
        scope.membership,
        scope.data_plane,
        scope.included,
        scope.excluded,
        sorted(injectors),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
