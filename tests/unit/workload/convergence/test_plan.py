"""What the plan says in each single situation."""

import pytest
from sidecar_lifecycle.decide.convergence import memory, outcome

from integrator_contract import answers
from tests.unit.workload.convergence.plan_world import (
    NOW,
    PROVEN,
    a_budget,
    decide,
    held,
    injecting,
    reasons,
    replacement,
    replica,
    snapshot,
)


def test_a_first_look_asks_before_it_evicts():
    decided = decide(snapshot(replica()))

    assert [each.name for each in decided.ask] == ["a-0"]
    assert decided.evict == ()
    assert decided.memory.rounds == {}


def test_an_eviction_is_remembered_with_the_pods_that_were_there():
    decided = decide(snapshot(replica(), answers=injecting("StatefulSet/a")))

    assert [each.name for each in decided.evict] == ["a-0"]
    assert decided.memory.rounds["StatefulSet/a"].known == ("uid-a-0",)
    assert decided.summary.converging == 1
    assert decided.wake_at == NOW + outcome.Limits().eviction_grace


def test_an_old_answer_is_asked_for_again():
    decided = decide(snapshot(replica(), answers=injecting("StatefulSet/a")), now=NOW + 5)

    assert [each.name for each in decided.ask] == ["a-0"]
    assert not decided.evict


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param({"ready_since": NOW - 10}, "NotSettled", id="ready-just-now"),
        pytest.param({"ready_since": None}, "NotReady", id="starting"),
        pytest.param({"fixable": False, "reason": "BarePod"}, "BarePod", id="not-ours"),
    ],
)
def test_a_pod_is_left_alone_with_the_reason(values, want):
    decided = decide(snapshot(replica(**values), answers=injecting("StatefulSet/a")))

    assert not decided.evict
    assert not decided.ask
    assert reasons(decided) == {"a-0": want}


def test_the_plan_says_when_a_pod_will_have_been_ready_long_enough():
    decided = decide(snapshot(replica(ready_since=NOW - 10)))

    assert decided.wake_at == NOW + 50


def test_a_crash_looping_pod_is_taken_at_once():
    shot = snapshot(
        replica(ready_since=None, crash_looping=True), answers=injecting("StatefulSet/a")
    )

    assert [each.name for each in decide(shot).evict] == ["a-0"]


def test_the_broken_one_of_several_is_taken_first():
    pods = [replica("a-0", ready_since=None, crash_looping=True), replica("a-1"), replica("a-2")]
    decided = decide(snapshot(*pods, answers=injecting("StatefulSet/a")))

    assert [each.name for each in decided.evict] == ["a-0"]


def test_the_highest_ordinal_is_taken_first():
    pods = [replica(f"a-{number}") for number in range(11)]
    decided = decide(snapshot(*pods, answers=injecting("StatefulSet/a")))

    assert [each.name for each in decided.evict] == ["a-10"]


def test_the_only_ready_pod_of_several_stays():
    pods = [replica("a-0"), replica("a-1", ready_since=None)]
    decided = decide(snapshot(*pods, answers=injecting("StatefulSet/a")))

    assert not decided.evict
    assert reasons(decided)["a-0"] == "LastReadyReplica"


def test_no_more_workloads_than_allowed_at_once():
    pods = [replica(f"{name}-0") for name in "abc"]
    answers = injecting(*(f"StatefulSet/{name}" for name in "abc"))
    decided = decide(snapshot(*pods, answers=answers), max_unavailable="2")

    assert [each.name for each in decided.evict] == ["a-0", "b-0"]
    assert reasons(decided)["c-0"] == "Queued"


def test_a_share_is_one_of_the_workloads_that_run():
    pods = [replica(f"{name}-0") for name in "abcde"]
    answers = injecting(*(f"StatefulSet/{name}" for name in "abcde"))
    idle = {f"Deployment/{number}": 0 for number in range(20)}
    decided = decide(snapshot(*pods, answers=answers, desired=idle), max_unavailable="50%")

    assert [each.name for each in decided.evict] == ["a-0", "b-0", "c-0"]


