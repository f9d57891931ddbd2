"""Convergence on the small apiserver: who evicts, exactly what, and what it keeps in mind."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import structlog
from sidecar_lifecycle.decide.convergence import facts, memory, plan
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.convergence import controller
from sidecar_lifecycle.shell.kube import errors, events
from sidecar_lifecycle.shell.settings import Live, Settings

from tests.unit.workload import fake_apiserver, pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True
MODEL = "kubeflow"
SETTINGS = Settings(
    model=MODEL,
    application="istio-integrator",
    unit="istio-integrator/0",
    joined=True,
    leader=True,
)
STAND_BY = dataclasses.replace(SETTINGS, leader=False)
EPOCH = datetime.datetime(2026, 1, 1, 1, tzinfo=datetime.UTC).timestamp()
"""An hour after the pods of the builder came up."""
MEMORY = "istio-integrator-convergence"


class Apiserver(FakeApiserver):
    """Evicts pods as the real one does, and injects sidecars into those that are created dry."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = injected
        self.evicted: list[str] = []

    async def _single(self, request: Any, key: fake_apiserver.Key) -> Any:
        if not request.path.endswith("/eviction"):
            return await super()._single(request, key)
        wanted = json.loads(await request.read()).get("deleteOptions", {}).get("preconditions", {})
        found = self.objects[key]["metadata"]
        if any(found.get(field) != value for field, value in wanted.items()):
            return fake_apiserver._status(409, "Conflict")
        self.evicted.append(found["uid"])
        self.delete(*key)
        return fake_apiserver._status(201, "")


def injected(pod: dict[str, Any]) -> dict[str, Any]:
    spec = pod["spec"]
    return {**pod, "spec": {**spec, "containers": [*spec["containers"], {"name": "istio-proxy"}]}}


class LoopClock(controller.Clock):
    """The loop's time, which jumps."""

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()


