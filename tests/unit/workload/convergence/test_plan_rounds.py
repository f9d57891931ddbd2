"""How rounds under way go: when a slot comes back, and when a person is needed."""

import pytest
from sidecar_lifecycle.decide.convergence import facts

from tests.unit.cases import cases
from tests.unit.workload.convergence.plan_world import (
    NOW,
    decide,
    held,
    injecting,
    reasons,
    remembering,
    replacement,
    replica,
    snapshot,
)


@cases(
    ("pods", "open_"),
    eviction_not_seen_yet=([replica()], True),
    terminating=([replica(terminating=True)], True),
    gone=([], True),
    starting=([replacement(ready_since=None)], True),
    ready=([replacement()], False),
)
def test_the_slot_is_held_until_the_replacement_is_ready(pods, open_):
    others = [replica("b-0"), replica("c-0", in_mesh=True)]
    answers = injecting("StatefulSet/b")
    shot = snapshot(*pods, *others, desired={"StatefulSet/a": 1}, answers=answers)
    decided = decide(shot, remembering(), max_unavailable="1")

    assert ("StatefulSet/a" in decided.memory.rounds) is open_
    assert bool(decided.evict) is not open_
    # A pod that is being replaced is counted once.
    summary = decided.summary
    assert (summary.in_mesh, summary.converging) == ((1, 2) if open_ else (2, 1))
    assert summary.eligible == 3


@cases(
    ("replacing", "was", "counts"),
    # A pod that serves is in the mesh, though its round goes on for want of another.
    ready=({"ready_since": NOW - 1}, 3, (2, 0)),
    starting=({"ready_since": None}, 3, (1, 1)),
    terminating=({"ready_since": None, "terminating": True}, 3, (1, 1)),
)
def test_a_replacement_is_in_the_mesh_or_on_its_way(replacing, was, counts):
    pods = [replica("a-1", in_mesh=True, ready_since=None), replacement(**replacing)]
    known = ("uid-a-0", "uid-a-1")
    summary = decide(snapshot(*pods), remembering(known=known, ready_before=was)).summary

    assert (summary.in_mesh, summary.converging) == counts


def test_a_crash_looping_pods_round_ends_when_its_replacement_is_there():
    shot = snapshot(replacement(ready_since=None), desired={"StatefulSet/a": 1})

    assert decide(shot, remembering(was_ready=False, ready_before=0)).memory.rounds == {}


def test_an_eviction_that_never_happened_is_forgotten_after_a_while():
    decided = decide(snapshot(replica()), remembering(since=NOW - 30))
    assert decided.memory.rounds == {}

    pending = decide(snapshot(replica()), remembering(since=NOW - 29))
    assert pending.memory.rounds


@cases(
    ("pods", "desired"),
    deleted=((), {}),
    switched_off=((replacement(ready_since=None, fixable=False),), {"StatefulSet/a": 1}),
    scaled_to_nothing=((), {"StatefulSet/a": 0}),
)
def test_a_workload_that_is_not_ours_any_more_gives_its_slot_back(pods, desired):
    shot = facts.Snapshot(replicas=pods, desired=desired, fingerprint="f")

    assert decide(shot, remembering()).memory.rounds == {}


STARTS, SERVES = {"ready_since": None}, {}


@cases(
    ("answer", "fingerprint", "values", "hold"),
    # Without an answer about the replacement the API server is asked.
    no_answer=((), "f", SERVES, None),
    about_another_pod=(("injects", "uid-a-0"), "f", SERVES, None),
    # It was made while the injector was away.
    outage=(("down", "new"), "f", STARTS, ()),
    changed=(("injects", "new"), "other", STARTS, ()),
    again=(("injects", "new"), "f", STARTS, ("StillNoSidecar", None)),
    skipped=(("skips", "new"), "f", SERVES, ("InjectorSkips", NOW + 600)),
    skipped_and_starting=(("skips", "new"), "f", STARTS, ("InjectorSkips", NOW + 600)),
)
def test_a_replacement_without_sidecar_is_blamed_by_a_dry_run(answer, fingerprint, values, hold):
    shot = snapshot(
        replacement(in_mesh=False, **values),
        answers=[("StatefulSet/a", *answer)] if answer else [],
    )
    decided = decide(shot, remembering(fingerprint=fingerprint))
    current = decided.memory.rounds.get("StatefulSet/a")

    assert [each.uid for each in decided.ask] == ["new"] * (hold is None)
    holds = [(each.reason, each.until) for each in decided.memory.holds.values()]
    assert holds == [hold] * bool(hold)
    if hold is None or values == STARTS:
        assert ("new" in current.known) is (hold is not None)


