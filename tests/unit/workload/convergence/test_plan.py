"""Decisions of the plan in single situations: evicted pods, dry runs, and reasons."""

import pytest
from sidecar_lifecycle.decide.convergence import facts, memory

from integrator_contract.answers import Trouble
from tests.unit.cases import cases, row
from tests.unit.workload.convergence.plan_world import (
    NOW,
    PROVEN,
    a_budget,
    a_hold,
    a_round,
    asked,
    crashing,
    decide,
    evicted,
    held,
    injecting,
    look,
    reasons,
    remembering,
    replacement,
    replica,
    snapshot,
)

SET = "StatefulSet/a"
NOTHING = memory.Memory()
FIRST = {"remembered": NOTHING, "max_unavailable": "100%"}
"""No pod of the model has been replaced yet."""
WORTHLESS = {**FIRST, "remembered": memory.Memory(holds=held().holds)}
"""The only pod that was replaced has no sidecar either."""
YOUNG = {"ready_since": None, "unready_since": NOW - 599}
STUCK = {"ready_since": None, "unready_since": NOW - 600}
STARTING = {"ready_since": None}
LOST = {"fault": "order", "reason": "WrongOrder", "message": "not charm", "ready_since": None}


def of(workload, number=0, **values):
    name = f"{workload.partition('/')[2]}-{number}"
    return replica(name, workload=workload, **values)


def sets(names, **values):
    return [replica(f"{name}-0", **values) for name in names]


def paused(until=NOW + 7, workload=SET):
    return memory.Memory(holds={workload: a_budget(until)}, proven=PROVEN)


def requested(*uids, force=False, **values):
    request = memory.Request(id="1", at=NOW, uids=uids, force=force)
    proven = (*PROVEN, "request 1")
    return memory.Memory(request=request, answered="1", **{"proven": proven, **values})


def outside(name="modeloperator", reason="SidecarUnwanted"):
    values = {"wanted": False, "fault": "unwanted", "message": "it has a sidecar"}
    return of(f"Deployment/{name}", reason=reason, **values)


A, B = of("Deployment/a"), of("Deployment/b")
WRONG = replica(**{**LOST, "ready_since": NOW - 300})
UNNAMED = [replica(f"a-{letter}", workload="Deployment/a") for letter in ("x9", "y1")]
INSISTED = {"remembered": requested("uid-a-0", "uid-a-1", force=True, proven=())}
ELEVEN = [replica(f"a-{number}") for number in range(11)]
THREE = [replica(f"a-{number}") for number in range(3)]
DOWN_0 = replica("a-0", in_mesh=True, **YOUNG)
DOWN_1 = replica("a-1", in_mesh=True, **YOUNG)
HANGS = facts.Ailment("main", "ImagePullBackOff", "no such image", hangs=True)
BROKEN = replica("a-0", ready_since=None, ailments=(HANGS, *crashing()))
DOWN = [*injecting("StatefulSet/b"), (SET, "MeshDown", "")]
LEFT_OUT = ("Deployment/modeloperator", "InjectorSkips", "")
MINIO = {"trials": [("Deployment/minio", "InjectorSkips", "")]}
REFUSED = memory.Hold(reason="ReplacementRefused", message="m", since=NOW - 9, until=NOW + 9)
MODELOPERATOR = {"trials": [LEFT_OUT, *injecting("Deployment/a")]}


def trial(why, force):
    """A request to replace a pod whose replacement was refused before."""
    remembered = requested("uid-a-0", force=force, holds={"Deployment/a": REFUSED})
    return {"trials": [("Deployment/a", why, "")], "remembered": remembered}


