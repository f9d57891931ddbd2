"""What the plan says in each single situation."""

import pytest
from sidecar_lifecycle.decide.convergence import memory

from integrator_contract import answers
from tests.unit.cases import cases
from tests.unit.workload.convergence.plan_world import (
    NOW,
    PROVEN,
    a_budget,
    asked,
    decide,
    evicted,
    held,
    injecting,
    look,
    reasons,
    replacement,
    replica,
    snapshot,
)

SET = "StatefulSet/a"


def of_each(names):
    return [replica(f"{name}-0") for name in names]


def paused(until=NOW + 7, workload=SET):
    return memory.Memory(holds={workload: a_budget(until)}, proven=PROVEN)


def test_a_first_look_asks_before_it_evicts():
    decided = look(replica(), answers=())

    assert (asked(decided), evicted(decided), decided.memory.rounds) == (["a-0"], [], {})


def test_an_eviction_is_remembered_with_the_pods_that_were_there():
    decided = look(replica())

    assert evicted(decided) == ["a-0"]
    assert decided.memory.rounds[SET].known == ("uid-a-0",)
    assert decided.summary.converging == 1


def test_an_old_answer_is_asked_for_again():
    decided = look(replica(), now=NOW + 5)

    assert (asked(decided), evicted(decided)) == (["a-0"], [])


@cases(
    ("pod", "desired", "want"),
    ready_just_now=(replica(ready_since=NOW - 10), 1, "NotSettled"),
    starting=(replica(ready_since=None), 1, "NotReady"),
    not_ours=(replica(fixable=False, reason="BarePod"), 1, "BarePod"),
    scaled_to_nothing=(replica(), 0, "Changing"),
)
def test_a_pod_is_left_alone_with_the_reason(pod, desired, want):
    decided = look(pod, desired={SET: desired})

    assert (asked(decided), evicted(decided), reasons(decided)) == ([], [], {"a-0": want})
    assert list(reasons(decided).values()) == [want]


def test_a_crash_looping_pod_is_taken_at_once():
    assert evicted(look(replica(ready_since=None, crash_looping=True))) == ["a-0"]


def test_the_broken_one_of_several_is_taken_first_and_else_the_highest_ordinal():
    pods = [replica(f"a-{number}") for number in range(11)]
    assert evicted(look(*pods)) == ["a-10"]

    pods[0] = replica("a-0", ready_since=None, crash_looping=True)
    assert evicted(look(*pods)) == ["a-0"]


def test_the_only_ready_pod_of_several_stays():
    decided = look(replica("a-0"), replica("a-1", ready_since=None))

    assert not decided.evict
    assert reasons(decided)["a-0"] == "LastReadyReplica"


def test_no_more_workloads_than_allowed_at_once():
    decided = look(*of_each("abc"), max_unavailable="2")

    assert evicted(decided) == ["a-0", "b-0"]
    assert reasons(decided)["c-0"] == "Queued"


def test_a_share_is_one_of_the_workloads_that_run():
    idle = {f"Deployment/{number}": 0 for number in range(20)}
    decided = look(*of_each("abcde"), desired=idle, max_unavailable="50%")

    assert evicted(decided) == ["a-0", "b-0", "c-0"]


def test_all_are_taken_in_one_wave_but_those_whose_budget_forbids_it():
    remembered = paused(workload="StatefulSet/b")
    decided = look(*of_each("abcd"), remembered=remembered, max_unavailable="100%")

    assert evicted(decided) == ["a-0", "c-0", "d-0"]
    assert reasons(decided)["b-0"] == "DisruptionBudget"


def test_nothing_is_evicted_while_the_injector_does_not_answer():
    answers = [(SET, "down", ""), *injecting("StatefulSet/b")]
    decided = look(*of_each("ab"), answers=answers)

    assert not decided.evict
    assert reasons(decided) == {"a-0": "MeshDown", "b-0": "MeshDown"}
    assert asked(look(*of_each("ab"), answers=answers, now=NOW + 5)) == ["a-0", "b-0"]


