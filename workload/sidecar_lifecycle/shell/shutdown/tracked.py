"""The state of each watched pod, and of the stop of its proxy."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types

from .stop import Outcome, Transport


@dataclass(slots=True, eq=False)
class Tracked:
    """A watched pod."""

    pod: types.Pod
    decision: finished.ProxyDecision
    since: float
    """When this decision was first made; time of the event loop."""
    timer: asyncio.TimerHandle | None = None
    """Runs until the decision takes effect."""
    pending: PendingStop | None = None
    """The pending stop of its proxy; None for most pods."""
    sent: tuple[finished.ProxyDecision, Transport] | None = None
    """The last stop that this unit sent, until it is reported; its answer may be lost."""
    deletion: asyncio.Task[None] | None = None
    old_ends_count: bool = False
    """Whether the end of a container counts even if it is older than the start of its pod."""
    reported: tuple[str, ...] = ()
    """The reasons that have been reported about this pod, each once."""

    @property
    def name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    def cancel_timer(self) -> None:
        """Cancel the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True, eq=False)
class PendingStop:
    """A stop of a proxy, from the decision to its end."""

    since: float
    """When the stop was first needed; time of the event loop."""
    task: asyncio.Task[None] = field(init=False)
    request: asyncio.Task[Outcome] | None = None
    """The request in flight."""
    is_over: bool = False
    """Whether nothing is left to stop, so that the task ends."""