@cases(
    ("pods", "options", "evicts", "asks", "why"),
    {"options": {}, "evicts": [], "asks": [], "why": {}},
    first_look=([replica()], {"trials": ()}, [], ["a-0"], {}),
    old_answer=([replica()], {"now": NOW + 5}, [], ["a-0"], {}),
    answered=([replica()], {}, ["a-0"], [], {"a-0": "Replacing"}),
    ready_for_a_minute=([replica(ready_since=NOW - 60)], {}, ["a-0"], [], {}),
    ready_just_now=([replica(ready_since=NOW - 10)], {}, [], [], {"a-0": "NotSettled"}),
    starting=([replica(ready_since=None)], {}, [], [], {"a-0": "NotReady"}),
    not_ours=([replica(fixable=False, reason="BarePod")], {}, [], [], {"a-0": "BarePod"}),
    scaled_to_nothing=([replica()], {"desired": {SET: 0}}, [], [], {"a-0": "Changing"}),
    crash_looping=([BROKEN], {}, ["a-0"], [], {}),
    pulling=(
        [replica(ready_since=None, ailments=(HANGS,))],
        *({}, [], [], {"a-0": "NotReady"}),
    ),
    highest_ordinal=(ELEVEN, {}, ["a-10"], [], {"a-0": "Replacing"}),
    broken_one_of_several=([BROKEN, *ELEVEN[1:]], {}, ["a-0"], [], {}),
    only_ready_one_of_several=row(
        pods=[replica("a-0"), replica("a-1", ready_since=None)], why={"a-0": "NotReady"}
    ),
    # A Ready pod goes only while all pods of its workload are there and Ready.
    one_of_three_is_not_ready=([*THREE[1:], DOWN_0], {}, [], [], {"a-2": "NotReady"}),
    one_of_three_is_missing=(THREE[1:], {"desired": {SET: 3}}, [], [], {"a-2": "Changing"}),
    one_of_three_is_missing_and_insisted_on=row(
        pods=THREE[1:],
        options={"desired": {SET: 3}, "remembered": requested("uid-a-2", force=True)},
        why={"a-2": "Changing"},
    ),
    broken_one_beside_a_missing_one=([BROKEN], {"desired": {SET: 2}}, [], [], {}),
    one_of_three_terminates=row(
        pods=[*THREE[1:], replica("a-0", terminating=True, ready_since=None)],
        why={"a-2": "Changing"},
    ),
    not_ready_for_ten_minutes_before_ready_ones=row(
        pods=[THREE[2], *(replica(f"a-{n}", **STUCK) for n in (0, 1))], evicts=["a-1"]
    ),
    beside_a_pod_that_is_not_ready_and_insisted_on=row(
        pods=[*THREE[1:], DOWN_0],
        options={"remembered": requested("uid-a-1", force=True)},
        evicts=["a-1"],
    ),
    beside_a_pod_that_is_not_ready_and_asked_for=row(
        pods=[*THREE[1:], DOWN_0],
        options={"remembered": requested("uid-a-1", "uid-a-2")},
        why={"a-2": "NotReady"},
    ),
    beside_a_pod_that_is_not_ready_and_another_is_insisted_on=row(
        pods=[*THREE[1:], DOWN_0, replica("b-0")],
        options={"remembered": requested("uid-b-0", force=True)},
        evicts=["b-0"],
        why={"a-2": "NotReady"},
    ),
    highest_name_without_an_ordinal=(UNNAMED, {}, ["a-y1"], [], {}),
    # Kubernetes would not recreate these before a lower ordinal is Ready.
    in_order=row(
        pods=[replica("a-0", in_mesh=True, **STUCK), *THREE[1:]],
        options={"ordered": [SET], "remembered": requested("uid-a-1", "uid-a-2", force=True)},
        why={"a-1": "OrderedReady", "a-2": "OrderedReady"},
    ),
    in_order_and_broken=(
        [replica("a-0", in_mesh=True, **STUCK), replica("a-1", **STUCK)],
        *({"ordered": [SET]}, [], [], {"a-1": "OrderedReady"}),
    ),
    in_order_and_two_are_broken=row(
        pods=[replica("a-0", **STUCK), replica("a-1", **STUCK), THREE[2]],
        options={"ordered": [SET]},
        evicts=["a-0"],
    ),
    no_more_than_allowed_at_once=(
        *(sets("abc"), {"max_unavailable": "2"}, ["a-0", "b-0"], [], {"c-0": "Queued"}),
    ),
    share_of_the_workloads_that_run=row(
        pods=sets("abcde"),
        options={
            "desired": {f"Deployment/{n}": int(n in (8, 9)) for n in range(20)},
            "max_unavailable": "50%",
        },
        evicts=["a-0", "b-0", "c-0", "d-0"],
    ),
    all_in_one_wave_but_those_whose_budget_forbids_it=(
        sets("abcd"),
        {"remembered": paused(workload="StatefulSet/b"), "max_unavailable": "100%"},
        *(["a-0", "c-0", "d-0"], [], {"b-0": "DisruptionBudget"}),
    ),
    pause_takes_no_slot=(
        *(sets("ab"), {"remembered": paused(), "max_unavailable": "1"}),
        *(["b-0"], [], {"a-0": "DisruptionBudget"}),
    ),
    injector_is_down=(
        sets("ab"),
        {"trials": DOWN},
        [],
        [],
        dict.fromkeys(("a-0", "b-0"), "MeshDown"),
    ),
    injector_was_down=(sets("ab"), {"trials": DOWN, "now": NOW + 5}, [], ["a-0", "b-0"], {}),
    while_another_is_replaced=row(
        pods=[replica(terminating=True), replica("b-0")],
        options={"remembered": remembering()},
        why={"b-0": "Queued"},
    ),
    while_its_replacement_is_missing=row(
        pods=THREE[1:],
        options={
            "desired": {SET: 3},
            "remembered": remembering(known=("uid-a-0", "uid-a-1", "uid-a-2")),
        },
        why={"a-1": "Replacing", "a-2": "Replacing"},
    ),
    broken_before_the_only_ready_one=row(
        pods=[of("DaemonSet/a", **STUCK), of("Deployment/b")],
        options={"max_unavailable": "1"},
        evicts=["a-0"],
    ),
    hold_is_over=([replica()], {"remembered": held(until=NOW)}, ["a-0"], [], {}),
    sidecar_beside_it_is_not_ready=row(
        pods=[of("Deployment/a", in_mesh=True, ready_since=None), of("Deployment/a", 1)],
        why={"a-1": "NotReady"},
    ),
    forbids_disruption=(
        [replica(forbids="karpenter.sh/do-not-disrupt"), replica("b-0")],
        *({}, ["b-0"], [], {"a-0": "NotAsked"}),
    ),
    forbids_disruption_and_asked_for=(
        [replica(forbids="karpenter.sh/do-not-disrupt")],
        *({"remembered": requested("uid-a-0")}, ["a-0"], [], {}),
    ),
    forbids_disruption_and_is_lost=row(
        pods=[replica(forbids="karpenter.sh/do-not-disrupt", **LOST), replica("a-1")],
        why={"a-0": "WrongOrder", "a-1": "NotReady"},
    ),
    lost_before_broken=(
        [replica("a-0", **LOST), replica("a-1", **STUCK)],
        *({}, ["a-0"], [], {}),
    ),
    lost_beside_a_missing_one=([replica(**LOST)], {"desired": {SET: 2}}, ["a-0"], [], {}),
    in_wrong_order_and_ready_beside_a_missing_one=row(
        pods=[WRONG],
        options={"desired": {SET: 2}},
        why={"a-0": "WrongOrder"},
    ),
    # Requests.
    asked_for_in_manual_mode=row(
        pods=[replica()],
        options={"remembered": requested("uid-a-0", "elsewhere"), "mode": "manual"},
        evicts=["a-0"],
    ),
    in_the_mesh=([replica(in_mesh=True)], {}, [], [], {}),
    in_the_mesh_and_asked_for=row(
        pods=[replica(in_mesh=True)], options={"remembered": requested("uid-a-0")}, evicts=["a-0"]
    ),
    never_came_up_and_asked_for=(
        [replica(ready_since=None, created=NOW - 60)],
        *({"remembered": requested("uid-a-0")}, ["a-0"], [], {}),
    ),
    crash_loops_and_asked_for=row(
        pods=[replica(ready_since=None, crash_looping=True, created=NOW - 30)],
        options={"remembered": requested("uid-a-0")},
        evicts=["a-0"],
    ),
    comes_up_and_asked_for=row(
        pods=[replica(ready_since=None, created=NOW - 59)],
        options={"remembered": requested("uid-a-0")},
    ),
    not_ours_and_asked_for=row(
        pods=[replica(fixable=False)], options={"remembered": requested("uid-a-0")}
    ),
    held_before_it_was_asked_for=row(
        pods=[replica()],
        options={"remembered": requested("uid-a-0", holds=held().holds), "mode": "manual"},
        evicts=["a-0"],
    ),
    held_before_another_pod_of_it_was_asked_for=row(
        pods=[replica(), replica("a-1", in_mesh=True)],
        options={"remembered": requested("uid-a-1", holds=held().holds), "mode": "manual"},
        evicts=["a-1"],
    ),
    refused_and_insisted_on=([A], trial("ReplacementRefused", force=True), ["a-0"], [], {}),
    refused=([A], trial("ReplacementRefused", force=False), [], [], {}),
    can_not_start_and_insisted_on=([A], trial("CannotStart", force=True), [], [], {}),
    injector_is_down_and_insisted_on=([A], trial("MeshDown", force=True), [], [], {}),
    # The first pod of a model.
    first_of_a_whole_model=(
        *([of(f"Deployment/{n}") for n in "abc"], FIRST, ["a-0"], []),
        {"a-0": "Replacing", "b-0": "Queued", "c-0": "Queued"},
    ),
    first_is_asked_about_before=([A, B], {**FIRST, "trials": ()}, [], ["a-0"], {}),
    first_with_replicas=(*([A, of("DaemonSet/b"), of("DaemonSet/b", 1)], FIRST, ["b-1"], [], {}),),
    first_a_deployment=(
        *([of("DaemonSet/a"), of("StatefulSet/b"), of("Deployment/c")], FIRST, ["c-0"], [], {}),
    ),
    first_a_statefulset=([of("DaemonSet/a"), of("StatefulSet/b")], FIRST, ["b-0"], [], {}),
    first_by_name=([B, A], FIRST, ["a-0"], [], {}),
    first_was_no_better=(sets("ab"), WORTHLESS, [], [], {"b-0": "FirstPod"}),
    first_was_no_better_and_is_scaled_to_nothing=row(
        pods=sets("b"), options={**WORTHLESS, "desired": {SET: 0}}, evicts=["b-0"]
    ),
    first_was_no_better_and_is_away=row(
        pods=sets("b"), options={**WORTHLESS, "desired": {SET: 1}}, why={"b-0": "FirstPod"}
    ),
    first_after_ten_minutes_without_a_ready_pod=(
        [of("DaemonSet/a", **STUCK), of("Deployment/b", **STUCK)],
        *(FIRST, ["b-0"], [], {}),
    ),
    first_would_be_refused=(
        [A, B],
        {
            **FIRST,
            "trials": [("Deployment/a", "ReplacementRefused", ""), *injecting("Deployment/b")],
        },
        *(["b-0"], [], {"a-0": "ReplacementRefused"}),
    ),
    first_is_alone_and_after_none=row(
        pods=[of("Deployment/a", **LOST), B],
        options=FIRST,
        evicts=["a-0"],
        why={"b-0": "Queued"},
    ),
    first_is_ready_where_a_broken_one_is_insisted_on=row(
        pods=[replica("a-0", **STUCK), replica("a-1"), replica("a-2", **STUCK)],
        options=INSISTED,
        evicts=["a-1"],
    ),
    first_is_not_settled_where_a_broken_one_is_insisted_on=row(
        pods=[replica("a-0", **STUCK), replica("a-1", ready_since=NOW - 9)],
        options=INSISTED,
        why={"a-0": "NotSettled"},
    ),
    first_beside_one_of_the_mesh_that_is_asked_for=row(
        pods=[of("Deployment/a", **STUCK), of("Deployment/b", in_mesh=True)],
        options={"remembered": requested("uid-b-0", proven=())},
        evicts=["a-0"],
    ),
    first_of_a_request_waits_while_others_join=row(
        pods=[A, of("Deployment/b", in_mesh=True), of("Deployment/c")],
        options={"remembered": requested("uid-b-0", proven=PROVEN), "max_unavailable": "3"},
        evicts=["a-0", "c-0"],
    ),
    another_could_not_be_evicted=row(
        pods=sets("ab"),
        options={"remembered": memory.Memory(holds=held(reason="Forbidden").holds)},
        evicts=["b-0"],
    ),
    another_is_tried_again_soon=row(
        pods=sets("ab"),
        options={
            "remembered": memory.Memory(holds=held(reason="WrongOrder", until=NOW + 9).holds)
        },
        evicts=["b-0"],
    ),
    # While no pod has been ready for a minute, the first is waited for.
    first_comes_up=([of("Deployment/a", **YOUNG)], FIRST, [], [], {}),
    first_crash_loops_for_less_than_ten_minutes=row(
        pods=[of("Deployment/a", crash_looping=True, created=NOW - 599, **STUCK)], options=FIRST
    ),
    another_is_about_to_be_ready_for_a_minute=row(
        pods=[of("Deployment/a", **STUCK), of("Deployment/b", ready_since=NOW - 59)], options=FIRST
    ),
    # Pods with a sidecar outside of the mesh.
    outside_would_come_with_a_sidecar_again=row(
        pods=[outside(), A], evicts=["a-0"], why={"modeloperator-0": "SidecarUnwanted"}
    ),
    outside_goes_alone=([outside(), A], MODELOPERATOR, ["modeloperator-0"], [], {}),
    outside_goes_before_the_first=row(
        pods=[outside(), A], options={**MODELOPERATOR, **FIRST}, evicts=["modeloperator-0"]
    ),
    excluded_with_a_sidecar=row(
        pods=[outside("minio", "Excluded")], options=MINIO, why={"minio-0": "Excluded"}
    ),
    excluded_with_a_sidecar_and_asked_for=row(
        pods=[outside("minio", "Excluded")],
        options={**MINIO, "remembered": requested("uid-minio-0", proven=PROVEN)},
        evicts=["minio-0"],
    ),
)
def test_who_is_evicted_or_asked_about_and_why_not(pods, options, evicts, asks, why):
    decided = look(*pods, **options)

    assert (evicted(decided), asked(decided)) == (evicts, asks)
    assert reasons(decided) | why == reasons(decided)


