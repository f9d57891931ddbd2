"""How rounds under way go: when a slot comes back, and when a person is needed."""

import pytest
from sidecar_lifecycle.decide.convergence import facts

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


@pytest.mark.parametrize(
    ("pods", "open_"),
    [
        pytest.param([replica()], True, id="eviction-not-seen-yet"),
        pytest.param([replica(terminating=True)], True, id="terminating"),
        pytest.param([], True, id="gone"),
        pytest.param([replacement(ready_since=None)], True, id="starting"),
        pytest.param([replacement()], False, id="ready"),
    ],
)
def test_the_slot_is_held_until_the_replacement_is_ready(pods, open_):
    other = replica("b-0")
    shot = snapshot(*pods, other, desired={"StatefulSet/a": 1}, answers=injecting("StatefulSet/b"))
    decided = decide(shot, remembering(), max_unavailable="1")

    assert ("StatefulSet/a" in decided.memory.rounds) is open_
    assert bool(decided.evict) is not open_


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([replica()], id="eviction-not-seen-yet"),
        pytest.param([replica(terminating=True)], id="terminating"),
        pytest.param([], id="gone"),
        pytest.param([replacement(ready_since=None)], id="starting"),
    ],
)
def test_a_pod_that_is_being_replaced_is_counted_once(pods):
    others = [replica("b-0", in_mesh=True), replica("c-0")]
    shot = snapshot(*pods, *others, desired={"StatefulSet/a": 1})
    summary = decide(shot, remembering()).summary

    assert (summary.in_mesh, summary.converging, summary.eligible) == (1, 2, 3)


@pytest.mark.parametrize(
    ("replacing", "was", "counts"),
    [
        # A pod that serves is in the mesh, though its round goes on for want of another.
        pytest.param({"ready_since": NOW - 1}, 3, (2, 0), id="ready"),
        pytest.param({"ready_since": None}, 3, (1, 1), id="starting"),
        pytest.param({"ready_since": None, "terminating": True}, 3, (1, 1), id="terminating"),
    ],
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
    assert pending.wake_at == NOW + 1


@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "switched-off"])
def test_a_workload_that_is_not_ours_any_more_gives_its_slot_back(gone):
    pods = () if gone else (replacement(ready_since=None, fixable=False),)
    shot = facts.Snapshot(replicas=pods, desired={} if gone else {"StatefulSet/a": 1})

    assert decide(shot, remembering()).memory.rounds == {}


def test_a_workload_scaled_to_nothing_gives_its_slot_back():
    shot = facts.Snapshot(desired={"StatefulSet/a": 0}, fingerprint="f")

    assert decide(shot, remembering()).memory.rounds == {}


def test_a_replacement_without_sidecar_is_asked_about_before_it_is_blamed():
    shot = snapshot(replacement(in_mesh=False))
    decided = decide(shot, remembering())

    assert [each.uid for each in decided.ask] == ["new"]
    assert "StatefulSet/a" in decided.memory.rounds


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
    assert [each.kind for each in decided.news] == ["held", "completed"]
    assert decided.summary.converging == 0


@pytest.mark.parametrize(
    ("verdict", "fingerprint"), [("down", "f"), ("injects", "other")], ids=["outage", "changed"]
)
def test_a_replacement_made_while_the_injector_was_away_is_excused(verdict, fingerprint):
    bad = replacement(in_mesh=False, ready_since=None)
    shot = snapshot(bad, answers=[("StatefulSet/a", verdict, "new")])
    decided = decide(shot, remembering(fingerprint=fingerprint))

    assert not decided.memory.holds
    assert "new" in decided.memory.rounds["StatefulSet/a"].known


@pytest.mark.parametrize(
    ("remembered", "pods", "want"),
    [
        pytest.param(held(), [replica()], True, id="same"),
        pytest.param(held(), [], True, id="no-pod-right-now"),
        pytest.param(held(), [replica(terminating=True)], True, id="being-replaced"),
        pytest.param(held(), [replica(revision="r2")], False, id="new-template"),
        pytest.param(held(fingerprint="old"), [replica()], False, id="mesh-changed"),
        pytest.param(held(), [replica(in_mesh=True)], False, id="cured"),
    ],
)
def test_a_hold_counts_until_something_changes(remembered, pods, want):
    shot = snapshot(*pods, desired={"StatefulSet/a": 1}, answers=injecting("StatefulSet/a"))
    decided = decide(shot, remembered)

    assert bool(decided.memory.holds) is want


