"""What we know of the pods that run to completion, and what was decided about each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sidecar_lifecycle import metrics
from sidecar_lifecycle.kube import types
from sidecar_lifecycle.rules import finished

from .stop import Transport

# One for all: thousands are watched or wait for a place, few are being stopped at a time.
_NOTHING_TO_STOP = asyncio.Event()
_NOTHING_TO_STOP.set()


@dataclass(slots=True, eq=False)
class Tracked:
    """A pod under watch."""

    pod: types.Pod
    decision: finished.Decision
    stoppable_since: float = 0.0
    """On the loop's clock; when the present need to stop was first seen."""
    sent: tuple[finished.Decision, Transport] | None = None
    """The last stop that went out; its answer may be lost, because a busy node is slow."""
    failures: int = 0
    over: asyncio.Event = _NOTHING_TO_STOP
    """Set when there is nothing to stop any more; each stop under way has its own."""
    armed: bool = False
    """To be stopped: waiting for a place, or under way."""
    turn: int = 0
    """Counts how often it was armed, so that a place asked for earlier is known as such."""
    place: str | None = None
    """The node on which it holds a place for its first try."""
    task: asyncio.Task[None] | None = None
    """The stop under way."""
    report: asyncio.Task[None] | None = None
    told: tuple[str, ...] = ()
    """What has been said about this pod, so that it is said once."""

    @property
    def name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


class View:
    """Pods by UID. It counts them by decision, and never does anything about them."""

    def __init__(self, decide: Callable[[types.Pod], finished.Decision]) -> None:
        self._decide = decide
        self._pods: dict[str, Tracked] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, tracked: Tracked) -> bool:
        return self._pods.get(tracked.pod.metadata.uid) is tracked

    def __iter__(self) -> Iterator[Tracked]:
        return iter(list(self._pods.values()))

    def update(self, pod: types.Pod) -> Tracked:
        """Take note of a pod and decide about it."""
        decision = self._decide(pod)
        tracked = self._pods.get(pod.metadata.uid)
        if tracked is None:
            tracked = self._pods[pod.metadata.uid] = Tracked(pod, decision)
        else:
            self._count(tracked, -1)
            tracked.pod, tracked.decision = pod, decision
        self._count(tracked, 1)
        return tracked

    def again(self, tracked: Tracked) -> Tracked:
        """Decide anew about a pod, because something else changed."""
        return self.update(tracked.pod)

    def remove(self, uid: str) -> Tracked | None:
        """Forget a pod."""
        tracked = self._pods.pop(uid, None)
        if tracked is not None:
            self._count(tracked, -1)
        return tracked

    def within(self, namespace: str) -> Iterator[Tracked]:
        """Return the pods of a namespace, of all for `*`."""
        for tracked in self:
            if namespace in ("*", tracked.pod.metadata.namespace):
                yield tracked

    @staticmethod
    def _count(tracked: Tracked, by: int) -> None:
        decision = tracked.decision
        metrics.PODS.labels(decision.action, decision.reason).inc(by)