def test_a_pause_is_waited_for_and_takes_no_slot():
    decided = look(*of_each("ab"), remembered=paused(), max_unavailable="1")

    assert evicted(decided) == ["b-0"]
    assert reasons(decided)["a-0"] == "DisruptionBudget"
    assert decided.memory.holds == {SET: a_budget()}


def test_a_pause_lasts_to_its_end_though_no_pod_is_missing_for_a_moment():
    decided = look(replica(in_mesh=True), remembered=paused())
    assert decided.summary.troubles == ()
    again = look(replica(), remembered=decided.memory)
    assert (again.ask, again.evict) == ([], [])

    assert look(replica(in_mesh=True), remembered=paused(NOW)).memory.holds == {}


def test_what_is_said_of_a_pause_does_not_change_while_it_is_tried_again():
    waiting = look(replica(), remembered=paused()).summary
    trouble = answers.Trouble(SET, "DisruptionBudget", "m", passing=True)
    assert (waiting.troubles, waiting.converging) == ((trouble,), 0)

    tried = look(replica(), remembered=paused(NOW))
    assert evicted(tried) == ["a-0"]
    assert tried.summary == waiting

    going = snapshot(replica(terminating=True), desired={SET: 1})
    done = decide(going, tried.memory).summary
    assert (done.troubles, done.converging) == ((), 1)


@pytest.mark.parametrize("mode", ["manual", "off"])
def test_without_auto_nothing_happens_unasked(mode):
    decided = look(replica(), mode=mode)

    assert (asked(decided), evicted(decided), decided.summary.proposed) == ([], [], 1)


def requested(*uids, **values):
    request = memory.Request(id="1", at=NOW, uids=uids)
    return memory.Memory(
        request=request, answered="1", **{"proven": (*PROVEN, "request 1"), **values}
    )


def test_what_is_asked_for_is_done_in_manual_mode_and_then_forgotten():
    decided = look(replica(), remembered=requested("uid-a-0", "elsewhere"), mode="manual")
    assert evicted(decided) == ["a-0"]
    assert decided.memory.request.uids == ("uid-a-0",)

    done = decide(snapshot(replacement()), decided.memory, mode="manual")
    assert (done.memory.request, done.memory.rounds) == (None, {})


@cases(
    ("pod", "want"),
    in_the_mesh=(replica(in_mesh=True), ["a-0"]),
    never_came_up=(replica(ready_since=None, created=NOW - 90), ["a-0"]),
    comes_up=(replica(ready_since=None, created=NOW - 30), []),
)
def test_a_pod_is_replaced_when_asked_for(pod, want):
    assert evicted(look(pod, remembered=requested("uid-a-0"))) == want
    assert evicted(look(pod)) == []


def test_asking_lifts_an_older_guard_but_not_the_one_that_follows():
    assert look(replica(), remembered=requested("uid-a-0", holds=held().holds)).evict

    for since in (NOW, NOW + 1):
        holds = held(since=since).holds
        decided = look(replica(), remembered=requested("uid-a-0", holds=holds))
        assert (decided.evict, decided.memory.request) == ([], None)


def test_a_pod_that_is_not_ours_is_not_evicted_even_when_asked_for():
    assert not look(replica(fixable=False), remembered=requested("uid-a-0")).evict


def test_the_summary_counts_what_we_may_fix_apart_from_what_is_only_reported():
    pods = [
        replica("a-0"),
        replica("b-0", in_mesh=True, stale="1.29"),
        replica("c-0", fixable=False, reason="BarePod"),
        replica("d-0", wanted=False),
        replica("e-0", in_mesh=True, stale="1.29", terminating=True),
    ]
    summary = look(*pods, answers=()).summary

    assert (summary.eligible, summary.in_mesh, summary.reported) == (2, 1, 1)
    assert (summary.converging, summary.stale) == (1, 1)