FORBIDS = replica(forbids="karpenter.sh/do-not-disrupt")
REPLACED = "a pod of {} is being replaced"
BY_HAND = "restart-pods is manual: run restart-uninjected"
NO_CERTIFICATE = "istiod has not written the ConfigMap istio-ca-root-cert into this namespace"


@cases(
    ("pods", "options", "messages"),
    {"pods": [replica()], "options": {}},
    manual=row(options={"mode": "manual"}, messages=[BY_HAND]),
    forbids=row(
        pods=[FORBIDS], messages=["it has karpenter.sh/do-not-disrupt: run restart-uninjected"]
    ),
    forbids_and_manual=row(pods=[FORBIDS], options={"mode": "manual"}, messages=[BY_HAND]),
    off=row(options={"mode": "off"}, messages=["restart-pods is off: run restart-uninjected"]),
    injector_is_down=row(options={"trials": DOWN}, messages=["why"]),
    replaced=row(messages=[REPLACED.format(SET)]),
    first_was_no_better=(sets("ab"), WORTHLESS, ["m", "m"]),
    another_is_replaced=row(
        pods=[replica(terminating=True), replica("b-0")],
        options={"remembered": remembering()},
        messages=[REPLACED.format(SET)],
    ),
    queued=(
        *(sets("ab"), {"max_unavailable": "1"}),
        [REPLACED.format(SET), "other workloads come first"],
    ),
    tried=row(options={"trials": ()}, messages=["asking whether its replacement would be right"]),
    scaled_to_nothing=row(options={"desired": {SET: 0}}, messages=[f"{SET} is going away"]),
    a_ready_one_first=(
        [of("Deployment/a", crash_looping=True, **STUCK), of("DaemonSet/b")],
        *(FIRST, ["a Ready pod is replaced first", REPLACED.format("DaemonSet/b")]),
    ),
    beside_unready_ones=row(
        pods=[UNNAMED[1]]
        + [replica(f"a-{x}", workload="Deployment/a", in_mesh=True, **YOUNG) for x in "zx"],
        messages=["a-x is not Ready, so Deployment/a waits"],
    ),
    beside_unready_ordinals=row(
        pods=[replica(), *(replica(f"a-{n}", in_mesh=True, **YOUNG) for n in (10, 9))],
        messages=[f"a-9 is not Ready, so {SET} waits"],
    ),
    excluded=row(
        pods=[outside("minio", "Excluded")], options=MINIO, messages=["it has a sidecar"]
    ),
    sidecar_again=row(
        pods=[outside()],
        options={"trials": injecting("Deployment/modeloperator")},
        messages=["it has a sidecar; its replacement would have a sidecar, too"],
    ),
)
def test_a_wait_is_described(pods, options, messages):
    assert [each.message for each in look(*pods, **options).rows] == messages


