"""What we know of the pods that run to completion, and what was decided about each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.decide.stopping import State
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics

from .slots import Lane
from .stop import Decide, Outcome, Transport


@dataclass(slots=True, eq=False)
class Tracked:
    """A pod under watch."""

    pod: types.Pod
    decision: finished.Decision
    need: Need | None = None
    """To stop its proxy; None for most pods."""
    turn: asyncio.TimerHandle | None = None
    """Runs until this unit, too, may stop the proxy."""
    sent: tuple[finished.Decision, Transport] | None = None
    """The last stop that this unit sent, until it is told; its answer may be lost."""
    report: asyncio.Task[None] | None = None
    old_end: asyncio.TimerHandle | None = None
    """Runs from when a container's end is seen that is older than the pod's start."""
    old_end_counts: bool = False
    told: tuple[str, ...] = ()
    """What has been said about this pod, so that it is said once."""

    @property
    def name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


@dataclass(slots=True, eq=False)
class Need:
    """The need to stop the proxy of one pod, from when it is seen until it is over."""

    tracked: Tracked
    since: float
    """On the loop's clock; when it was first seen."""
    state: State = State.WATCHED
    tries: int = 0
    failures: int = 0
    way: Transport = Transport.PORT_FORWARD
    """Of the next try."""
    place: tuple[Lane[Need], str] | None = None
    """The lane and node that it is queued for, and whose place it holds while it is sending."""
    request: asyncio.Task[Outcome] | None = None
    """The try under way."""
    outcome: Outcome | None = None
    """Of the last try."""
    timer: asyncio.TimerHandle | None = None
    """Ends what the state waits for."""


class View:
    """Pods by UID, counted by what was decided about them."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._pods: dict[str, Tracked] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, tracked: Tracked) -> bool:
        return self._pods.get(tracked.pod.metadata.uid) is tracked

    def __iter__(self) -> Iterator[Tracked]:
        return iter(list(self._pods.values()))

    def get(self, uid: str) -> Tracked | None:
        """Return a pod that is under watch."""
        return self._pods.get(uid)

    def update(self, pod: types.Pod) -> Tracked:
        """Take note of a pod and decide about it."""
        decision = self._decide(pod)
        tracked = self._pods.get(pod.metadata.uid)
        if tracked is None:
            tracked = self._pods[pod.metadata.uid] = Tracked(pod, decision)
        else:
            _count(tracked, -1)
            tracked.pod, tracked.decision = pod, decision
        _count(tracked, 1)
        return tracked

    def remove(self, uid: str) -> Tracked | None:
        """Forget a pod."""
        tracked = self._pods.pop(uid, None)
        if tracked is not None:
            _count(tracked, -1)
        return tracked

    def within(self, namespace: str) -> Iterator[Tracked]:
        """Return the pods of a namespace, of all for `*`."""
        return (each for each in self if namespace in ("*", each.pod.metadata.namespace))


def _count(tracked: Tracked, by: int) -> None:
    decision = tracked.decision
    metrics.PODS.labels(decision.action, decision.reason).inc(by)
