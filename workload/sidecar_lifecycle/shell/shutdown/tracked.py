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
    need: Need | None = None
    """To stop its proxy; None for most pods."""
    turn: asyncio.TimerHandle | None = None
    """Runs until this unit, too, may stop the proxy."""
    sent: tuple[finished.ProxyDecision, Transport] | None = None
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
