"""A stop only reaches the pod and the proxy that were judged, not later ones of that name."""

import asyncio
import copy
import gc
import tracemalloc
from collections import Counter
from typing import Any

import msgspec
import pytest

from integrator_contract import names
from tests.unit.api_server import Refused
from tests.unit.cases import cases, row
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.pods import container, ended, pod_json, running, waiting
from tests.unit.workload.service_world import Service
from tests.unit.workload.shutdown_world import NAMESPACE, OWNED, event_reasons, opened, phase, unit
from tests.unit.workload.test_rules_finished import ROWS


def with_proxy(number: int, **extra: Any) -> dict[str, Any]:
    """A finished pod whose proxy has been started so many times before."""
    pod = pod_json(policy="OnFailure", **extra)
    for status in pod["status"]["containerStatuses"]:
        if status["name"] == "istio-proxy":
            status["containerID"] = f"containerd://proxy-{number}"
    return pod


@cases(
    ("transport", "denied", "asked_last"),
    port_forward=("port-forward", "none", "/portforward"),
    exec=("exec", "/portforward", "/pods/job-x"),
)
@cases(
    ("now", "is_stopped"),
    another_pod=(with_proxy(0, uid="uid-2"), True),
    another_proxy=(with_proxy(1), True),
    another_pod_whose_payload_runs=(with_proxy(0, uid="uid-2", main=running()), False),
    the_payload_runs=(with_proxy(0, main=running()), False),
    deleted=(with_proxy(0, deletionTimestamp="2026-01-01T00:02:00Z"), False),
)
async def test_what_is_not_as_it_was_judged_gets_no_stop(
    cluster: FakeApiserver,
    *,
    transport: str,
    denied: str,
    asked_last: str,
    now: dict[str, Any],
    is_stopped: bool,
):
    """It changes at the last request before the stop; what took its place is judged again."""

    def change(method: str, path: str) -> None:
        if path.endswith(asked_last):
            cluster.before_answer = lambda method, path: None
            if now["metadata"]["uid"] != "uid-1":
                cluster.delete("pods", NAMESPACE, "job-x")
            cluster.put("pods", now)

    cluster.denied = lambda method, path: path.endswith(denied)
    cluster.before_answer = change
    async with unit(cluster) as service:
        before = await service.counted("stops_total", "changed", transport)
        cluster.put("pods", with_proxy(0))
        await until(lambda: any(path.endswith(asked_last) for _, path in cluster.requests))
        await asyncio.sleep(60)
        assert await service.counted("stops_total", "changed", transport) == before + 1

    # A way in that was opened for another is left unused.
    assert cluster.proxies["job-x"].requests == [transport] * is_stopped
    assert (phase(cluster) == "Succeeded") is is_stopped


async def test_proxy_that_comes_back_while_its_stop_ends_is_stopped_again(cluster: FakeApiserver):
    def come_back(method: str, path: str) -> None:
        # At once, so that the stop under way sees neither its end nor its beginning.
        if cluster.proxies["job-x"].requests:
            cluster.before_answer = lambda method, path: None
            cluster.get("pods", NAMESPACE, "job-x")["status"]["phase"] = "Running"
            cluster.put("pods", with_proxy(1))

    cluster.before_answer = come_back
    cluster.proxies["job-x"].mode = "deaf"
    cluster.put("pods", with_proxy(0))
    async with unit(cluster):
        await until(lambda: phase(cluster) == "Succeeded")

    assert len(cluster.proxies["job-x"].requests) == 2


async def test_payload_that_runs_for_a_moment_while_a_stop_hangs_has_its_proxy_stopped_after(
    cluster: FakeApiserver,
):
    proxy, shown = cluster.proxies["job-x"], ("pods", "wait", "PayloadRunning")
    proxy.mode = "hang"
    cluster.put("pods", with_proxy(0))
    async with unit(cluster) as service:
        await until(lambda: proxy.requests)
        proxy.mode = "ok"
        count = 1 + await service.counted(*shown)
        cluster.set_state(NAMESPACE, "job-x", "main", running())
        await until(lambda: service.shows(count, *shown))
        cluster.set_state(NAMESPACE, "job-x", "main", ended())
        await until(lambda: phase(cluster) == "Succeeded")


TEAM = "team"
SERVED = {"istio-integrator.charmhub.io/served": "enabled"}