def test_the_problem_that_lasts_is_why_others_wait():
    replacements = [
        replacement(name=f"{name}-0", uid=f"new-{name}", ready_since=None, ailments=(ailment,))
        for name, ailment in (("c", HANGS), ("b", HANGS), ("a", STARTS))
    ]
    rounds = {each.workload: a_round(uid="gone", known=("gone",)) for each in replacements}
    remembered = memory.Memory(rounds=rounds, proven=PROVEN)
    decided = look(*replacements, replica("d-0"), remembered=remembered)

    assert reasons(decided) == {"d-0": "ReplacementHangs"}
    summary = decided.summary
    assert [each.workload[-1] for each in summary.troubles] == ["b", "c", "a"]
    assert (summary.eligible, summary.in_mesh, summary.converging) == (4, 0, 2)


@pytest.mark.parametrize(("since", "evicts"), [(NOW - 1, ["c-0"]), (NOW, [])])
def test_only_a_hold_since_a_request_stops_the_first_pod_that_it_restarts(since, evicts):
    """The pods of the request are in the mesh, and those that join wait."""
    remembered = requested("uid-c-0", proven=(), holds=held(since=since).holds)
    decided = look(*sets("ab"), replica("c-0", in_mesh=True), remembered=remembered)
    assert evicted(decided) == evicts


def test_a_refused_eviction_ends_the_round_of_its_workload_alone():
    other = {"StatefulSet/c": a_budget()}
    decided = look(*sets("abc"), remembered=paused(workload="StatefulSet/c"))
    refused = decided.without_round(SET, a_budget()).memory
    assert ([*refused.rounds], refused.holds) == (["StatefulSet/b"], {**other, SET: a_budget()})
    assert decided.without_round(SET, None).memory.holds == other
    tried, later = look(replica(), remembered=paused(NOW)), a_budget(NOW + 60)
    assert tried.without_round(SET, later).memory.holds == {SET: later}


def test_an_eviction_is_remembered_with_the_pods_that_were_there():
    decided = look(replica())
    assert decided.memory.rounds[SET].known == ("uid-a-0",)
    assert decided.summary.converging == 1

    proxy = facts.Ailment("istio-proxy", "running and not Ready")
    ailments = (*crashing(), proxy, *crashing("db"))
    pod = of("Deployment/a", ailments=ailments, created=NOW - 900, **STUCK)
    sibling = of("Deployment/a", 1, in_mesh=True, ailments=crashing("web"), **YOUNG)
    first = look(pod, sibling, **FIRST)
    current = first.memory.rounds["Deployment/a"]
    # What was not Ready is remembered without the proxy.
    values = {"uid": "uid-a-0", "known": ("uid-a-0", "uid-a-1")}
    values |= {"since": NOW, "fingerprint": "f"}
    before = {"was_ready": False, "ready_before": 0, "broken": ("db", "main")}
    assert current == memory.Round(**values, **before, proves="sidecar")
    assert first.memory.proven == ()

    pods = [replica("a-1"), replica("a-0", in_mesh=True, ailments=crashing("db"), **YOUNG)]
    forced = look(*pods, remembered=requested("uid-a-1", force=True)).memory.rounds[SET]
    before = {"was_ready": True, "ready_before": 1, "broken": ("db",)}
    values |= {"uid": "uid-a-1", "known": ("uid-a-0", "uid-a-1")}
    assert forced == memory.Round(**values, **before)


def test_a_pause_lasts_to_its_end_though_no_pod_is_missing_for_a_moment():
    decided = look(replica(in_mesh=True), remembered=paused())
    assert decided.summary.troubles == ()
    again = look(replica(), remembered=decided.memory)
    assert (again.ask, again.evict) == ((), ())
    assert again.memory.holds == {SET: a_budget()}
    assert look(replica(fixable=False), remembered=paused()).summary.troubles == ()

    assert look(replica(in_mesh=True), remembered=paused(NOW)).memory.holds == {}
    # The workload was deleted.
    assert decide(snapshot(), held()).memory.holds == {}
    assert reasons(decide({**snapshot(replica()), "desired": {}})) == {"a-0": "Changing"}


def test_what_is_said_of_a_pause_does_not_change_while_it_is_tried_again():
    waiting = look(replica(), remembered=paused()).summary
    trouble = Trouble(SET, "DisruptionBudget", "m", passing=True)
    assert (waiting.troubles, waiting.converging) == ((trouble,), 0)

    tried = look(replica(), remembered=paused(NOW))
    assert evicted(tried) == ["a-0"]
    assert tried.summary == waiting

    holds = {"StatefulSet/b": a_budget(), SET: a_budget()}
    both = look(*sets("ab"), remembered=memory.Memory(holds=holds, proven=PROVEN)).summary
    assert [each.workload for each in both.troubles] == [SET, "StatefulSet/b"]

    going = snapshot(replica(terminating=True), desired={SET: 1})
    done = decide(going, tried.memory).summary
    assert (done.troubles, done.converging) == ((), 1)


def test_what_is_asked_for_is_done_and_then_forgotten():
    decided = look(replica(), remembered=requested("uid-a-0", "elsewhere"), mode="manual")
    assert decided.memory.request == memory.Request(id="1", at=NOW, uids=("uid-a-0",))

    going = look(replica(terminating=True), remembered=requested("uid-a-0"))
    assert going.memory.request is None
    done = decide(snapshot(replacement()), decided.memory, mode="manual")
    found = (done.memory.request, done.memory.rounds, done.memory.answered)
    assert found == (None, {}, "1")


def test_a_new_request_is_taken_over_once():
    data = {memory.REQUEST: '{"id": "7", "at": 1.0, "uids": ["u"]}'}
    request = memory.Request(id="7", at=1.0, uids=("u",))
    taken = memory.Memory(request=request, answered="7")
    for broken in ("null", "{", '{"x":' + "[" * 9999):
        assert memory.decode({**data, memory.STATE: broken}) == taken
    request_before = memory.Request(id="6", at=0.0, uids=("v",))
    before = memory.Memory(proven=PROVEN, answered="6", request=request_before)
    found = memory.decode({**data, memory.STATE: memory.encode(before)})
    assert (found.request, found.proven, found.answered) == (request, PROVEN, "7")
    done = memory.Memory(answered="7")
    assert memory.decode({**data, memory.STATE: memory.encode(done)}).request is None