def test_all_are_taken_in_one_wave_but_those_whose_budget_forbids_it():
    pods = [replica(f"{name}-0") for name in "abcd"]
    answers = injecting(*(f"StatefulSet/{name}" for name in "abcd"))
    remembered = memory.Memory(holds={"StatefulSet/b": a_budget()}, proven=PROVEN)
    decided = decide(snapshot(*pods, answers=answers), remembered, max_unavailable="100%")

    assert [each.name for each in decided.evict] == ["a-0", "c-0", "d-0"]
    assert reasons(decided)["b-0"] == "DisruptionBudget"


def test_nothing_is_evicted_while_the_injector_does_not_answer():
    pods = [replica("a-0"), replica("b-0")]
    answers = [("StatefulSet/a", "down", ""), *injecting("StatefulSet/b")]
    decided = decide(snapshot(*pods, answers=answers))

    assert not decided.evict
    assert reasons(decided) == {"a-0": "MeshDown", "b-0": "MeshDown"}
    assert decided.wake_at == NOW + 5
    then = decide(snapshot(*pods, answers=answers), now=decided.wake_at)
    assert [each.name for each in then.ask] == ["a-0", "b-0"]


def test_a_replacement_that_would_be_refused_keeps_the_pod():
    decided = decide(snapshot(replica(), answers=[("StatefulSet/a", "refused", "")]))

    assert not decided.evict
    assert reasons(decided) == {"a-0": "ReplacementRefused"}
    assert [each.message for each in decided.summary.troubles] == ["why"]
    assert decided.wake_at == NOW + 30


def test_a_workload_that_the_injector_skips_is_guarded_without_an_eviction():
    decided = decide(snapshot(replica(), answers=[("StatefulSet/a", "skips", "")]))

    assert not decided.evict
    assert decided.memory.holds["StatefulSet/a"].until == NOW + 600
    assert [each.reason for each in decided.summary.troubles] == ["InjectorSkips"]


def test_a_pause_is_waited_for_and_takes_no_slot():
    remembered = memory.Memory(holds={"StatefulSet/a": a_budget()}, proven=PROVEN)
    answers = injecting("StatefulSet/a", "StatefulSet/b")
    shot = snapshot(replica("a-0"), replica("b-0"), answers=answers)
    decided = decide(shot, remembered, max_unavailable="1")

    assert [each.name for each in decided.evict] == ["b-0"]
    assert reasons(decided)["a-0"] == "DisruptionBudget"
    assert decided.memory.holds == {"StatefulSet/a": a_budget()}


def test_a_pause_lasts_to_its_end_though_no_pod_is_missing_for_a_moment():
    remembered = memory.Memory(holds={"StatefulSet/a": a_budget()}, proven=PROVEN)

    decided = decide(snapshot(replica(in_mesh=True)), remembered)
    assert decided.summary.troubles == ()
    again = decide(snapshot(replica(), answers=injecting("StatefulSet/a")), decided.memory)
    assert (again.ask, again.evict) == ((), ())

    ended = memory.Memory(holds={"StatefulSet/a": a_budget(until=NOW)}, proven=PROVEN)
    assert decide(snapshot(replica(in_mesh=True)), ended).memory.holds == {}


def test_what_is_said_of_a_pause_does_not_change_while_it_is_tried_again():
    remembered = memory.Memory(holds={"StatefulSet/a": a_budget()}, proven=PROVEN)
    shot = snapshot(replica(), answers=injecting("StatefulSet/a"))
    waiting = decide(shot, remembered).summary
    trouble = answers.Trouble("StatefulSet/a", "DisruptionBudget", "m", passing=True)
    assert waiting.troubles == (trouble,)
    assert waiting.converging == 0

    later = memory.Memory(holds={"StatefulSet/a": a_budget(until=NOW)}, proven=PROVEN)
    tried = decide(shot, later)
    assert [each.name for each in tried.evict] == ["a-0"]
    assert tried.summary == waiting

    going = snapshot(replica(terminating=True), desired={"StatefulSet/a": 1})
    done = decide(going, tried.memory).summary
    assert (done.troubles, done.converging) == ((), 1)


