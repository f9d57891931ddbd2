"""One pod of the model first, and none while a replacement is not right."""

import pytest
from sidecar_lifecycle.decide.convergence import facts, memory

from integrator_contract.answers import Trouble
from tests.unit.cases import cases
from tests.unit.workload.convergence.plan_world import (
    NOW,
    PROVEN,
    a_round,
    asked,
    crashing,
    decide,
    evicted,
    injecting,
    look,
    reasons,
    remembering,
    replacement,
    replica,
    snapshot,
)

NOTHING = memory.Memory()
YOUNG = {"ready_since": None, "unready_since": NOW - 599}
STUCK = {"ready_since": None, "unready_since": NOW - 600}


def of(workload, number=0, **values):
    name = f"{workload.partition('/')[2]}-{number}"
    return replica(name, workload=workload, **values)


def first(*pods, **values):
    return look(*pods, remembered=NOTHING, max_unavailable="100%", **values)


def test_of_a_whole_model_a_single_pod_is_evicted_and_what_it_proves_is_noted():
    pods = [of(f"Deployment/{name}") for name in "abcdef"]
    decided = first(*pods)

    assert evicted(decided) == ["a-0"]
    assert decided.memory.rounds["Deployment/a"].proves == "sidecar"
    assert decided.memory.proven == ()
    assert set(reasons(decided).values()) == {"Replacing", "Queued"}


def test_a_single_workload_is_asked_about_before():
    decided = first(of("Deployment/a"), of("Deployment/b"), answers=())

    assert asked(decided) == ["a-0"]


@cases(
    ("pods", "want"),
    replicas=([of("Deployment/a"), of("DaemonSet/b"), of("DaemonSet/b", 1)], "b-1"),
    deployment=([of("DaemonSet/a"), of("StatefulSet/b"), of("Deployment/c")], "c-0"),
    statefulset=([of("DaemonSet/a"), of("StatefulSet/b")], "b-0"),
    by_name=([of("Deployment/b"), of("Deployment/a")], "a-0"),
    ready=([of("Deployment/a", **STUCK), of("DaemonSet/b")], "b-0"),
    ready_before_crash_looping=(
        [of("Deployment/a", crash_looping=True, **STUCK), of("DaemonSet/b")],
        "b-0",
    ),
)
def test_the_first_is_a_ready_pod_of_the_workload_that_can_spare_it_best(pods, want):
    assert evicted(first(*pods)) == [want]


@cases(
    "pods",
    coming_up=[of("Deployment/a", **YOUNG)],
    crash_looping_for_less_than_ten_minutes=[
        of("Deployment/a", crash_looping=True, created=NOW - 599, **STUCK)
    ],
    another_is_about_to_be_ready_for_a_minute=[
        of("Deployment/a", **STUCK),
        of("Deployment/b", ready_since=NOW - 59),
    ],
)
def test_while_no_pod_has_been_ready_for_a_minute_the_first_is_waited_for(pods):
    decided = first(*pods)

    assert not decided.evict
    assert not decided.ask


def test_after_ten_minutes_without_a_ready_pod_the_best_of_the_others_is_the_first():
    decided = first(of("DaemonSet/a", **STUCK), of("Deployment/b", **STUCK))

    assert evicted(decided) == ["b-0"]


def test_the_next_workload_is_tried_where_the_first_would_be_refused():
    answers = [("Deployment/a", "refused", ""), *injecting("Deployment/b")]
    decided = first(of("Deployment/a"), of("Deployment/b"), answers=answers)

    assert evicted(decided) == ["b-0"]
    assert reasons(decided)["a-0"] == "ReplacementRefused"


def proving(*pods, desired=None, **values):
    """The first pod of `a` has been evicted, `b` waits."""
    other = of("Deployment/b")
    shot = snapshot(
        *pods,
        other,
        desired={"StatefulSet/a": 1, **(desired or {})},
        answers=injecting("Deployment/b"),
        **values.pop("model", {}),
    )
    rounds = {"StatefulSet/a": a_round(**{"proves": "sidecar", **values})}
    return decide(shot, memory.Memory(rounds=rounds), max_unavailable="100%")