@pytest.mark.parametrize("since", [NOW, NOW + 1])
def test_asking_does_not_lift_the_guard_that_follows(since):
    remembered = requested("uid-a-0", holds=held(since=since).holds)
    decided = look(replica(), remembered=remembered)
    assert (decided.evict, decided.memory.request) == ((), None)
    # A guard that ends by itself keeps the request.
    budget = memory.Hold(reason="DisruptionBudget", message="m", since=since, until=NOW + 9)
    remembered = requested("uid-a-0", holds={SET: budget})
    decided = look(replica(), remembered=remembered)
    assert (decided.evict, decided.memory.request) == ((), remembered.request)


def test_the_summary_counts_what_we_may_fix_apart_from_what_is_only_reported():
    pods = [
        replica("a-0"),
        replica("b-0", in_mesh=True, stale="1.29"),
        replica("c-0", fixable=False, reason="BarePod"),
        replica("d-0", wanted=False, fault=""),
        replica("e-0", in_mesh=True, stale="1.29", terminating=True),
        outside(),
        of("Deployment/x", wanted=False, fault="unwanted", fixable=False),
    ]
    summary = look(*pods, trials=()).summary

    assert (summary.eligible, summary.in_mesh, summary.reported) == (2, 1, 1)
    assert (summary.converging, summary.stale, summary.unwanted) == (1, 1, 2)
    assert look(replica(), mode="manual").summary.proposed == 1


@cases(
    ("reason", "retry", "revision"),
    refused=("ReplacementRefused", 30, ""),
    cannot_start=("CannotStart", 30, ""),
    wrong_order=("WrongOrder", 30, ""),
    skips=("InjectorSkips", 600, "r1"),
)
def test_a_workload_whose_replacement_would_not_be_right_is_named_and_the_others_go_on(
    reason, retry, revision
):
    trials = [("Deployment/a", reason, ""), *injecting("Deployment/b")]
    decided = look(A, B, trials=trials)

    assert evicted(decided) == ["b-0"]
    assert decided.summary.troubles == (Trouble("Deployment/a", reason, "why"),)
    assert reasons(decided)["a-0"] == reason
    hold = decided.memory.holds["Deployment/a"]
    known = (hold.since, hold.until, hold.revision, hold.fingerprint)
    assert known == (NOW, NOW + retry, revision, "f")
    assert [each.reason for each in decided.held] == [reason] * bool(revision)
    assert look(A, B, trials=trials, remembered=decided.memory).ask == ()


NOT_READY = f"a-0 is not Ready, so {SET} waits"
GRACEFUL = "a-0 is terminating, with a grace period until 13:46 UTC"
WAITING = memory.Memory(proven=PROVEN, waiting={SET: NOW - 600})
"""The leader has seen for ten minutes that the workload waits."""


@cases(
    ("pods", "options", "trouble"),
    {"options": {}},
    unready_siblings=([THREE[2], DOWN_1, DOWN_0], {}, ("NotReady", NOT_READY, "", False)),
    missing_sibling=(
        THREE[1:],
        {"desired": {SET: 3}},
        ("Changing", f"{SET} has 2 of 3 pods", "", False),
    ),
    in_order=(
        [replica("a-0", in_mesh=True, **STUCK), replica("a-1", **STUCK)],
        {"ordered": [SET]},
        ("OrderedReady", f"{SET} would recreate a-1 only after a-0 is Ready", "a-0", False),
    ),
    again_and_again_not_ready=(*([replica(**YOUNG)], {}, ("NotReady", NOT_READY, "", False)),),
    again_and_again_ready=row(
        pods=[replica(ready_since=NOW - 9)],
        trouble=("NotSettled", "Ready for less than 60 s", "", True),
    ),
    terminates=row(
        pods=[THREE[1], replica("a-0", terminating=True, ready_since=None, ends_by=NOW)],
        trouble=("Changing", "a-0 is still terminating", "", False),
    ),
    terminates_within_its_grace_period=row(
        pods=[
            replica("a-1", terminating=True, ready_since=None, ends_by=NOW),
            replica("a-0", terminating=True, ready_since=None, ends_by=NOW + 1),
            THREE[2],
        ],
        trouble=("Changing", GRACEFUL, "", True),
    ),
)
def test_a_wait_that_lasts_ten_minutes_is_named_with_its_reason(pods, options, trouble):
    reason, message, pod, passing = trouble
    wanted = (Trouble(SET, reason, message, pod, passing=passing),)
    named = look(*pods, remembered=WAITING, **options)
    assert (named.summary.troubles, named.summary.converging) == (wanted, 0)
    assert named.memory.waiting == WAITING.waiting

    begins = look(*pods, now=NOW - 1, **options)
    assert (begins.summary.troubles, begins.memory.waiting) == ((), {SET: NOW - 1})
    assert begins.summary.converging
    assert look(*pods, now=NOW - 1, remembered=WAITING, **options).summary.troubles == ()


def test_a_long_wait_of_pods_that_are_in_the_mesh_names_the_unready_pod():
    pods = [replica("a-0", in_mesh=True, **YOUNG), replica("a-1", in_mesh=True)]
    request = requested("uid-a-1", waiting={SET: NOW - 600})
    (trouble,) = look(*pods, remembered=request).summary.troubles
    assert (trouble.reason, trouble.pod) == ("NotReady", "a-0")


def test_a_wait_that_lasts_stops_no_other_workload_and_ends():
    decided = look(*THREE[1:], DOWN_0, replica("b-0"), remembered=WAITING)
    assert evicted(decided) == ["b-0"]
    assert decided.summary.converging == 1
    ended = look(*THREE, remembered=decided.memory)
    assert (evicted(ended), ended.memory.waiting) == (["a-2"], {})


def test_a_forced_replacement_may_be_as_broken_as_its_siblings_were():
    """A standby that is never Ready takes over from the pod that led before it."""
    standby = replica("a-0", in_mesh=True, ailments=crashing(), **STUCK)
    forced = look(replica("a-1"), standby, remembered=requested("uid-a-1", force=True))
    assert evicted(forced) == ["a-1"]

    leader = replica("a-0", in_mesh=True, ready_since=NOW - 1)
    new = replacement(name="a-1", ready_since=None, ailments=crashing())
    assert decide(snapshot(leader, new), forced.memory).memory.rounds == {}
    nobody_leads = decide(snapshot(standby, new), forced.memory)
    assert [*nobody_leads.memory.rounds] == [SET]


@cases(
    ("options", "others"),
    first=({"remembered": NOTHING}, []),
    while_another_is_replaced=(
        {"remembered": memory.Memory(rounds={"StatefulSet/b": a_round(uid="uid-b-0")})},
        [replica("b-0", terminating=True)],
    ),
    while_another_hangs=(
        {"remembered": memory.Memory(rounds={"StatefulSet/b": a_round(known=("old",))})},
        [replacement(name="b-0", ready_since=None, ailments=crashing())],
    ),
)
def test_a_lost_unit_needs_only_a_right_dry_run(options, others):
    pod = replica(unready_since=NOW, **LOST)
    assert asked(look(pod, *others, trials=(), **options)) == ["a-0"]
    decided = look(pod, *others, **options)
    assert evicted(decided) == ["a-0"]
    assert decided.memory.rounds[SET].proves == ""

    wrong = look(pod, *others, trials=[(SET, "WrongOrder", "")], **options)
    assert not wrong.evict
    assert wrong.memory.holds[SET].reason == "WrongOrder"
    told = [each.message for each in wrong.summary.troubles if each.workload == SET]
    assert told == ["why"]


