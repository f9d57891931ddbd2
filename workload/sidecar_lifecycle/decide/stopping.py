"""The stop of one proxy, from the need for it to the proxy's end, as a state machine.

Most pods stay `watched`. A pod whose proxy must be stopped is `queued` for a slot among its node's
stops, and `sending` once it has one. When the request is `sent`, the service waits for the proxy's
exit, which the watch shows. The answer may be missing, since the proxy ends within the request's
handler; its exit counts all the same. A failed stop is `backing off` and then queued again, for a
slot among the failed ones, without limit. A stop is abandoned only if nothing is left to stop or
the unit ends. If nothing is left to stop during a request, the request gets a short time to end:
the pod is `leaving`.

The table below is complete. `shell/shutdown/stops.py` reports events and runs the table's actions
in order: actions that secure the next event come before reports.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """State of the stop of one pod's proxy."""

    WATCHED = "watched"
    """There is nothing to stop, or another unit has the turn."""
    QUEUED = "queued"
    """The stop waits for a slot."""
    SENDING = "sending"
    """A try is in progress."""
    SENT = "sent"
    """The request was sent, and the proxy should end."""
    BACKING_OFF = "backing off"
    """The last try failed, and the next one is delayed."""
    LEAVING = "leaving"
    """There is nothing left to stop, but a request is still in progress."""


class StopEvent(enum.StrEnum):
    """Event of a stop."""

    NEEDED = "needed"
    """The rules require a stop, and this unit has the turn."""
    PLACED = "placed"
    """A slot is free."""
    ANSWERED = "answered"
    """The proxy confirmed the stop."""
    UNANSWERED = "unanswered"
    """The request was sent, and the connection ended without an answer."""
    CHANGED = "changed"
    """The pod differs from the watch, so nothing was sent."""
    FAILED = "failed"
    """The try failed."""
    ELAPSED = "elapsed"
    """The state timed out, or the pause is over."""
    OVER = "over"
    """The proxy ended, the rules no longer require a stop, or the pod is gone."""
    LEFT = "left"
    """This unit ends."""


RESULTS = (StopEvent.ANSWERED, StopEvent.UNANSWERED, StopEvent.CHANGED, StopEvent.FAILED)
"""Results of a try."""


class StopAction(enum.StrEnum):
    """Action of a stop."""

    QUEUE = "queue"
    """Request a slot, among the first tries or the failed ones."""
    SEND = "send"
    """Begin a try; a first try keeps its slot only briefly."""
    FREE = "free"
    """Release the slot, if any."""
    AWAIT_EXIT = "await exit"
    """Wait for the proxy's end, shorter if it has not answered."""
    BACK_OFF = "back off"
    """Wait longer after each try, and at least as long as the API server demands."""
    BLAME = "blame"
    """Count a failure, choose the method of the next try, and notify the pod's owner."""
    GRACE = "grace"
    """Give the request a short time to end."""
    CANCEL = "cancel"
    """Cancel the request."""
    FORGET = "forget"
    """Remove the stop from the pending ones."""
    ACCOUNT = "account"
    """Report that the proxy was stopped, if a request was sent."""
    CONSIDER = "consider"
    """Evaluate the pod again: its proxy may need another stop."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Next state and actions for a state and some events."""

    state: State
    events: tuple[StopEvent, ...]
    after: State
    actions: tuple[StopAction, ...]


def _row(
    state: State, events: StopEvent | tuple[StopEvent, ...], after: State, *actions: StopAction
) -> Transition:
    return Transition(state, events if isinstance(events, tuple) else (events,), after, actions)


_S, _E, _A = State, StopEvent, StopAction

TABLE = (
    _row(_S.WATCHED, _E.NEEDED, _S.QUEUED, _A.QUEUE),
    _row(_S.QUEUED, _E.PLACED, _S.SENDING, _A.SEND),
    _row(_S.QUEUED, _E.OVER, _S.WATCHED, _A.FORGET, _A.ACCOUNT),
    _row(_S.QUEUED, _E.LEFT, _S.WATCHED, _A.FORGET),
    _row(_S.SENDING, (_E.ANSWERED, _E.UNANSWERED), _S.SENT, _A.AWAIT_EXIT, _A.FREE),
    _row(_S.SENDING, _E.CHANGED, _S.BACKING_OFF, _A.BACK_OFF, _A.FREE),
    _row(_S.SENDING, _E.FAILED, _S.BACKING_OFF, _A.BACK_OFF, _A.FREE, _A.BLAME),
    _row(_S.SENDING, _E.ELAPSED, _S.SENDING, _A.FREE),
    _row(_S.SENDING, _E.OVER, _S.LEAVING, _A.GRACE),
    _row(_S.SENDING, _E.LEFT, _S.WATCHED, _A.CANCEL, _A.FORGET, _A.FREE),
    _row(_S.SENT, _E.ELAPSED, _S.BACKING_OFF, _A.BACK_OFF, _A.BLAME),
    _row(_S.SENT, _E.OVER, _S.WATCHED, _A.FORGET, _A.ACCOUNT),
    _row(_S.SENT, _E.LEFT, _S.WATCHED, _A.FORGET),
    _row(_S.BACKING_OFF, _E.ELAPSED, _S.QUEUED, _A.QUEUE),
    _row(_S.BACKING_OFF, _E.OVER, _S.WATCHED, _A.FORGET, _A.ACCOUNT),
    _row(_S.BACKING_OFF, _E.LEFT, _S.WATCHED, _A.FORGET),
    _row(_S.LEAVING, RESULTS, _S.WATCHED, _A.FORGET, _A.FREE, _A.CONSIDER, _A.ACCOUNT),
    _row(
        _S.LEAVING,
        _E.ELAPSED,
        _S.WATCHED,
        *(_A.CANCEL, _A.FORGET, _A.FREE, _A.CONSIDER, _A.ACCOUNT),
    ),
    _row(_S.LEAVING, _E.LEFT, _S.WATCHED, _A.CANCEL, _A.FORGET, _A.FREE),
)
"""The transition of each state and event; a pair that is not in the table changes nothing."""

_STEPS = {(row.state, event): row for row in TABLE for event in row.events}


def step(state: State, event: StopEvent) -> Transition | None:
    """Return the transition of a state at an event; None if nothing changes."""
    return _STEPS.get((state, event))