@pytest.mark.parametrize(("seconds", "done"), [(9, False), (10, True)])
def test_the_others_follow_when_the_first_has_stayed_ready(seconds, done):
    decided = proving(replacement(ready_since=NOW - seconds))

    assert decided.memory.proven == ("sidecar",) * done
    assert evicted(decided) == ["b-0"] * done
    if not done:
        assert reasons(decided)["b-0"] == "FirstPod"


@pytest.mark.parametrize("fault", ["missing", "order"])
def test_no_other_pod_follows_a_first_that_is_no_better(fault):
    bad = replacement(fault=fault, ready_since=NOW - 60)
    other = of("Deployment/b")
    shot = snapshot(bad, other, answers=[("StatefulSet/a", "injects", "new")])
    rounds = {"StatefulSet/a": a_round(proves="sidecar")}
    decided = decide(shot, memory.Memory(rounds=rounds))

    assert not decided.evict
    assert decided.memory.proven == ()
    assert reasons(decided)["b-0"] == "FirstPod"
    later = decide(shot, decided.memory)
    assert (later.evict, later.ask) == ([], [])


def test_a_first_that_is_gone_or_left_alone_proves_nothing_and_the_next_is_tried():
    decided = proving(replacement(fixable=False, ready_since=None))

    assert decided.memory.proven == ()
    assert evicted(decided) == ["b-0"]
    assert decided.memory.rounds["Deployment/b"].proves == "sidecar"


def test_another_revision_is_proven_for_itself():
    pods = [of("Deployment/a"), of("Deployment/b")]
    shot = snapshot(*pods, answers=injecting("Deployment/a", "Deployment/b"), mesh="sidecar 1-31")
    decided = decide(shot, memory.Memory(proven=PROVEN))

    assert evicted(decided) == ["a-0"]
    assert decided.memory.proven == PROVEN


def test_a_request_to_restart_pods_of_the_mesh_has_a_first_of_its_own():
    pods = [of(f"Deployment/{name}", in_mesh=True) for name in "abc"]
    request = memory.Request(id="7", at=NOW, uids=tuple(each.uid for each in pods))
    remembered = memory.Memory(request=request, answered="7", proven=PROVEN)
    decided = look(*pods, remembered=remembered, max_unavailable="100%")

    assert evicted(decided) == ["a-0"]
    new = of("Deployment/a", 1, in_mesh=True, ready_since=NOW - 10)
    after = look(new, *pods[1:], remembered=decided.memory)
    assert after.memory.proven == ("request 7", "sidecar")
    assert evicted(after) == ["b-0", "c-0"]
    done = decide(snapshot(new), memory.Memory(proven=after.memory.proven))
    assert done.memory.proven == PROVEN


HANGS = facts.Ailment("main", "ImagePullBackOff", "no such image", hangs=True)
STARTS = facts.Ailment("main", "ContainerCreating")


@pytest.mark.parametrize("proves", ["sidecar", ""], ids=["first", "later"])
def test_a_replacement_that_cannot_start_stops_further_evictions_at_once(proves):
    bad = replacement(ready_since=None, ailments=(HANGS,))
    decided = proving(bad, proves=proves)

    message = "the replacement a-0 cannot start: main: ImagePullBackOff: no such image"
    trouble = Trouble("StatefulSet/a", "ReplacementHangs", message, "a-0")
    assert decided.summary.troubles == (trouble,)
    assert (decided.evict, decided.ask) == ([], [])
    assert reasons(decided) == {"b-0": "ReplacementHangs"}
    assert decided.summary.converging == 1


def test_evictions_go_on_by_themselves_once_the_replacement_is_ready():
    stuck = proving(replacement(ready_since=None, ailments=(HANGS,)), since=NOW - 3600)
    shot = snapshot(replacement(), of("Deployment/b"), answers=injecting("Deployment/b"))
    decided = decide(shot, stuck.memory)

    assert evicted(decided) == ["b-0"]
    assert decided.summary.troubles == ()


