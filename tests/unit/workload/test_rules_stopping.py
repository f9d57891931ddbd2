"""The table of the machine that stops a proxy: what holds of each row, and on every walk."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.decide import stopping
from sidecar_lifecycle.decide.stopping import State, StopAction, StopEvent

PAGE = pathlib.Path(__file__).parents[3] / "docs/explanation/proxy-shutdown.md"
TRYING = (State.SENDING, State.LEAVING)
"""States in which a request is under way."""
TOLD = (StopAction.BLAME, StopAction.ACCOUNT)
"""What is told to others."""


def steps() -> list[tuple[State, StopEvent, stopping.Transition]]:
    """Every pair of state and event that the table knows."""
    return [(row.state, event, row) for row in stopping.TABLE for event in row.events]


def test_each_pair_of_state_and_event_has_one_row():
    pairs = [(state, event) for state, event, _ in steps()]
    assert len(pairs) == len(set(pairs))


@pytest.mark.parametrize("state", [state for state in State if state is not State.WATCHED])
def test_unit_that_ends_stops_nothing_and_says_nothing(state: State):
    row = stopping.step(state, StopEvent.LEFT)
    assert row is not None
    assert row.after is State.WATCHED
    assert StopAction.FORGET in row.actions
    assert not {StopAction.ACCOUNT, StopAction.CONSIDER, StopAction.BLAME} & set(row.actions)


@pytest.mark.parametrize(
    ("event", "after"),
    [
        (StopEvent.ANSWERED, State.SENT),
        (StopEvent.UNANSWERED, State.SENT),
        (StopEvent.CHANGED, State.BACKING_OFF),
        (StopEvent.FAILED, State.BACKING_OFF),
    ],
)
def test_result_of_a_try_says_what_is_waited_for(event: StopEvent, after: State):
    row = stopping.step(State.SENDING, event)
    assert row is not None
    assert row.after is after
    assert (StopAction.BLAME in row.actions) == (event is StopEvent.FAILED)


def test_what_the_table_does_not_know_changes_nothing():
    assert stopping.step(State.WATCHED, StopEvent.OVER) is None
    assert stopping.step(State.SENT, StopEvent.NEEDED) is None


@pytest.mark.parametrize(("state", "event", "row"), steps())
def test_actions_are_those_of_the_state_that_is_left_and_of_that_entered(
    state: State, event: StopEvent, row: stopping.Transition
):
    actions = set(row.actions)
    assert (StopAction.FORGET in actions) == (row.after is State.WATCHED)
    assert (StopAction.QUEUE in actions) == (row.after is State.QUEUED)
    assert (StopAction.SEND in actions) == (state is State.QUEUED and row.after is State.SENDING)
    assert (StopAction.AWAIT_EXIT in actions) == (row.after is State.SENT)
    assert (StopAction.BACK_OFF in actions) == (row.after is State.BACKING_OFF)
    assert (StopAction.GRACE in actions) == (row.after is State.LEAVING)
    # Who stops trying gives its place back, and leaves no request behind.
    stops_trying = state in TRYING and row.after not in TRYING
    assert not stops_trying or StopAction.FREE in actions
    assert (StopAction.CANCEL in actions) == (stops_trying and event not in stopping.RESULTS)
    # What is told to others comes after what the next event depends on.
    told = [index for index, action in enumerate(row.actions) if action in TOLD]
    assert told == list(range(len(row.actions) - len(told), len(row.actions)))


@given(st.lists(st.sampled_from([event for event in StopEvent if event is not StopEvent.LEFT])))
def test_need_ends_only_when_it_is_over(events: list[StopEvent]):
    state, over = State.QUEUED, False
    for event in events:
        over = over or event is StopEvent.OVER
        row = stopping.step(state, event)
        state = state if row is None else row.after
        if state is State.WATCHED:
            assert over
            return


def test_page_shows_the_table():
    want = [
        f"| {row.state} | {event} | {row.after} | {', '.join(row.actions)} |"
        for row in stopping.TABLE
        for event in row.events
    ]
    rows = [line for line in PAGE.read_text().splitlines() if line.count(" | ") == 3]
    assert rows[2:] == want
