"""Convergence on the small apiserver: who evicts, exactly what, and what it keeps in mind."""

import asyncio
import datetime
import json
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from sidecar_lifecycle.decide.convergence import memory, plan

from integrator_contract import names
from tests.unit.api_server import Refused
from tests.unit.cases import cases, row
from tests.unit.workload.convergence.plan_world import a_hold
from tests.unit.workload.converging import (
    MEMORY,
    MODEL,
    OWN_IMAGE,
    POLICY,
    Object,
    converging,
    injected,
    looked,
    owned,
    refusal,
    refuse,
    remember,
    remembered,
    without_sidecar,
    workload,
)
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.service_world import Service, now

AWAY = "Internal error occurred: failed calling webhook"
RIGHT = 'User "x" cannot create resource "pods" in API group ""'
PROXY = {"name": "istio-proxy"}
PROBE = {"httpGet": {"path": "/app-health/sql-proxy/startupz", "port": 15020}}
HELPER = {"name": "sql-proxy", "restartPolicy": "Always", "startupProbe": PROBE}
UNCHANGED = {**HELPER, "startupProbe": {"httpGet": {"path": "/startupz", "port": 9801}}}
"""The same in a mesh that leaves probes as they are."""


MODELOPERATOR = {"operator.juju.is/name": "modeloperator"}


def pod_of_unit(*containers: str, **metadata: Any) -> Object:
    """Return a pod of `web` with these containers."""
    pod = without_sidecar()
    pod["metadata"] |= metadata
    pod["spec"]["containers"] = [{"name": each, "image": "shop"} for each in containers]
    return pod


def owned_by(pod: Object, kind: str, name: str) -> Object:
    """Return a pod of another controller."""
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": owned(kind, name)}}


def in_order(pod: Object) -> Object:
    """Create a unit's pod whose first container is the charm's."""
    init, containers = [{"name": "charm-init"}, UNCHANGED], [{"name": "charm"}, PROXY]
    return {**pod, "spec": {"initContainers": init, "containers": containers}}


def inject_only(*images: str) -> Any:
    return lambda pod: injected(pod) if pod["spec"]["containers"][0]["image"] in images else pod


WRONG_ORDER = pod_of_unit("istio-proxy", "charm")
WRONG_ORDER["spec"]["initContainers"] = [{"name": "charm-init"}]
AMBIENT = {"istio.io/dataplane-mode": "ambient"}


@cases(
    ("pod", "admission", "settings", "reason", "why"),
    {"admission": injected, "settings": {}},
    missing=row(
        pod=without_sidecar(),
        reason="SidecarMissing",
        why="not in the mesh, though its namespace says istio-injection=enabled): StatefulSet/web"
        " creates it again with",
    ),
    unwanted=row(
        pod=owned_by(
            pod_of_unit("main", "istio-proxy", labels=MODELOPERATOR), "ReplicaSet", "web-2"
        ),
        admission=inject_only(OWN_IMAGE),
        reason="SidecarUnwanted",
        why="Juju's modeloperator stays outside, and it has a sidecar): Deployment/web creates it"
        " again without",
    ),
    order=row(
        pod=WRONG_ORDER,
        admission=in_order,
        reason="WrongOrder",
        why="its first container is not charm, which its controller addresses): StatefulSet/web"
        " creates it again with",
    ),
    requested=row(
        pod=owned_by(injected(without_sidecar()), "DaemonSet", "agent"),
        reason="ProxyRenewed",
        why="it was asked for): DaemonSet/agent creates it again with",
    ),
    left_over=row(
        pod=pod_of_unit("main", "istio-proxy", annotations={names.SIDECAR_STATUS: "{}"}),
        admission=lambda pod: pod,
        settings={"data_plane": "ambient"},
        reason="SidecarLeft",
        why="it is in ambient mode by istio.io/dataplane-mode=ambient, and still has a sidecar):"
        " StatefulSet/web creates it again without",
    ),
)
async def test_leader_replaces_a_pod_and_its_event_tells_why(
    model: FakeApiserver,
    *,
    pod: Object,
    admission: Any,
    settings: Object,
    reason: str,
    why: str,
):
    workload(model, "daemonsets", "agent")
    workload(model, "deployments", "web")
    workload(model, "replicasets", "web-2", ownerReferences=owned("Deployment", "web"))
    model.put("pods", pod)
    model.admission = admission
    if settings:
        model.namespace(MODEL, labels=AMBIENT)
    if reason == "ProxyRenewed":
        request = memory.Request(id="1", at=now(), uids=("uid-1",))
        remember(model, memory.Memory(), request=msgspec.json.encode(request).decode())
    async with converging(model, **settings):
        await until(lambda: model.all("events"))

    assert model.evicted == ["uid-1"]
    (current,) = remembered(model).rounds.values()
    proofs = {"SidecarUnwanted": "", "SidecarLeft": "ambient default", "ProxyRenewed": "request 1"}
    assert current.proves == proofs.get(reason, "sidecar default")
    (event,) = model.all("events")
    assert (event["reason"], event["type"]) == (reason, "Normal")
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": MODEL, "name": "web-0"}
    assert event["involvedObject"] == {**about, "uid": "uid-1"}
    assert event["message"] == f"Evicted ({why} a sidecar"