def broken_pod(owner: str = "u", name: str = "job-x", **extra: Any) -> dict[str, Any]:
    values = {
        "ownerReferences": [OWNED[0], {**OWNED[1], "uid": owner}],
        "uid": f"uid-{name}",
        "namespace": TEAM,
        **extra,
    }
    return pod_json(**{"main": running(), "proxy": ended(), "name": name, **values})


@cases(
    ("pod", "denied", "at_deletion", "why", "stays"),
    {"denied": "", "at_deletion": {}, "why": "", "stays": True},
    owned=(broken_pod(), "", {}, "", False),
    bare=row(pod=broken_pod(ownerReferences=[])),
    owned_by_no_controller=row(
        pod=broken_pod(ownerReferences=[{**OWNED[1], "controller": False}])
    ),
    forbidden=(broken_pod(), "no", {}, "missing permission to delete pods here", True),
    forbidden_by_a_webhook=row(
        pod=broken_pod(),
        denied='admission webhook "keep.example" denied the request: ask us',
        why='webhook "keep.example" refuses: ask us',
    ),
    another_pod=row(pod=broken_pod(), at_deletion={"uid": "uid-2"}),
    the_pod_in_another_state=row(pod=broken_pod(), at_deletion={"resourceVersion": "999999"}),
    part_of_its_work_is_done=row(
        pod=broken_pod(main=ended(), others={"helper": running()}),
        why="main succeeded, and a new pod would run it again",
    ),
)
async def test_only_the_very_pod_that_was_judged_is_replaced(
    cluster: FakeApiserver,
    *,
    pod: dict[str, Any],
    denied: str,
    at_deletion: dict[str, str],
    why: str,
    stays: bool,
):
    def change(method: str, path: str) -> None:
        if method == "DELETE" and denied:
            raise Refused(denied)
        if method == "DELETE":
            cluster.get("pods", TEAM, "job-x")["metadata"].update(at_deletion)

    cluster.namespace(TEAM, labels=SERVED)
    cluster.before_answer = change
    cluster.put("pods", pod)
    async with unit(cluster, delete_broken_pods=True):
        reasons = [*["PodNotReplaced"] * bool(why), "ProxyLost"]
        await until(lambda: event_reasons(cluster) == reasons)
        await asyncio.sleep(5)

    assert bool(cluster.all("pods")) is stays
    events = [each for each in cluster.all("events") if each["reason"] != "ProxyLost"]
    told = [each["message"] for each in events]
    assert told == [f"The pod is not replaced: {why}."] * bool(why)


async def test_controller_whose_pods_lose_their_proxy_again_and_again_is_left(
    cluster: FakeApiserver,
):
    cluster.namespace(TEAM, labels=SERVED)
    cluster.failures = [("/pods/kept", 500, {})]
    cluster.put("pods", broken_pod("j", "kept"))
    async with unit(cluster, delete_broken_pods=True):
        await until(lambda: not cluster.failures)
        cluster.delete("pods", TEAM, "kept")
        for number in range(3):
            cluster.put("pods", broken_pod("j", f"j-{number}"))
            await until(lambda: cluster.all("pods") == [])
        cluster.put("pods", broken_pod("j", "last"))
        await until(lambda: "PodNotReplaced" in event_reasons(cluster))
        cluster.put("pods", broken_pod("other", "other"))
        await until(lambda: len(cluster.all("pods")) == 1)
        await asyncio.sleep(60)

    assert [each["metadata"]["name"] for each in cluster.all("pods")] == ["last"]
    (event,) = [each for each in cluster.all("events") if each["reason"] == "PodNotReplaced"]
    why = "3 pods of the same controller were deleted for this already"
    assert event["message"] == f"The pod is not replaced: {why}."


# What is watched.


@pytest.mark.parametrize("how", ["ended", "410"])
async def test_watch_interruptions_lose_nothing(cluster: FakeApiserver, how: str):
    for name in ("job-x", "goes", "other"):
        cluster.put("pods", pod_json(running(), name=name, uid=f"uid-{name}"))
    async with unit(cluster) as service:
        await until(service.is_ready)
        relists, kept = await service.counted("relists_total"), await service.counted("pods")
        cluster.end_watches()
        cluster.set_state(NAMESPACE, "job-x", "main", ended())
        cluster.delete("pods", NAMESPACE, "goes")
        # Another pod without a sidecar takes the name.
        cluster.delete("pods", NAMESPACE, "other")
        bare = pod_json(running(), name="other", uid="uid-2", labels={})
        del bare["spec"]["containers"][1]
        cluster.put("pods", bare)
        if how != "ended":
            cluster.compact()
        await until(lambda: phase(cluster) == "Succeeded")
        await until(lambda: service.shows(kept - 3, "pods"))
        assert await service.counted("relists_total") - relists == (how != "ended")