@pytest.mark.parametrize("mode", ["manual", "off"])
def test_without_auto_nothing_happens_unasked(mode):
    decided = decide(snapshot(replica(), answers=injecting("StatefulSet/a")), mode=mode)

    assert not decided.evict
    assert not decided.ask
    assert decided.summary.proposed == 1


def asked(*uids, **values):
    request = memory.Request(id="1", at=NOW, uids=uids)
    return memory.Memory(
        request=request, answered="1", **{"proven": (*PROVEN, "request 1"), **values}
    )


def test_what_is_asked_for_is_done_in_manual_mode_and_then_forgotten():
    shot = snapshot(replica(), answers=injecting("StatefulSet/a"))
    decided = decide(shot, asked("uid-a-0", "elsewhere"), mode="manual")
    assert [each.name for each in decided.evict] == ["a-0"]
    assert decided.memory.request.uids == ("uid-a-0",)

    done = decide(snapshot(replacement()), decided.memory, mode="manual")
    assert done.memory.request is None
    assert done.memory.rounds == {}


def test_a_pod_with_a_sidecar_is_renewed_when_asked_for():
    shot = snapshot(replica(in_mesh=True), answers=injecting("StatefulSet/a"))

    assert [each.name for each in decide(shot, asked("uid-a-0")).evict] == ["a-0"]
    assert not decide(shot).evict


def test_asking_lifts_an_older_guard_but_not_the_one_that_follows():
    shot = snapshot(replica(), answers=injecting("StatefulSet/a"))
    older = asked("uid-a-0", holds=held().holds)
    assert decide(shot, older).evict

    for since in (NOW, NOW + 1):
        decided = decide(shot, asked("uid-a-0", holds=held(since=since).holds))
        assert not decided.evict
        assert decided.memory.request is None


def test_a_pod_that_is_not_ours_is_not_evicted_even_when_asked_for():
    shot = snapshot(replica(fixable=False), answers=injecting("StatefulSet/a"))

    assert not decide(shot, asked("uid-a-0")).evict


def test_the_summary_counts_what_we_may_fix_apart_from_what_is_only_reported():
    pods = [
        replica("a-0"),
        replica("b-0", in_mesh=True),
        replica("c-0", fixable=False, reason="BarePod"),
        replica("d-0", wanted=False),
        replica("e-0", in_mesh=True, terminating=True),
    ]
    summary = decide(snapshot(*pods)).summary

    assert (summary.eligible, summary.in_mesh, summary.reported) == (2, 1, 1)
    assert summary.converging == 1


def test_pods_with_another_proxy_are_counted_unless_they_go_away():
    pods = [
        replica("a-0", in_mesh=True, stale="1.29"),
        replica("b-0", in_mesh=True, stale="1.29", terminating=True),
        replica("c-0", in_mesh=True),
        replica("d-0", in_mesh=True, stale="1.29"),
    ]
    assert decide(snapshot(*pods)).summary.stale == 2


def test_a_workload_that_is_scaled_to_nothing_is_left_to_go():
    shot = snapshot(replica(), desired={"StatefulSet/a": 0}, answers=injecting("StatefulSet/a"))

    assert reasons(decide(shot)) == {"a-0": "Changing"}


def test_pods_are_counted_by_reason():
    pods = [replica("a-0", ready_since=None), replica("b-0", ready_since=None)]

    assert decide(snapshot(*pods)).reasons() == {"NotReady": 2}


@pytest.mark.parametrize(("age", "want"), [(30, []), (90, ["a-0"])])
def test_a_pod_that_never_came_up_is_replaced_when_asked_for(age, want):
    shot = snapshot(
        replica(ready_since=None, created=NOW - age), answers=injecting("StatefulSet/a")
    )
    decided = decide(shot, asked("uid-a-0"))

    assert [each.name for each in decided.evict] == want