async def test_as_many_workloads_are_restarted_at_once_as_the_option_allows(model: FakeApiserver):
    for name in ("db", "app", "mq", "zoo"):
        workload(model, "statefulsets", name)
        model.put("pods", without_sidecar(f"uid-{name}", name))
    remember(model, memory.Memory(proven=("sidecar 1-30",)))

    def refuse_two(method: str, path: str) -> None:
        if path.endswith(("/app-0/eviction", "/db-0/eviction")):
            raise Refused("budget", 429)

    model.before_answer = refuse_two
    async with converging(model, restart_max_unavailable="4", mesh_revision="1-30") as service:
        await until(lambda: len(model.evicted) == 2)
        await until(lambda: service.shows(2, "convergence_workloads_in_flight"))
        await asyncio.sleep(60)
    assert model.evicted == ["uid-mq", "uid-1"]
    assert {*remembered(model).rounds} == {"StatefulSet/mq", "StatefulSet/web"}
    assert {*remembered(model).holds} == {"StatefulSet/app", "StatefulSet/db"}


async def test_replacement_without_a_sidecar_is_tried_and_named(model: FakeApiserver):
    async with converging(model):
        await until(lambda: model.evicted)
        model.put("pods", without_sidecar("uid-2"))
        await until(lambda: len(model.all("events")) == 2)
    (hold,) = remembered(model).holds.values()
    assert (hold.reason, hold.until) == ("StillNoSidecar", None)
    assert hold.message == model.all("events")[-1]["message"]
    assert model.evicted == ["uid-1"]


async def test_startup_probe_may_be_led_to_a_proxy_that_starts_before(model: FakeApiserver):
    proxy = {**PROXY, "restartPolicy": "Always"}
    model.admission = lambda pod: {
        **pod,
        "spec": {**pod["spec"], "initContainers": [proxy, HELPER]},
    }
    async with converging(model):
        await until(lambda: model.evicted)


async def test_pod_is_replaced_soon_after_it_has_been_ready_for_a_minute(model: FakeApiserver):
    pod = without_sidecar()
    began = datetime.datetime.fromtimestamp(now(), tz=datetime.UTC)
    pod["status"]["conditions"][0]["lastTransitionTime"] = began.isoformat()
    model.put("pods", pod)
    async with converging(model):
        await until(lambda: model.evicted)
        assert plan.READY_FOR <= now() - began.timestamp() <= plan.READY_FOR + 15


# What a dry run tells.

NEXT = "the API refuses its next pod"


def is_own_forbidden(pod: Object) -> Object:
    if pod["spec"]["containers"][0]["image"] == OWN_IMAGE:
        raise refusal(POLICY)
    return pod


def proxy_first(pod: Object) -> Object:
    spec = in_order(pod)["spec"]
    return {**pod, "spec": {**spec, "containers": spec["containers"][::-1]}}


def starts_never(pod: Object) -> Object:
    """An init container whose startup probe istiod leads to a proxy that starts after it."""
    return injected({**pod, "spec": {**pod["spec"], "initContainers": [HELPER]}})