def test_of_several_replacements_without_sidecar_the_first_is_asked_about_and_named():
    bad = [replacement(in_mesh=False, name=f"a-{number}", uid=f"new-{number}") for number in "01"]
    assert [each.uid for each in decide(snapshot(*bad), remembering()).ask] == ["new-0"]

    shot = snapshot(*bad, answers=[("StatefulSet/a", "injects", "new-0")])
    guard = decide(shot, remembering()).memory.holds["StatefulSet/a"]
    assert guard.message.startswith("a-0, created in place of an evicted pod")


def test_a_replacement_without_sidecar_ends_it():
    bad = replacement(in_mesh=False)
    shot = snapshot(bad, answers=[("StatefulSet/a", "injects", "new")])
    decided = decide(shot, remembering())

    assert decided.memory.holds["StatefulSet/a"].reason == "StillNoSidecar"
    assert not decided.evict
    assert reasons(decided) == {"a-0": "StillNoSidecar"}
    assert [each.reason for each in decided.held] == ["StillNoSidecar"]
    assert not decided.memory.rounds
    assert decided.summary.converging == 0


@cases(
    ("remembered", "pods", "want"),
    same=(held(), [replica()], True),
    no_pod_right_now=(held(), [], True),
    being_replaced=(held(), [replica(terminating=True)], True),
    new_template=(held(), [replica(revision="r2")], False),
    mesh_changed=(held(fingerprint="old"), [replica()], False),
    cured=(held(), [replica(in_mesh=True)], False),
)
def test_a_hold_counts_until_something_changes(remembered, pods, want):
    shot = snapshot(*pods, desired={"StatefulSet/a": 1}, answers=injecting("StatefulSet/a"))
    decided = decide(shot, remembered)

    assert bool(decided.memory.holds) is want


def test_a_hold_ends_by_itself():
    shot = snapshot(replica(), answers=injecting("StatefulSet/a"))
    assert decide(shot, held(until=NOW)).evict


@pytest.mark.parametrize("ended", [False, True])
def test_a_pod_that_does_not_go_is_reported_where_no_other_can_come(ended):
    old = replica(terminating=True, ended=ended)
    (trouble,) = decide(snapshot(old), remembering(since=NOW - 700)).summary.troubles
    assert "terminating" in trouble.message

    shot = snapshot(old, replacement(), desired={"StatefulSet/a": 1})
    decided = decide(shot, remembering(since=NOW - 700))
    assert bool(decided.memory.rounds) is not ended
    if ended:
        assert decided.summary.troubles == ()


def test_a_missing_replacement_is_waited_for():
    old = [replica("a-1"), replica("a-2")]
    remembered = remembering(known=("uid-a-0", "uid-a-1", "uid-a-2"), ready_before=3)
    shot = snapshot(*old, desired={"StatefulSet/a": 3}, answers=injecting("StatefulSet/a"))
    decided = decide(shot, remembered)

    assert not decided.evict
    assert reasons(decided) == {"a-1": "Replacing", "a-2": "Replacing"}


def three(ready, **new):
    """Two of three pods as they were, so many of them Ready, beside a replacement."""
    old = [
        replica(f"a-{number}", in_mesh=True, ready_since=NOW - 300 if number <= ready else None)
        for number in (1, 2)
    ]
    return [replacement(**new), *old]


@cases(
    ("pods", "desired", "values", "open_"),
    all_as_before=(three(2), 3, {"ready_before": 3}, False),
    as_many_as_before_and_no_more=(three(1), 3, {"ready_before": 2}, False),
    an_old_one_fell_over=(three(1), 3, {"ready_before": 3}, True),
    only_the_old_ones=(three(2, ready_since=None), 3, {"ready_before": 2}, True),
    scaled_down=([replacement()], 1, {"ready_before": 3}, False),
    no_replacement_yet=(three(2)[1:], 3, {"was_ready": False, "ready_before": 2}, True),
    as_broken_as_before=(
        three(2, ready_since=None),
        3,
        {"was_ready": False, "ready_before": 2},
        False,
    ),
)
def test_the_slot_comes_back_when_the_workload_has_what_was_taken(pods, desired, values, open_):
    known = tuple(f"uid-a-{number}" for number in range(3))
    shot = snapshot(*pods, desired={"StatefulSet/a": desired})
    decided = decide(shot, remembering(known=known, **values))

    assert ("StatefulSet/a" in decided.memory.rounds) is open_


@pytest.mark.parametrize(("minutes", "reported"), [(9.9, False), (10, True)])
def test_a_replacement_has_ten_minutes_to_come_up(minutes, reported):
    shot = snapshot(replacement(ready_since=None), desired={"StatefulSet/a": 1})
    decided = decide(shot, remembering(since=NOW - minutes * 60))

    (trouble,) = decided.summary.troubles
    assert trouble.passing is not reported
    assert decided.memory.rounds
    assert decided.summary.converging == (not reported)