async def test_stop_is_cancelled_when_the_pod_goes(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = "hang"
    cluster.put("pods", pod_json())
    async with unit(cluster) as service:
        await until(lambda: proxy.requests)
        kept = await service.counted("pods")
        cluster.delete("pods", NAMESPACE, "job-x")
        await until(lambda: service.shows(0, "stops_in_flight"), seconds=2)
        await until(lambda: not cluster.streams, seconds=2)
        assert await service.shows(kept - 1, "pods")
        await asyncio.sleep(60)
        assert await service.shows(0, "stops_pending")
        assert len(opened(cluster)) == 1


OFF = {"istio-integrator.charmhub.io/proxy-shutdown": "disabled"}


@cases(
    ("metadata", "served_later"),
    other=({}, True),
    profile=({"labels": {"app.kubernetes.io/part-of": "kubeflow-profile"}}, None),
    shutdown_disabled=({"labels": SERVED, "annotations": OFF}, True),
    shutdown_enabled=({"labels": SERVED, "annotations": dict.fromkeys(OFF, "enabled")}, None),
)
@pytest.mark.parametrize("wide", [True, False], ids=["cluster-wide", "per-namespace"])
async def test_namespaces_in_scope(
    cluster: FakeApiserver, metadata: dict[str, Any], served_later: bool | None, wide: bool
):
    cluster.denied = lambda method, path: not wide and path == "/api/v1/pods"
    cluster.namespace("team", **metadata)
    cluster.put("pods", pod_json(namespace="team"))
    async with unit(cluster) as service:
        await until(service.is_ready)
        await asyncio.sleep(30)
        assert (phase(cluster, namespace="team") == "Running") is bool(served_later)
        cluster.namespace("team", labels=SERVED)
        await until(lambda: phase(cluster, namespace="team") == "Succeeded")


async def test_service_is_ready_while_no_namespace_of_the_served_kinds_exists(
    cluster: FakeApiserver,
):
    cluster.denied = lambda method, path: path == "/api/v1/pods"
    async with unit(cluster, served_namespaces=frozenset({"labelled"})) as service:
        await until(service.is_ready)
        kept = await service.counted("pods")
        for number, namespace in enumerate(("team", "other"), 1):
            for name in (f"{namespace}-a", f"{namespace}-b"):
                cluster.put("pods", pod_json(running(), namespace=namespace, name=name, uid=name))
            cluster.namespace(namespace, labels=SERVED)
            await until(lambda count=kept + 2 * number: service.shows(count, "pods"))
        for kind, count in (("profiles", kept), ("labelled", kept + 4)):
            service.change(served_namespaces=frozenset({kind}))
            await until(lambda count=count: service.shows(count, "pods"), seconds=30)
        # Pods of a namespace that is served no more are forgotten, and no others.
        cluster.namespace("team")
        await until(lambda: service.shows(kept + 2, "pods"))
        cluster.delete("namespaces", "", "other")
        await until(lambda: service.shows(kept, "pods"))


async def test_right_to_list_namespaces_may_be_granted_later(cluster: FakeApiserver):
    cluster.denied = lambda method, path: path == "/api/v1/namespaces"
    cluster.put("pods", pod_json())
    async with unit(cluster):
        await asyncio.sleep(5)
        cluster.denied = lambda method, path: False
        await until(lambda: phase(cluster) == "Succeeded")


async def test_switching_off_ends_stops_that_are_pending(cluster: FakeApiserver):
    cluster.denied = lambda method, path: path.endswith(("/portforward", "/exec"))
    cluster.put("pods", pod_json())
    async with unit(cluster) as service:
        await until(lambda: service.shows(1, "stops_pending"))
        await until(lambda: len(opened(cluster)) > 3)
        service.change(proxy_shutdown=False)
        await until(lambda: service.shows(0, "stops_pending"))


async def test_pods_without_a_node_or_a_sidecar_are_not_kept(cluster: FakeApiserver):
    web = pod_json(name="web", uid="web", policy="Always", labels={})
    del web["spec"]["containers"][1]
    queued = pod_json(waiting(), name="queued", uid="queued", init=[container("first")])
    del queued["spec"]["nodeName"]
    async with unit(cluster) as service:
        await until(service.is_ready)
        kept = await service.counted("pods")
        for each in (web, queued):
            cluster.put("pods", each)
        web["metadata"]["labels"] = {"app": "web"}
        cluster.put("pods", web)
        await asyncio.sleep(5)
        assert await service.shows(kept, "pods")
        queued["spec"]["nodeName"] = "node-1"
        cluster.put("pods", queued)
        await until(lambda: service.shows(kept + 1, "pods"))


async def listed(cluster: FakeApiserver, service: Service, items: list[dict[str, Any]]) -> None:
    """Put these pods as they are, without the phases that a kubelet would report."""
    relists = await service.counted("relists_total")
    # The watch that ends hears of none of them.
    cluster.end_watches()
    for number, item in enumerate(items):
        item["metadata"] |= {"name": f"pod-{number}", "uid": f"uid-{number}"}
        cluster.keep(("v1", "pods", NAMESPACE, f"pod-{number}"), item)
    cluster.compact()
    await until(lambda: service.shows(relists + 1, "relists_total"))


async def test_service_decides_by_what_it_keeps_of_a_pod_as_by_the_whole(cluster: FakeApiserver):
    """By the rows of the decision, of which those that are not ignored are all kept."""
    # The turn of this unit to stop proxies never comes.
    async with unit(cluster, 1000) as service:
        await until(service.is_ready)
        before = await service.metrics()
        await listed(cluster, service, [msgspec.to_builtins(pod) for pod, _ in ROWS.values()])
        after = await service.metrics()

    pods = [key for key in after if key[0] == "sidecar_lifecycle_pods" and key[1] != "ignore"]
    count = {f"{key[1]} {key[2]}": after[key] - before.get(key, 0) for key in pods}
    wanted = Counter(want for _, want in ROWS.values() if not want.startswith("ignore"))
    assert {want: number for want, number in count.items() if number} == wanted


async def test_pod_under_watch_keeps_no_more_of_an_annotation_than_is_read(cluster: FakeApiserver):
    """Nor of what else tenants write, so that pods take little memory."""
    long = "disabled,5" * 10_000
    keys = (names.WAIT_FOR_CONTAINERS, names.PROXY_SHUTDOWN, names.STATUS_PORT, "another")
    pod = pod_json(
        annotations=dict.fromkeys(keys, long), labels={"a": long}, init=[container("b")]
    )
    for each in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        each["image"] = long
    async with unit(cluster, 1000) as service:
        await until(service.is_ready)
        kept = await service.counted("pods")
        tracemalloc.start()
        try:
            await listed(cluster, service, [copy.deepcopy(pod) for _ in range(15)])
            gc.collect()
            # The API server keeps its answer.
            others = tracemalloc.Filter(inclusive=False, filename_pattern="*api*server.py")
            held = tracemalloc.take_snapshot().filter_traces([others])
        finally:
            tracemalloc.stop()
        assert await service.shows(kept + 15, "pods")

    assert sum(each.size for each in held.traces) < 15 * len(long) / 2


async def test_event_that_is_being_written_is_finished_at_the_end(cluster: FakeApiserver):
    request = ("POST", f"/api/v1/namespaces/{NAMESPACE}/events")

    async def hold(*asked: str) -> None:
        await asyncio.sleep(0.5 if asked == request else 0)

    cluster.before_answer = hold
    cluster.put("pods", pod_json())
    async with unit(cluster):
        await until(lambda: request in cluster.requests)

    assert event_reasons(cluster) == ["ProxyStopped"]


@pytest.mark.parametrize("answers", [True, False])
async def test_asked_to_end_it_ends_before_pebble_kills_it_and_finishes_all_stops(
    cluster: FakeApiserver, answers: bool
):
    loop, answer_after = asyncio.get_running_loop(), {"fast": 0.5, "slow": 1}
    for name in answer_after:
        cluster.proxies[name].mode = "hang"
        cluster.put("pods", pod_json(name=name, uid=name))
    async with unit(cluster):
        await until(lambda: all(cluster.proxies[name].requests for name in answer_after))
        for name, seconds in answer_after.items() if answers else ():
            loop.call_later(seconds, cluster.proxies[name].release.set)
        asked = loop.time()

    assert loop.time() - asked < 4
    assert [phase(cluster, name) == "Succeeded" for name in answer_after] == [answers] * 2
