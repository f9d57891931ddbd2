"""The state of each pod that runs to completion, and of the stop of its proxy."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.decide.stopping import State
from sidecar_lifecycle.model import types

from .slots import Lane
from .stop import Outcome, Transport


@dataclass(slots=True, eq=False)
class Tracked:
    """A pod under watch."""

    pod: types.Pod
    decision: finished.ProxyDecision
    since: float
    """On the loop's clock; from when the decision has been this one."""
    timer: asyncio.TimerHandle | None = None
    """Runs until the decision has lasted long enough to have consequences."""
    pending: PendingStop | None = None
    """The stop of its proxy that is under way; None for most pods."""
    sent: tuple[finished.ProxyDecision, Transport] | None = None
    """The last stop that this unit sent, until it is told; its answer may be lost."""
    deletion: asyncio.Task[None] | None = None
    old_ends_count: bool = False
    """Whether a container's end counts that is older than the start of its pod."""
    told: tuple[str, ...] = ()
    """What has been said about this pod, so that it is said once."""

    @property
    def name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    def wait_no_more(self) -> None:
        """End the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True, eq=False)
class PendingStop:
    """The stop of the proxy of one pod, from when its need is seen until it is over."""

    tracked: Tracked
    since: float
    """On the loop's clock; when it was first seen."""
    state: State = State.WATCHED
    tries: int = 0
    failures: int = 0
    way: Transport = Transport.PORT_FORWARD
    """Of the next try."""
    place: tuple[Lane[PendingStop], str] | None = None
    """The lane and node that it is queued for, and whose place it holds while it is sending."""
    request: asyncio.Task[None] | None = None
    """The try under way."""
    outcome: Outcome | None = None
    """Of the last try."""
    timer: asyncio.TimerHandle | None = None
    """Ends what the state waits for."""