@cases(
    ("admission", "reason", "words"),
    policy=(
        *(refuse(POLICY), "ReplacementRefused"),
        "ValidatingAdmissionPolicy no-overrides refuses: not allowed",
    ),
    webhook_of_another_team_away=(
        *(refuse(f'{AWAY} "check.team.example": timed out', 500), "ReplacementRefused"),
        'webhook "check.team.example" does not answer: timed out',
    ),
    istiod_away=(
        *(refuse(f'{AWAY} "namespace.sidecar-injector.istio.io": timed out', 500), "MeshDown", ""),
    ),
    istiod_refuses=(
        refuse('admission webhook "x.sidecar-injector.istio.io" denied the request: odd', 400),
        *("ReplacementRefused", 'webhook "x.sidecar-injector.istio.io" refuses: odd'),
    ),
    api_away=(refuse("etcd is away", 500), "MeshDown", ""),
    busy=(refuse("slow down", 429), "MeshDown", ""),
    schema=(refuse("no image", 422), "ReplacementRefused", f"{NEXT}: no image"),
    no_pod=(
        *(lambda pod: {**pod, "spec": 1}, "ReplacementRefused"),
        "StatefulSet/web can't be dealt with; the log says why",
    ),
    missing_right=(
        *(refuse(RIGHT), "ReplacementRefused"),
        f'{NEXT}: pods "x" is forbidden: {RIGHT}',
    ),
    injector_leaves_this_workload_out=(
        *(inject_only(OWN_IMAGE), "InjectorSkips"),
        "the injector gives pods of StatefulSet/web no sidecar",
    ),
    injector_leaves_all_out=(inject_only(), "MeshDown", ""),
    policy_for_the_generic_trial=(
        *(is_own_forbidden, "ReplacementRefused"),
        "ValidatingAdmissionPolicy no-overrides refuses: not allowed",
    ),
    another_first_container=(
        *(proxy_first, "WrongOrder"),
        "istio-proxy would be its first container instead of charm",
    ),
    could_never_start=(
        *(starts_never, "CannotStart"),
        "its init container sql-proxy would wait for istio-proxy forever",
    ),
)
async def test_pod_whose_replacement_would_not_be_right_is_named_and_stays(
    model: FakeApiserver, admission: Any, reason: str, words: str
):
    model.admission = admission
    async with converging(model) as service:
        await until(lambda: service.shows(1, "uninjected_pods", reason))
        await asyncio.sleep(5)

    assert model.evicted == []
    holds = remembered(model).holds.items()
    held = [(workload, hold.reason, hold.message) for workload, hold in holds]
    assert held == [("StatefulSet/web", reason, words)] * bool(words)
    told = [(each["reason"], each["type"], each["message"]) for each in model.all("events")]
    assert told == [("InjectorSkips", "Warning", words)] * (reason == "InjectorSkips")
    assert {each["involvedObject"]["uid"] for each in model.all("events")} <= {"uid-1"}


async def test_sidecar_that_is_injected_in_ambient_mode_is_named(model: FakeApiserver):
    sidecar = {"annotations": {names.SIDECAR_STATUS: "{}"}}

    def inject(pod: Object) -> Object:
        is_own = pod["spec"]["containers"][0]["image"] == OWN_IMAGE
        return pod if is_own else {**pod, "metadata": {**pod["metadata"], **sidecar}}

    model.put("pods", pod_of_unit("main", "istio-proxy", **sidecar))
    model.admission = inject
    model.namespace(MODEL, labels=AMBIENT)
    async with converging(model, data_plane="ambient"):
        await until(lambda: remembered(model).holds)
    (hold,) = remembered(model).holds.values()
    message = "the injector gives pods of StatefulSet/web a sidecar all the same"
    assert (hold.reason, hold.message) == ("InjectorSkips", message)


# What comes of an eviction that is refused.

BUDGETS = "This pod has more than one PodDisruptionBudget, which is not supported"
DENIED = 'admission webhook "a.team" denied the request: no'