@pytest.mark.parametrize("why", ["served", "up"])
def test_a_lost_unit_waits_for_istiod(why):
    pod = replica(unready_since=NOW, **LOST)
    trials = [(SET, "MeshDown" if why == "up" else None, "")]
    decided = decide(snapshot(pod, trials=trials, is_served=why == "up"), NOTHING)
    assert not decided.evict


def test_a_lost_unit_is_named_by_its_fault():
    pod = replica(unready_since=NOW, **LOST)
    replaced = look(pod)
    trouble = Trouble(SET, "WrongOrder", "a-0: not charm", "a-0", passing=True)
    assert replaced.summary.troubles == (trouble,)
    (row,) = replaced.rows
    assert row.reason == "WrongOrder"
    assert row.message.startswith("not charm; ")
    others = [replica(fixable=False, **LOST), replica("b-0", terminating=True, **LOST)]
    assert look(*others).summary.troubles == ()
    kept = look(replica(forbids="karpenter.sh/do-not-disrupt", **LOST))
    assert [each.passing for each in kept.summary.troubles] == [False]


def test_a_pod_with_the_wrong_first_container_is_no_pod_of_the_mesh_and_is_replaced():
    decided = look(WRONG)
    assert evicted(decided) == ["a-0"]
    assert (decided.summary.in_mesh, decided.summary.eligible) == (0, 1)
    # A request for another pod goes on beside one that is named only.
    remembered = requested("uid-b-0", proven=PROVEN)
    manual = look(WRONG, replica("b-0"), mode="manual", remembered=remembered)
    assert evicted(manual) == ["b-0"]
    assert manual.summary.troubles == (Trouble(SET, "WrongOrder", "not charm", "a-0"),)
    assert manual.summary.proposed == 1


def test_nothing_is_evicted_where_istiod_does_not_serve_the_namespace():
    shot = snapshot(A, trials=injecting("Deployment/a"), is_served=False)
    decided = decide(shot, NOTHING)

    assert (decided.evict, decided.ask) == ((), ())
    assert [(each.reason, each.message) for each in decided.rows] == [
        ("NotServed", NO_CERTIFICATE)
    ]
    assert decided.summary.troubles == (Trouble("", "NotServed", NO_CERTIFICATE),)


# What the first replacement proves, and how each that follows goes.


def proving(*pods, model=None, **values):
    """A pod of `a` has been evicted, `b` waits."""
    trials = injecting("Deployment/b")
    model = {"refused": {"Deployment/c": "no"}, **(model or {})}
    shot = snapshot(*pods, B, desired={SET: 1}, trials=trials, **model)
    rounds = {SET: a_round(**{"proves": "sidecar", **values})}
    return decide(shot, memory.Memory(rounds=rounds), max_unavailable="100%")


@pytest.mark.parametrize(("seconds", "done"), [(9, False), (10, True)])
def test_the_others_follow_when_the_first_has_stayed_ready(seconds, done):
    decided = proving(replacement(ready_since=NOW - seconds))

    assert decided.memory.proven == ("sidecar",) * done
    assert evicted(decided) == ["b-0"] * done
    if not done:
        assert reasons(decided)["b-0"] == "FirstPod"


@cases(
    ("fault", "trial", "reason", "what"),
    missing=("missing", None, "StillNoSidecar", "has no sidecar either"),
    order=("order", None, "WrongOrder", "has its containers in the wrong order again"),
    unwanted=("unwanted", "InjectorSkips", "SidecarAgain", "has a sidecar again"),
)
def test_no_other_pod_follows_a_first_that_is_no_better(fault, trial, reason, what):
    bad = replacement(fault=fault, ready_since=NOW - 60)
    shot = snapshot(bad, B, trials=[(SET, trial, "new")])
    decided = decide(shot, memory.Memory(rounds={SET: a_round(proves="sidecar")}))

    assert not decided.evict
    assert decided.memory.proven == ()
    assert reasons(decided)["b-0"] == "FirstPod"
    remedy = "fix it, then run restart-uninjected, or annotate it with restart-pods=disabled"
    message = f"a-0, created in place of an evicted pod, {what}: {remedy}"
    assert decided.memory.holds == {SET: a_hold(reason=reason, message=message, since=NOW)}
    later = decide(shot, decided.memory)
    assert (later.evict, later.ask) == ((), ())


def test_a_first_that_is_gone_or_left_alone_proves_nothing_and_the_next_is_tried():
    decided = proving(replacement(fixable=False, ready_since=None))

    assert decided.memory.proven == ()
    assert evicted(decided) == ["b-0"]
    assert decided.memory.rounds["Deployment/b"].proves == "sidecar"


def test_another_revision_is_proven_for_itself():
    trials = injecting("Deployment/a", "Deployment/b")
    shot = snapshot(A, B, trials=trials, mesh="sidecar 1-31")
    decided = decide(shot, memory.Memory(proven=PROVEN))

    assert evicted(decided) == ["a-0"]
    assert decided.memory.proven == PROVEN


def test_a_request_to_restart_pods_of_the_mesh_has_a_first_of_its_own():
    pods = [of(f"Deployment/{name}", in_mesh=True) for name in "abc"]
    remembered = requested(*(each.uid for each in pods), proven=PROVEN)
    decided = look(*pods, remembered=remembered, max_unavailable="100%")

    assert evicted(decided) == ["a-0"]
    outside = [of(f"Deployment/{name}") for name in "abc"]
    joining = look(*outside, remembered=remembered, max_unavailable="100%")
    assert evicted(joining) == ["a-0", "b-0", "c-0"]
    new = of("Deployment/a", 1, in_mesh=True, ready_since=NOW - 10)
    after = look(new, *pods[1:], remembered=decided.memory)
    assert after.memory.proven == ("request 1", "sidecar")
    assert evicted(after) == ["b-0", "c-0"]
    done = decide(snapshot(new), memory.Memory(proven=after.memory.proven))
    assert done.memory.proven == PROVEN


GATE = facts.Ailment("the pod", "ReadinessGatesNotReady", 'gate "x" is not "True"')
STARTS = facts.Ailment("main", "ContainerCreating")
WORDS = 'a new pod of StatefulSet/a is refused: webhook "v" refuses: no'