def test_a_hold_whose_time_is_over_is_no_obstacle():
    shot = snapshot(replica(), answers=injecting("StatefulSet/a"))
    assert decide(shot, held(until=NOW)).evict


def test_a_hold_that_ends_by_itself_is_looked_at_again_then():
    assert decide(snapshot(replica()), held(until=NOW + 50)).wake_at == NOW + 50


@pytest.mark.parametrize("ready_since", [NOW - 300, None], ids=["ready", "starting"])
def test_a_replacement_that_the_injector_skips_ends_it_for_a_while(ready_since):
    skipped = replacement(in_mesh=False, ready_since=ready_since)
    shot = snapshot(skipped, answers=[("StatefulSet/a", "skips", "new")])
    guard = decide(shot, remembering()).memory.holds["StatefulSet/a"]

    assert (guard.reason, guard.until) == ("InjectorSkips", NOW + 600)


def test_a_pod_that_does_not_go_away_is_reported():
    shot = snapshot(replica(terminating=True))
    (trouble,) = decide(shot, remembering(since=NOW - 700)).summary.troubles

    assert "terminating" in trouble.message


def test_a_pod_that_has_ended_and_does_not_go_is_reported_where_no_other_can_come():
    shot = snapshot(replica(terminating=True, ended=True))
    (trouble,) = decide(shot, remembering(since=NOW - 700)).summary.troubles
    assert "terminating" in trouble.message

    pods = replica(terminating=True, ended=True), replacement()
    shot = snapshot(*pods, desired={"StatefulSet/a": 1})
    decided = decide(shot, remembering(since=NOW - 700))
    assert (decided.memory.rounds, decided.summary.troubles) == ({}, ())


def test_a_missing_replacement_is_waited_for():
    old = [replica("a-1"), replica("a-2")]
    remembered = remembering(known=("uid-a-0", "uid-a-1", "uid-a-2"), ready_before=3)
    shot = snapshot(*old, desired={"StatefulSet/a": 3}, answers=injecting("StatefulSet/a"))
    decided = decide(shot, remembered)

    assert not decided.evict
    assert reasons(decided) == {"a-1": "Replacing", "a-2": "Replacing"}


def test_an_answer_about_another_pod_blames_nobody():
    bad = replacement(in_mesh=False)
    shot = snapshot(bad, answers=[("StatefulSet/a", "injects", "uid-a-0")])
    decided = decide(shot, remembering())

    assert [each.uid for each in decided.ask] == ["new"]
    assert decided.memory.holds == {}
    assert "StatefulSet/a" in decided.memory.rounds


def three(ready, **new):
    """Two of three pods as they were, so many of them Ready, beside a replacement."""
    old = [
        replica(f"a-{number}", in_mesh=True, ready_since=NOW - 300 if number <= ready else None)
        for number in (1, 2)
    ]
    return [replacement(**new), *old]


@pytest.mark.parametrize(
    ("pods", "desired", "values", "open_"),
    [
        pytest.param(three(2), 3, {"ready_before": 3}, False, id="all-as-before"),
        pytest.param(three(1), 3, {"ready_before": 2}, False, id="as-many-as-before-and-no-more"),
        pytest.param(three(1), 3, {"ready_before": 3}, True, id="an-old-one-fell-over"),
        pytest.param(
            three(2, ready_since=None), 3, {"ready_before": 2}, True, id="only-the-old-ones"
        ),
        pytest.param([replacement()], 1, {"ready_before": 3}, False, id="scaled-down"),
        pytest.param(
            three(2)[1:], 3, {"was_ready": False, "ready_before": 2}, True, id="no-replacement-yet"
        ),
        pytest.param(
            three(2, ready_since=None),
            3,
            {"was_ready": False, "ready_before": 2},
            False,
            id="as-broken-as-before",
        ),
    ],
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
    if not reported:
        assert decided.wake_at == pytest.approx(NOW + (10 - minutes) * 60)