@cases(
    ("error", "result", "reason", "seconds", "message"),
    gone=(Refused(code=404), "gone", "", 0, ""),
    another_pod_now=(Refused(code=409), "replaced", "", 0, ""),
    budget=(Refused("budget", 429), "budget", "DisruptionBudget", 10, "budget"),
    budget_that_says_when=(
        *(Refused(code=429, Retry_After="40"), "budget", "DisruptionBudget", 40, "fake"),
    ),
    forbidden=(
        *(Refused("no right"), "forbidden", "Forbidden", 60),
        "not allowed to create pods/eviction: no right",
    ),
    two_budgets=(Refused(BUDGETS, 500), "refused", "EvictionRefused", 60, BUDGETS),
    unprocessable=(Refused("odd", 422), "refused", "EvictionRefused", 60, "odd"),
    webhook=(
        *(Refused(DENIED), "refused", "EvictionRefused", 60),
        'webhook "a.team" refuses: no',
    ),
    webhook_away=(
        *(Refused('failed calling webhook "a.team": timed out', 500), "refused"),
        *("EvictionRefused", 60, 'webhook "a.team" does not answer: timed out'),
    ),
    unknown=(Refused(code=503), "error", "", 0, ""),
)
async def test_refused_eviction_is_remembered_and_tried_again_in_its_time(
    model: FakeApiserver, *, error: Refused, result: str, reason: str, seconds: float, message: str
):
    def refuse_once(method: str, path: str) -> None:
        if path.endswith("/eviction"):
            model.before_answer = lambda method, path: None
            raise error

    model.before_answer = refuse_once
    async with converging(model, leader=False) as service:
        before, done = [
            await service.counted("evictions_total", each) for each in (result, "evicted")
        ]
        service.change(leader=True)
        await until(lambda: service.shows(before + 1, "evictions_total", result))
        if reason:
            await until(lambda: remembered(model).holds)
            (hold,) = remembered(model).holds.values()
            assert not remembered(model).rounds
            assert (hold.reason, hold.until) == (reason, pytest.approx(hold.since + seconds, 1))
            assert hold.message == message
        if reason or result == "error":
            # Where it may have happened, the round stays for a while.
            await asyncio.sleep((seconds or 12) - 2)
            assert model.evicted == []
        await until(lambda: model.evicted, seconds=60 if reason or result == "error" else 5)
        await until(lambda: service.shows(done + 1, "evictions_total", "evicted"))


async def test_eviction_without_an_answer_may_have_happened(model: FakeApiserver):
    def break_off(method: str, path: str) -> None:
        if path.endswith("/eviction"):
            raise asyncio.CancelledError

    model.before_answer = break_off
    async with converging(model, leader=False) as service:
        before = await service.counted("evictions_total", "unknown")
        service.change(leader=True)
        await until(lambda: service.shows(before + 1, "evictions_total", "unknown"))
        assert {*remembered(model).rounds} == {"StatefulSet/web"}


# Others beside it.


def another_leader(model: FakeApiserver, service: Service) -> None:
    service.change(leader=False)


def another_writer(model: FakeApiserver, service: Service, text: str = "kept") -> None:
    metadata = {"name": MEMORY, "namespace": MODEL}
    model.put("configmaps", {"metadata": metadata, "data": {"theirs": text}})


def memory_deleted(model: FakeApiserver, service: Service) -> None:
    model.delete("configmaps", MODEL, MEMORY)


def another_pod(model: FakeApiserver, service: Service) -> None:
    model.delete("pods", MODEL, "web-0")
    model.put("pods", injected(without_sidecar("uid-2")))


@cases(
    ("at", "change", "evicts"),
    memory_written_by_another=("/configmaps", another_writer, True),
    memory_updated_by_another=(f"/configmaps/{MEMORY}", another_writer, True),
    memory_deleted=(f"/configmaps/{MEMORY}", memory_deleted, True),
    # It notes what it is about to evict.
    leads_no_more=("/configmaps", another_leader, False),
    pod_of_the_same_name=("/eviction", another_pod, False),
)
async def test_pod_that_took_the_name_of_the_one_to_evict_stays(
    model: FakeApiserver, capsys: pytest.CaptureFixture[str], *, at: str, change: Any, evicts: bool
):
    """So it is while another unit begins to lead; a memory that is written disturbs nothing."""

    def happen(method: str, path: str) -> Awaitable[None] | None:
        if method == "GET" or not path.endswith(at):
            return None
        model.before_answer = lambda *_: None
        change(model, service)
        # The service reads its settings each second.
        return asyncio.sleep(2)

    async with converging(model, leader=False) as service:
        if at.endswith(MEMORY):
            another_writer(model, service, "before")
        model.before_answer = happen
        service.change(leader=True)
        await until(lambda: model.before_answer is not happen)
        before = looked(model)
        await until(lambda: looked(model) >= before + 5)
    assert model.evicted == ["uid-1"] * evicts
    if change is another_writer:
        assert model.get("configmaps", MODEL, MEMORY)["data"]["theirs"] == "kept"
    assert "convergence interrupted" not in capsys.readouterr().err


async def test_leader_goes_on_after_errors_and_without_the_right_to_list_injectors(
    model: FakeApiserver,
):
    model.denied = lambda method, path: path.endswith("/mutatingwebhookconfigurations")
    model.failures = [(f"/namespaces/{MODEL}/configmaps/{MEMORY}", 500, {})] * 2
    model.failures += [("/replicasets", 500, {})] * 8
    async with converging(model):
        await until(lambda: model.evicted)
    assert not model.failures


