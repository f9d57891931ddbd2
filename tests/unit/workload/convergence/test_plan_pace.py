"""How long it will take, by how long it took so far."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.decide.convergence import memory

from tests.unit.workload.convergence.plan_world import (
    NOW,
    a_round,
    decide,
    injecting,
    replacement,
    replica,
    snapshot,
)

LEFT = [replica(f"{name}-0") for name in "bcdefg"]
NOT_YET = replacement(ready_since=None)


def under_way(**values):
    return memory.Memory(
        rounds={"StatefulSet/a": a_round()}, settled=False, pace=memory.Pace(**values)
    )


def test_it_begins_with_the_first_eviction():
    decided = decide(snapshot(replica(), answers=injecting("StatefulSet/a")))

    assert decided.memory.pace == memory.Pace(since=NOW)
    assert decided.summary.minutes_left == 0


def test_what_is_left_takes_as_long_for_each_as_what_is_over():
    remembered = under_way(since=NOW - 4000, done=3, latest=NOW - 50)

    decided = decide(snapshot(replacement(), *LEFT), remembered)

    assert decided.memory.pace == memory.Pace(since=NOW - 4000, done=4, latest=NOW)
    assert decided.summary.converging == 6
    assert decided.summary.minutes_left == 4000 / 4 * 6 / 60


@given(st.floats(0, 500))
def test_estimate_does_not_change_by_the_mere_passing_of_time(seconds):
    remembered = under_way(since=NOW - 200, done=4, latest=NOW - 20)
    # Pods that nobody takes, so that nothing but the time differs.
    left = [dataclasses.replace(each, ready_since=None) for each in LEFT]
    decided = decide(snapshot(NOT_YET, *left), remembered, now=NOW + seconds, max_unavailable="1")

    assert decided.memory.pace == remembered.pace
    assert decided.summary.minutes_left == 6  # 45 s each, and seven are left


def test_it_ends_with_the_convergence():
    remembered = under_way(since=NOW - 200, done=4, latest=NOW - 20)

    decided = decide(snapshot(replacement()), remembered)

    assert decided.memory.pace is None
    assert decided.summary.minutes_left == 0