@cases(
    ("pods", "given", "trouble", "words"),
    can_not_start=(
        [replacement(ready_since=None, ailments=(HANGS,))],
        *({}, "ReplacementHangs"),
        "the replacement a-0 cannot start: main: ImagePullBackOff: no such image",
    ),
    second_can_not_start=(
        [
            replacement(name="a-1", uid="new-1"),
            replacement(ready_since=None, ailments=(*crashing("db"), HANGS)),
        ],
        *({"broken": ("db",)}, "ReplacementHangs"),
        "the replacement a-0 cannot start: main: ImagePullBackOff: no such image",
    ),
    starts=(
        [replacement(ready_since=None, ailments=(STARTS,))],
        {"since": NOW - 599},
        *("ReplacementStarting", "waiting for a-0 to be Ready"),
    ),
    starts_for_ten_minutes=(
        [replacement(ready_since=None, ailments=(STARTS,))],
        {"since": NOW - 600},
        "ReplacementHangs",
        "the replacement a-0 is not Ready after 10 minutes: main: ContainerCreating",
    ),
    gate=(
        [replacement(ready_since=None, ailments=(GATE,))],
        {"since": NOW - 600},
        *("ReplacementHangs", 'the pod: ReadinessGatesNotReady: gate "x" is not "True"'),
    ),
    missing=([], {"since": NOW - 600}, "ReplacementHangs", f"{SET} has 0 of 1 pods"),
    terminates=(
        [replica(terminating=True, ends_by=NOW)],
        {"since": NOW - 600},
        *("ReplacementHangs", "the evicted pod a-0 is still terminating"),
    ),
    terminates_within_its_grace_period=(
        [replica(terminating=True, ends_by=NOW + 1)],
        {"since": NOW - 600},
        *("ReplacementStarting", f"the evicted pod {GRACEFUL}"),
    ),
    is_refused_while_the_evicted_one_terminates=(
        [replica(terminating=True, ends_by=NOW + 1)],
        {"model": {"refused": {SET: 'webhook "v" refuses: no'}}},
        *("ReplacementHangs", WORDS),
    ),
    is_refused=(
        *([], {"model": {"refused": {SET: 'webhook "v" refuses: no'}}}),
        *("ReplacementHangs", WORDS),
    ),
)
@pytest.mark.parametrize("proves", ["sidecar", ""], ids=["first", "later"])
def test_nothing_else_is_evicted_while_a_replacement_is_not_right(
    pods, given, trouble, words, proves
):
    decided = proving(*pods, proves=proves, **given)

    (found,) = decided.summary.troubles
    pod = "a-0" if pods and words != WORDS else ""
    assert (found.workload, found.reason, found.pod) == (SET, trouble, pod)
    assert found.message.endswith(words)
    assert found.passing is (trouble == "ReplacementStarting")
    assert (decided.evict, decided.ask) == ((), ())
    assert reasons(decided) == {"b-0": trouble}


@pytest.mark.parametrize("late", [False, True])
def test_a_replacement_that_waits_for_a_lower_ordinal_is_missing(late):
    pods = [
        replica("a-0", in_mesh=True, **STUCK),
        replica("a-1", in_mesh=True),
        of("Deployment/b"),
    ]
    shot = snapshot(*pods, desired={SET: 3}, ordered={SET}, trials=injecting("Deployment/b"))
    decided = decide(shot, remembering(uid="uid-a-2", known=KNOWN, since=NOW - 600 * late))

    why = f"{SET} has 2 of 3 pods and creates no other before a-0 is Ready"
    reason = "ReplacementHangs" if late else "ReplacementStarting"
    assert decided.summary.troubles == (Trouble(SET, reason, why, "a-0", passing=not late),)
    assert not decided.evict


def test_evictions_go_on_by_themselves_once_the_replacement_is_ready():
    stuck = proving(replacement(ready_since=None, ailments=(HANGS,)), since=NOW - 3600)
    decided = decide(snapshot(replacement(), B, trials=injecting("Deployment/b")), stuck.memory)
    assert (evicted(decided), decided.summary.troubles) == (["b-0"], ())


def test_a_pod_that_was_not_ready_is_replaced_rightly_when_it_is_no_worse():
    proxy = facts.Ailment("istio-proxy", "running and not Ready")
    before = {"was_ready": False, "ready_before": 0, "broken": ("main",)}
    worse = proving(replacement(ready_since=None, ailments=(*crashing(), proxy)), **before)
    other = proving(replacement(ready_since=None, ailments=crashing("db")), **before)
    assert worse.memory.proven == other.memory.proven == ()
    assert worse.summary.troubles[0].passing

    as_before = proving(replacement(ready_since=None, ailments=crashing()), **before)
    assert as_before.memory.proven == ("sidecar",)


def test_a_pod_outside_of_the_mesh_waits_for_another_replacement():
    alone = look(outside(), trials=[LEFT_OUT], remembered=NOTHING)
    assert alone.memory.rounds["Deployment/modeloperator"].proves == ""
    again = look(outside(), trials=injecting("Deployment/modeloperator"))
    message = "its replacement would have a sidecar, too"
    hold = a_hold(reason="SidecarAgain", message=message, since=NOW, until=NOW + 30, revision="")
    assert again.memory.holds == {"Deployment/modeloperator": hold}
    starting = replacement(ready_since=None)
    shot = snapshot(outside(), starting, desired={SET: 1}, trials=[LEFT_OUT])
    decided = decide(shot, remembering())

    assert not decided.evict
    (row,) = decided.rows
    assert (row.reason, row.message) == (
        *("SidecarUnwanted", "it has a sidecar; waiting for a-0 to be Ready"),
    )


# When a slot comes back.


@cases(
    ("pods", "open_"),
    eviction_not_seen_yet=([replica()], True),
    terminating=([replica(terminating=True)], True),
    gone=([], True),
    starting=([replacement(ready_since=None)], True),
    ready=([replacement(ready_since=NOW)], False),
)
def test_the_slot_is_held_until_the_replacement_is_ready(pods, open_):
    others = [replica("b-0"), replica("c-0", in_mesh=True)]
    shot = snapshot(*pods, *others, desired={SET: 1}, trials=injecting("StatefulSet/b"))
    decided = decide(shot, remembering(), max_unavailable="1")

    assert (SET in decided.memory.rounds) is open_
    assert bool(decided.evict) is not open_
    is_starting = open_ and any(each.uid == "new" for each in pods)
    told = [each.reason for each in decided.summary.troubles]
    assert told == ["ReplacementStarting"] * is_starting
    # A pod that is being replaced is counted once.
    summary = decided.summary
    assert (summary.in_mesh, summary.converging) == ((1, 2) if open_ else (2, 1))
    assert summary.eligible == 3


def three(ready, **new):
    """Two of three pods as they were, so many of them Ready, beside a replacement."""
    old = [
        replica(f"a-{number}", in_mesh=True, ready_since=NOW - 300 if number <= ready else None)
        for number in (1, 2)
    ]
    return [replacement(**new), *old]


KNOWN = tuple(f"uid-a-{number}" for number in range(3))
BROKEN_BEFORE = {"was_ready": False, "ready_before": 2}