@pytest.mark.parametrize("proves", ["sidecar", ""], ids=["first", "later"])
def test_nothing_else_is_evicted_while_a_replacement_starts(proves):
    decided = proving(replacement(ready_since=None, ailments=(STARTS,)), proves=proves)

    trouble = ("ReplacementStarting", "waiting for a-0 to be Ready", "a-0", True)
    (found,) = decided.summary.troubles
    assert (found.reason, found.message, found.pod, found.passing) == trouble
    assert (decided.evict, decided.ask) == ([], [])


def test_after_ten_minutes_a_replacement_that_starts_is_reported_with_what_it_waits_for():
    starting = replacement(ready_since=None, ailments=(STARTS,))
    (trouble,) = proving(starting, since=NOW - 600).summary.troubles

    assert (trouble.reason, trouble.passing) == ("ReplacementNotReady", False)
    assert trouble.message.endswith("is not Ready after 10 minutes: main: ContainerCreating")


def test_a_replacement_that_is_refused_stops_further_evictions_with_the_words_of_the_author():
    refused = {"StatefulSet/a": 'webhook "v" refuses: no'}
    decided = proving(model={"refused": refused})

    (trouble,) = decided.summary.troubles
    assert (trouble.reason, trouble.pod) == ("ReplacementHangs", "")
    assert trouble.message == 'a new pod of StatefulSet/a is refused: webhook "v" refuses: no'
    assert reasons(decided) == {"b-0": "ReplacementHangs"}


def test_a_pod_that_was_not_ready_is_replaced_rightly_when_it_is_no_worse():
    proxy = facts.Ailment("istio-proxy", "running and not Ready")
    before = {"was_ready": False, "ready_before": 0, "broken": ("main",)}
    worse = proving(replacement(ready_since=None, ailments=(*crashing(), proxy)), **before)
    assert worse.memory.proven == ()
    assert worse.summary.troubles[0].passing

    as_before = proving(replacement(ready_since=None, ailments=crashing()), **before)
    assert as_before.memory.proven == ("sidecar",)


def test_what_was_not_ready_is_remembered_without_the_proxy():
    ailments = (*crashing(), facts.Ailment("istio-proxy", "running and not Ready"))
    decided = first(of("Deployment/a", ailments=ailments, created=NOW - 900, **STUCK))

    assert decided.memory.rounds["Deployment/a"].broken == ("main",)


def test_a_workload_with_a_sidecar_that_is_not_ready_loses_no_further_pod():
    started = of("Deployment/a", 0, in_mesh=True, ready_since=None)
    decided = look(started, of("Deployment/a", 1), of("Deployment/a", 2))

    assert not decided.evict
    assert reasons(decided) == {"a-1": "NotReady", "a-2": "NotReady"}


def test_nothing_is_evicted_where_istiod_does_not_serve_the_namespace():
    shot = snapshot(of("Deployment/a"), answers=injecting("Deployment/a"), is_served=False)
    decided = decide(shot, NOTHING)

    assert (decided.evict, decided.ask) == ([], [])
    assert reasons(decided) == {"a-0": "NotServed"}
    (trouble,) = decided.summary.troubles
    assert (trouble.reason, trouble.workload) == ("NotServed", "")


@pytest.mark.parametrize(
    ("verdict", "reason", "retry", "revision"),
    [
        ("refused", "ReplacementRefused", 30, ""),
        ("cannot-start", "CannotStart", 30, ""),
        ("wrong-order", "WrongOrder", 30, ""),
        ("skips", "InjectorSkips", 600, "r1"),
    ],
)
def test_a_workload_whose_replacement_would_not_be_right_is_named_and_the_others_go_on(
    verdict, reason, retry, revision
):
    pods = [of("Deployment/a"), of("Deployment/b")]
    answers = [("Deployment/a", verdict, ""), *injecting("Deployment/b")]
    decided = look(*pods, answers=answers)

    assert evicted(decided) == ["b-0"]
    (trouble,) = decided.summary.troubles
    assert (trouble.workload, trouble.reason) == ("Deployment/a", reason)
    assert (trouble.message, trouble.passing) == ("why", False)
    assert reasons(decided)["a-0"] == reason
    hold = decided.memory.holds["Deployment/a"]
    assert (hold.since, hold.until, hold.revision) == (NOW, NOW + retry, revision)
    assert look(*pods, answers=answers, remembered=decided.memory).ask == []


