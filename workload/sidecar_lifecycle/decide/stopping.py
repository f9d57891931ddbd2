"""The stop of one proxy, from the need for it to the proxy's end, as a state machine.

Most pods under watch are `watched` and nothing else. A pod that must be stopped is `queued` for a
place among the stops of its node, and `sending` once it has one. When the request is `sent`, the
proxy's exit is waited for, which the watch shows; an answer may be missing, since a proxy ends
within the handler of the request, and its exit counts all the same. Whatever fails is `backing
off` and queued again, for a place among those that failed, without end: a stop is given up only
when there is nothing to stop, or by a unit that ends. If there is nothing to stop while a request
is under way, the request may end, but not for long: the pod is `leaving`.

The table below is all there is to it. What acts (`shell/shutdown/stops.py`) reports events, and
does what the table says, in the order of the table: what secures the next event comes before what
is told to others.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """Where the stop of one pod's proxy is."""

    WATCHED = "watched"
    """Nothing is to be stopped, or another unit has its turn."""
    QUEUED = "queued"
    """To be stopped as soon as there is a place."""
    SENDING = "sending"
    """A try is under way."""
    SENT = "sent"
    """The request has gone out, and the proxy should end."""
    BACKING_OFF = "backing off"
    """The last try came to nothing, and the next one is some time off."""
    LEAVING = "leaving"
    """Nothing is to be stopped any more, but a request is still under way."""


class StopEvent(enum.StrEnum):
    """What can happen to it."""

    NEEDED = "needed"
    """The rules say that the proxy must be stopped, and it is this unit's turn."""
    PLACED = "placed"
    """There is a place."""
    ANSWERED = "answered"
    """The proxy says that it ends."""
    UNANSWERED = "unanswered"
    """The request went out, and the connection ended without an answer."""
    CHANGED = "changed"
    """The pod is not as the watch showed it, so nothing was sent."""
    FAILED = "failed"
    """The try failed."""
    ELAPSED = "elapsed"
    """What the state waits for did not come in time, or the pause is over."""
    OVER = "over"
    """The proxy has ended, the rules changed their mind, or the pod is gone."""
    LEFT = "left"
    """This unit ends."""


RESULTS = (StopEvent.ANSWERED, StopEvent.UNANSWERED, StopEvent.CHANGED, StopEvent.FAILED)
"""How a try ends."""


class StopAction(enum.StrEnum):
    """What is to be done about it."""

    QUEUE = "queue"
    """Ask for a place: among the first tries, or among those that failed."""
    SEND = "send"
    """Begin a try; a first one keeps its place for a moment only."""
    FREE = "free"
    """Give the place back, if it has one."""
    AWAIT_EXIT = "await exit"
    """Give the proxy time to end: less of it if it has not answered."""
    BACK_OFF = "back off"
    """Wait longer after each try, and as long as the API asked for."""
    BLAME = "blame"
    """Count a failure, choose the way of the next try, and tell the pod's owner."""
    GRACE = "grace"
    """Give the request a moment to end."""
    CANCEL = "cancel"
    """Cut the request off."""
    FORGET = "forget"
    """The need is over: it is pending no more."""
    ACCOUNT = "account"
    """Say that the proxy was stopped, if a request has gone out."""
    CONSIDER = "consider"
    """Look at the pod again: its proxy may have to be stopped anew."""


@dataclass(frozen=True, slots=True)
class Transition:
    """What happens in a state at any of some events."""

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
"""What happens in each state at each event; what is not in the table changes nothing."""

_STEPS = {(row.state, event): row for row in TABLE for event in row.events}


def step(state: State, event: StopEvent) -> Transition | None:
    """Return what happens in a state at an event, None if it changes nothing."""
    return _STEPS.get((state, event))