def without_sidecar(uid: str = "uid-1") -> dict[str, Any]:
    """A pod of a StatefulSet that came up before the mesh was there."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "uid-of-web"}
    pod = pods.pod_json(
        pods.running(),
        name="web-0",
        namespace=MODEL,
        uid=uid,
        policy="Always",
        ownerReferences=[{**owner, "controller": True}],
        creationTimestamp="2026-01-01T00:00:00Z",
        conditions=[
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}
        ],
    )
    for place, key in ((pod["spec"], "containers"), (pod["status"], "containerStatuses")):
        place[key] = [each for each in place[key] if each["name"] != "istio-proxy"]
    return pod


@pytest.fixture
async def cluster() -> AsyncIterator[Apiserver]:
    fake = Apiserver()
    async with fake:
        fake.namespace(MODEL, labels={"istio-injection": "enabled"})
        certificate = {"name": "istio-ca-root-cert", "namespace": MODEL}
        fake.put("configmaps", {"metadata": certificate})
        spec = {"replicas": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}
        for name in ("web", "istio-integrator"):
            metadata = {"name": name, "namespace": MODEL, "uid": f"uid-of-{name}"}
            metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
            fake.put("statefulsets", {"metadata": metadata, "spec": spec})
        fake.put("pods", without_sidecar())
        yield fake


@contextlib.asynccontextmanager
async def converging(cluster: Apiserver, *, live: Live | None = None) -> AsyncIterator[None]:
    run = controller.run(cluster.client, live or Live(SETTINGS), clock=LoopClock())
    async with running_task(run) as task:
        yield
        assert not task.done()


def looked(cluster: Apiserver) -> int:
    """How often the memory was looked at, which each look begins with."""
    return cluster.requests.count(("GET", f"/api/v1/namespaces/{MODEL}/configmaps/{MEMORY}"))


async def test_leader_replaces_a_pod_that_missed_its_sidecar(cluster: Apiserver):
    async with converging(cluster):
        await until(lambda: cluster.evicted)
        await until(lambda: cluster.all("events"))

    assert cluster.evicted == ["uid-1"]
    (event,) = cluster.all("events")
    assert (event["reason"], event["involvedObject"]["uid"]) == ("SidecarMissing", "uid-1")
    assert event["message"].endswith("StatefulSet/web creates it again with a sidecar")


async def test_pod_is_replaced_soon_after_it_has_been_ready_for_a_minute(cluster: Apiserver):
    pod = without_sidecar()
    now = datetime.datetime.fromtimestamp(LoopClock().now(), tz=datetime.UTC)
    pod["status"]["conditions"][0]["lastTransitionTime"] = now.isoformat()
    cluster.put("pods", pod)
    async with converging(cluster):
        await until(lambda: cluster.evicted)
        assert plan.READY_FOR <= LoopClock().now() - now.timestamp() <= plan.READY_FOR + 7


def remembered(cluster: Apiserver) -> memory.Memory:
    """What the ConfigMap says, if there is one."""
    found = (each for each in cluster.all("configmaps") if each["metadata"]["name"] == MEMORY)
    return memory.decode(next((each["data"] for each in found), {}))


async def test_refused_eviction_is_remembered_and_tried_again_in_its_time(cluster: Apiserver):
    cluster.failures = [("/eviction", 429, {"Retry-After": "40"})]
    async with converging(cluster):
        await until(lambda: not cluster.failures)
        await until(lambda: remembered(cluster).holds)
        assert {*remembered(cluster).holds} == {"StatefulSet/web"}
        assert not remembered(cluster).rounds
        await asyncio.sleep(30)
        assert cluster.evicted == []
        await until(lambda: cluster.evicted)


@pytest.mark.parametrize(
    ("error", "result"),
    [(errors.Unreachable("reset"), "unknown"), (errors.StatusError(503), "error")],
)
async def test_eviction_without_a_clear_answer_may_have_happened(
    cluster: Apiserver, monkeypatch: pytest.MonkeyPatch, error: Exception, result: str
):
    async def evict(self: hands.Cluster, replica: facts.Replica) -> None:
        raise error

    monkeypatch.setattr(hands.Cluster, "evict", evict)
    counted = "sidecar_lifecycle_evictions_total", {"result": result}
    before = metrics.REGISTRY.get_sample_value(*counted) or 0
    async with converging(cluster):
        await until(lambda: metrics.REGISTRY.get_sample_value(*counted) == before + 1)
        assert {*remembered(cluster).rounds} == {"StatefulSet/web"}


async def test_pod_that_the_injector_skips_is_told_of(cluster: Apiserver):
    def only_the_trial(pod: dict[str, Any]) -> dict[str, Any]:
        return injected(pod) if pod["spec"]["containers"][0]["name"] == "trial" else pod

    cluster.admission = only_the_trial
    async with converging(cluster):
        await until(lambda: cluster.all("events"))

    (event,) = cluster.all("events")
    assert (event["reason"], event["type"]) == ("InjectorSkips", "Warning")
    assert event["involvedObject"]["uid"] == "uid-1"
    assert cluster.evicted == []


async def test_leader_goes_on_when_somebody_else_wrote_the_memory(cluster: Apiserver):
    def write(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/configmaps"):
            cluster.before_answer = lambda method, path: None
            cluster.put("configmaps", {"metadata": {"name": MEMORY, "namespace": MODEL}})

    cluster.before_answer = write
    with structlog.testing.capture_logs() as said:
        async with converging(cluster):
            await until(lambda: cluster.evicted)
    assert not [each for each in said if each["event"] == "convergence interrupted"]


async def test_leader_goes_on_when_the_apiserver_was_in_trouble(cluster: Apiserver):
    cluster.failures = [(f"/namespaces/{MODEL}/configmaps/{MEMORY}", 500, {})] * 2
    async with converging(cluster):
        await until(lambda: cluster.evicted)
    assert not cluster.failures


async def test_request_in_the_memory_is_seen_at_once(cluster: Apiserver):
    cluster.put("pods", injected(without_sidecar()))
    async with converging(cluster, live=Live(STAND_BY)):
        await until(lambda: looked(cluster))
        await asyncio.sleep(5)
        before = looked(cluster)
        cluster.put("configmaps", {"metadata": {"name": MEMORY, "namespace": MODEL}})
        await asyncio.sleep(5)
        assert looked(cluster) > before


async def test_pod_that_is_not_as_the_watch_has_shown_it_is_not_acted_on(cluster: Apiserver):
    cluster.put("pods", injected(without_sidecar("uid-2")))
    clock = LoopClock()
    subject = controller.Controller(
        cluster=hands.Cluster(cluster.client, Live(SETTINGS), clock.now),
        recorder=events.Recorder(cluster.client),
        progress=lambda _: None,
        clock=clock,
        pods={(MODEL, "web-0"): msgspec.convert(without_sidecar(), types.Pod)},
    )
    await subject.look()
    assert {method for method, _ in cluster.requests} == {"GET"}


async def test_stand_by_looks_and_does_nothing_until_it_leads(cluster: Apiserver):
    live = Live(STAND_BY)
    async with converging(cluster, live=live):
        await until(lambda: looked(cluster) >= 5)
        assert {method for method, _ in cluster.requests} == {"GET"}
        live.change(SETTINGS)
        await until(lambda: cluster.evicted)


async def test_unit_that_leads_no_more_evicts_nothing_more(cluster: Apiserver):
    live = Live(SETTINGS)

    def lose(method: str, path: str) -> None:
        # It notes what it is about to evict.
        if method == "POST" and path.endswith("/configmaps"):
            live.change(STAND_BY)

    cluster.before_answer = lose
    async with converging(cluster, live=live):
        await until(lambda: not live.current.leader)
        before = looked(cluster)
        await until(lambda: looked(cluster) >= before + 5)

    assert remembered(cluster).rounds
    assert cluster.evicted == []


def counted(name: str) -> float:
    full = f"sidecar_lifecycle_{name}"
    figures = (each for each in metrics.REGISTRY.collect() if each.name == full)
    return sum(sample.value for each in figures for sample in each.samples)


@pytest.mark.parametrize(
    ("applied", "want"),
    [
        pytest.param("hold,labels", 2, id="ours"),
        pytest.param("hold,".ljust(256, "x"), 1, id="long"),
        pytest.param("hold,".ljust(257, "x"), 0, id="too-long"),
        pytest.param(",".join(f"x{number}" for number in range(30)), 0, id="of-others"),
    ],
)
async def test_pods_are_counted_by_each_change_that_admission_made_to_them(
    cluster: Apiserver, applied: str, want: int
):
    pod = without_sidecar()
    pod["metadata"]["annotations"] = {"istio-integrator.charmhub.io/applied": applied}
    cluster.put("pods", pod)
    async with converging(cluster, live=Live(STAND_BY)):
        # What the metrics showed before is gone after the first look.
        await until(lambda: looked(cluster) >= 2)
        assert counted("applied_pods") == want


async def test_pod_that_went_is_counted_no_more(cluster: Apiserver):
    replacement = injected(without_sidecar("uid-2"))
    replacement["metadata"]["name"] = "web-other"

    async with converging(cluster, live=Live(STAND_BY)):
        await until(lambda: counted("uninjected_pods") == 1)
        cluster.delete("pods", MODEL, "web-0")
        cluster.put("pods", replacement)
        await until(lambda: counted("in_mesh_pods") == 1)
        await until(lambda: counted("uninjected_pods") == 0)


async def test_pod_that_took_the_name_of_the_one_to_evict_stays(cluster: Apiserver):
    def recreate(method: str, path: str) -> None:
        if path.endswith("/eviction"):
            cluster.before_answer = lambda method, path: None
            cluster.delete("pods", MODEL, "web-0")
            cluster.put("pods", injected(without_sidecar("uid-2")))

    cluster.before_answer = recreate
    async with converging(cluster):
        await until(lambda: cluster.get("pods", MODEL, "web-0")["metadata"]["uid"] == "uid-2")
        before = looked(cluster)
        await until(lambda: looked(cluster) >= before + 5)

    assert cluster.evicted == []
    assert cluster.get("pods", MODEL, "web-0")["metadata"]["uid"] == "uid-2"


async def test_memory_keeps_what_others_wrote_about_it(cluster: Apiserver):
    owner = {"apiVersion": "v1", "kind": "ClusterRole", "name": "theirs", "uid": "u"}
    owner |= {"blockOwnerDeletion": False}
    metadata = {"name": MEMORY, "namespace": MODEL, "labels": {"a": "b"}}
    metadata |= {"annotations": {"c": "d"}, "ownerReferences": [owner]}
    cluster.put("configmaps", {"metadata": metadata})
    subject = hands.Cluster(cluster.client, Live(SETTINGS))
    await subject.remember(await subject.recall(), {"state": "{}"})

    written = cluster.get("configmaps", MODEL, MEMORY)["metadata"]
    assert written["labels"].items() > {"a": "b"}.items()
    assert written["annotations"] == {"c": "d"}
    assert written["ownerReferences"] == [owner]


async def test_memory_that_was_made_or_deleted_meanwhile_is_a_conflict(cluster: Apiserver):
    subject = hands.Cluster(cluster.client, Live(SETTINGS))
    nothing = await subject.recall()
    written = await subject.remember(nothing, {"state": "theirs"})
    with pytest.raises(hands.Conflict):
        await subject.remember(nothing, {"state": "ours"})
    assert cluster.get("configmaps", MODEL, MEMORY)["data"] == {"state": "theirs"}

    cluster.delete("configmaps", MODEL, MEMORY)
    with pytest.raises(hands.Conflict):
        await subject.remember(written, {"state": "ours"})
    assert remembered(cluster) == memory.Memory()