async def test_leader_waits_for_rights_that_come_late(model: FakeApiserver):
    model.denied = lambda *_: True
    async with converging(model):
        for part in ("/pods", "/configmaps"):
            await until(lambda part=part: any(part in path for _, path in model.requests))
        await asyncio.sleep(30)
        model.denied = lambda *_: False
        await until(lambda: model.evicted)


@cases(
    "change",
    request_in_the_memory=another_writer,
    pod=another_pod,
    option=lambda _, service: service.change(restart_pods="manual"),
)
async def test_change_is_seen_at_once(model: FakeApiserver, change: Any):
    model.put("pods", injected(without_sidecar()))
    async with converging(model, leader=False) as service:
        await until(lambda: looked(model))
        await asyncio.sleep(5)
        before = looked(model)
        change(model, service)
        await asyncio.sleep(5)
        assert looked(model) > before


async def test_pod_that_is_not_as_the_watch_has_shown_it_is_not_acted_on(model: FakeApiserver):
    model.put("pods", injected(without_sidecar("uid-2")))
    async with converging(model) as service:
        await until(service.is_ready)
        before = looked(model)
        model.say("pods", "ADDED", json.dumps(without_sidecar()).encode())
        await until(lambda: looked(model) > before)
        await asyncio.sleep(5)
    assert {method for method, _ in model.requests} == {"GET"}


async def test_stand_by_looks_and_does_nothing_until_it_leads(model: FakeApiserver):
    async with converging(model, leader=False) as service:
        await until(lambda: looked(model) >= 5)
        assert {method for method, _ in model.requests} == {"GET"}
        service.change(leader=True)
        await until(lambda: model.evicted)


# What it counts.


@cases(
    ("applied", "want"),
    ours=("hold,labels", ["hold", "labels"]),
    long=("hold,".ljust(256, "x"), ["hold"]),
    too_long=("hold,".ljust(257, "x"), []),
    of_others=(",".join(f"x{number}" for number in range(30)), []),
)
async def test_pods_are_counted_by_each_change_that_admission_made_to_them(
    model: FakeApiserver, applied: str, want: list[str]
):
    pod = without_sidecar()
    pod["metadata"]["annotations"] = {"istio-integrator.charmhub.io/applied": applied}
    model.put("pods", pod)
    async with converging(model, leader=False) as service:
        # What the metrics showed before is gone after the first look.
        await until(lambda: looked(model) >= 2)
        shown = (await service.metrics()).items()
    name = "sidecar_lifecycle_applied_pods"
    assert [(*key, value) for key, value in shown if key[0] == name] == [
        (name, change, 1) for change in want
    ]


async def test_pod_that_went_is_counted_no_more(model: FakeApiserver):
    replacement = injected(without_sidecar("uid-2"))
    replacement["metadata"]["name"] = "web-other"

    async with converging(model, leader=False) as service:
        await until(lambda: service.shows(1, "uninjected_pods"))
        model.delete("pods", MODEL, "web-0")
        model.put("pods", replacement)
        await until(lambda: service.shows(1, "in_mesh_pods"))
        await until(lambda: service.shows(0, "uninjected_pods"))


# The memory.


async def test_memory_keeps_what_others_wrote_about_it(model: FakeApiserver):
    owner = {"apiVersion": "v1", "kind": "ClusterRole", "name": "theirs", "uid": "u"}
    owner |= {"blockOwnerDeletion": False}
    metadata = {"name": MEMORY, "namespace": MODEL, "labels": {"a": "b"}}
    metadata |= {"annotations": {"c": "d"}, "ownerReferences": [owner]}
    model.put("configmaps", {"metadata": metadata})
    async with converging(model):
        await until(lambda: remembered(model).rounds)

    written = model.get("configmaps", MODEL, MEMORY)["metadata"]
    ours = names.make_labels(MODEL, "mesh-2", "convergence")
    assert written["labels"] == {"a": "b", **ours}
    assert written["annotations"] == {"c": "d"}
    assert written["ownerReferences"] == [owner]


async def test_hold_stays_while_its_workload_has_no_pod(model: FakeApiserver):
    remember(model, memory.Memory(holds={"StatefulSet/web": a_hold(fingerprint="")}))
    model.delete("pods", MODEL, "web-0")
    async with converging(model):
        await until(lambda: looked(model) > 2)
    assert [*remembered(model).holds] == ["StatefulSet/web"]