@pytest.mark.parametrize(
    ("verdict", "force", "want"),
    [
        ("refused", True, ["a-0"]),
        ("refused", False, []),
        ("cannot-start", True, []),
        ("down", True, []),
    ],
)
def test_an_operator_can_insist_on_an_eviction_whose_replacement_may_be_refused(
    verdict, force, want
):
    pod = of("Deployment/a")
    request = memory.Request(id="7", at=NOW, uids=(pod.uid,), force=force)
    hold = memory.Hold(reason="ReplacementRefused", message="m", since=NOW - 9, until=NOW + 9)
    remembered = memory.Memory(
        request=request, answered="7", holds={"Deployment/a": hold}, proven=PROVEN
    )
    decided = look(pod, answers=[("Deployment/a", verdict, "")], remembered=remembered)

    assert evicted(decided) == want


def outside(name="modeloperator", reason="SidecarUnwanted", **values):
    return of(
        f"Deployment/{name}",
        wanted=False,
        fault="unwanted",
        reason=reason,
        message="it has a sidecar",
        **values,
    )


def test_a_pod_outside_of_the_mesh_is_replaced_alone_once_it_would_come_without_a_sidecar():
    pods = [outside(), of("Deployment/a")]
    held = look(*pods)
    assert evicted(held) == ["a-0"]
    assert reasons(held)["modeloperator-0"] == "SidecarAgain"

    answers = [("Deployment/modeloperator", "skips", ""), *injecting("Deployment/a")]
    for remembered in (NOTHING, memory.Memory(proven=PROVEN)):
        decided = look(*pods, answers=answers, remembered=remembered)
        assert evicted(decided) == ["modeloperator-0"]
        assert decided.memory.rounds["Deployment/modeloperator"].proves == ""
        assert (decided.summary.eligible, decided.summary.unwanted) == (1, 1)


def test_a_pod_outside_of_the_mesh_waits_for_another_replacement():
    shot = snapshot(
        outside(),
        replacement(ready_since=None),
        desired={"StatefulSet/a": 1},
        answers=[("Deployment/modeloperator", "skips", "")],
    )
    decided = decide(shot, remembering())

    assert not decided.evict
    assert reasons(decided) == {"modeloperator-0": "ReplacementStarting"}


def test_an_excluded_pod_with_a_sidecar_is_replaced_only_when_asked_for():
    pod = outside("minio", "Excluded")
    answers = [("Deployment/minio", "skips", "")]
    decided = look(pod, answers=answers)
    assert not decided.evict
    assert reasons(decided) == {"minio-0": "Excluded"}
    assert decided.summary.unwanted == 1

    request = memory.Request(id="7", at=NOW, uids=(pod.uid,))
    remembered = memory.Memory(request=request, answered="7", proven=PROVEN)
    assert evicted(look(pod, answers=answers, remembered=remembered)) == ["minio-0"]


def test_a_pod_with_the_wrong_first_container_is_no_pod_of_the_mesh_and_is_replaced():
    pod = of("StatefulSet/a", fault="order", reason="WrongOrder", message="not charm")
    decided = look(pod)
    assert evicted(decided) == ["a-0"]
    assert (decided.summary.in_mesh, decided.summary.eligible) == (0, 1)

    by_hand = look(pod, mode="manual")
    assert not by_hand.evict
    trouble = Trouble("StatefulSet/a", "WrongOrder", "not charm", "a-0")
    assert by_hand.summary.troubles == (trouble,)