@cases(
    ("pods", "desired", "values", "open_"),
    all_as_before=(three(2), 3, {"known": KNOWN, "ready_before": 3}, False),
    as_many_as_before_and_no_more=(three(1), 3, {"known": KNOWN, "ready_before": 2}, False),
    an_old_one_fell_over=(three(1), 3, {"known": KNOWN, "ready_before": 3}, True),
    an_old_one_fell_over_and_another_terminates=(
        [*three(1), replica("a-3", terminating=True)],
        *(3, {"known": KNOWN, "ready_before": 3}, True),
    ),
    only_the_old_ones=(three(2, **STARTING), 3, {"known": KNOWN, "ready_before": 2}, True),
    scaled_down=([replacement()], 1, {"known": KNOWN, "ready_before": 3}, False),
    no_replacement_yet=(three(2)[1:], 3, {"known": KNOWN, **BROKEN_BEFORE}, True),
    as_broken_as_before=(three(2, **STARTING), 3, {"known": KNOWN, **BROKEN_BEFORE}, False),
    as_broken_as_before_and_an_old_one_fell_over=(
        *(three(1, **STARTING), 3, {"known": KNOWN, **BROKEN_BEFORE}, False),
    ),
    crash_looped_before=(
        *([replacement(**STARTING)], 1, {"was_ready": False, "ready_before": 0}, False),
    ),
    one_of_two_starts=(
        [replacement(), replacement(name="a-1", uid="new-1", **STARTING)],
        *(2, {}, True),
    ),
    one_of_two_is_not_ours=(
        [replacement(**STARTING), replica("a-1", in_mesh=True, fixable=False)],
        *(2, {"known": KNOWN}, True),
    ),
    eviction_that_never_happened=([replica()], 1, {"since": NOW - 30}, False),
    eviction_that_may_happen=([replica()], 1, {"since": NOW - 29}, True),
    # The workload is not ours any more.
    deleted=([], None, {}, False),
    switched_off=([replacement(**STARTING, fixable=False)], 1, {}, False),
    scaled_to_nothing=([], 0, {}, False),
)
def test_the_slot_comes_back_when_the_workload_has_what_was_taken(pods, desired, values, open_):
    wanted = {} if desired is None else {SET: desired}
    shot = {**snapshot(*pods), "desired": wanted}
    decided = decide(shot, remembering(**values))

    assert (SET in decided.memory.rounds) is open_
    assert not decided.evict


@cases(
    ("replacing", "was", "counts"),
    # A pod that serves is in the mesh, though its round goes on for want of another.
    ready=({"ready_since": NOW - 1}, 3, (2, 0)),
    starting=(STARTING, 3, (1, 1)),
    starting_without_a_sidecar=({**STARTING, "in_mesh": False, "fault": "missing"}, 3, (1, 1)),
    terminating=({**STARTING, "terminating": True}, 3, (1, 1)),
)
def test_a_replacement_is_in_the_mesh_or_on_its_way(replacing, was, counts):
    pods = [replica("a-1", in_mesh=True, ready_since=None), replacement(**replacing)]
    known = ("uid-a-0", "uid-a-1")
    summary = decide(snapshot(*pods), remembering(known=known, ready_before=was)).summary

    assert (summary.in_mesh, summary.converging) == counts


@cases(
    ("trial", "fingerprint", "values", "hold"),
    # Without a trial of the replacement the API server is asked.
    no_trial=((), "f", {}, None),
    about_another_pod=((None, "uid-a-0"), "f", {}, None),
    # It was made while the injector was away.
    outage=(("MeshDown", "new"), "f", STARTING, ()),
    changed=((None, "new"), "other", STARTING, ()),
    again=((None, "new"), "f", STARTING, ("StillNoSidecar", None)),
    skipped=(("InjectorSkips", "new"), "f", {}, ("InjectorSkips", NOW + 600)),
    skipped_and_starting=(("InjectorSkips", "new"), "f", STARTING, ("InjectorSkips", NOW + 600)),
)
def test_a_replacement_without_sidecar_is_blamed_by_a_dry_run(trial, fingerprint, values, hold):
    trials = [(SET, *trial)] if trial else []
    shot = snapshot(replacement(in_mesh=False, **values), trials=trials)
    decided = decide(shot, remembering(fingerprint=fingerprint))
    current = decided.memory.rounds.get(SET)

    assert [each.uid for each in decided.ask] == ["new"] * (hold is None)
    holds = [(each.reason, each.until) for each in decided.memory.holds.values()]
    assert holds == [hold] * bool(hold)
    if hold is None or values:
        assert current is not None
        assert current.known == ("uid-a-0", *["new"] * (hold is not None))


@pytest.mark.parametrize("tried", ["new-0", "new-1"])
def test_a_replacement_without_sidecar_ends_it(tried):
    """Of several, the first is asked about and named."""
    bad = [
        replacement(name="a-2", uid="new-2"),
        replacement(in_mesh=False, name="a-0", uid="new-0"),
        replacement(in_mesh=False, name="a-1", uid="new-1", **STARTING),
    ]
    assert [each.uid for each in decide(snapshot(*bad), remembering()).ask] == ["new-0"]

    decided = decide(snapshot(*bad, trials=[(SET, None, tried)]), remembering())
    hold = decided.memory.holds[SET]
    assert hold.reason == "StillNoSidecar"
    assert hold.message.startswith("a-0, created in place of an evicted pod")
    assert not decided.evict
    assert set(reasons(decided).values()) == {"StillNoSidecar"}
    assert [each.reason for each in decided.held] == ["StillNoSidecar"]
    assert not decided.memory.rounds
    assert decided.summary.converging == 0


@cases(
    ("remembered", "pods", "want"),
    same=(held(), [replica()], True),
    no_pod_right_now=(held(), [], True),
    being_replaced=(held(), [replica(terminating=True)], True),
    new_template=(held(), [replica(revision="r2")], False),
    new_template_of_one=(held(), [replica(), replica("a-1", revision="r2")], False),
    new_template_of_one_in_the_mesh=(
        *(held(), [replica(), replica("a-1", in_mesh=True, revision="r2")], True),
    ),
    mesh_changed=(held(fingerprint="old"), [replica()], False),
    cured=(held(), [replica(in_mesh=True)], False),
)
def test_a_hold_counts_until_something_changes(remembered, pods, want):
    shot = snapshot(*pods, desired={SET: len(pods)}, trials=injecting(SET))
    decided = decide(shot, remembered)

    assert bool(decided.memory.holds) is want
    assert not (want and decided.evict)


@pytest.mark.parametrize("ended", [False, True])
def test_a_pod_that_does_not_go_is_reported_where_no_other_can_come(ended):
    old = replica(terminating=True, ended=ended)
    remembered = remembering(since=NOW - 700, was_ready=False, ready_before=0)
    (trouble,) = decide(snapshot(old), remembered).summary.troubles
    assert "terminating" in trouble.message

    shot = snapshot(old, replacement(), desired={SET: 1})
    decided = decide(shot, remembering(since=NOW - 700))
    assert bool(decided.memory.rounds) is not ended
    if ended:
        assert decided.summary.troubles == ()
