"""The reconciler against an apiserver with real frames; time is virtual."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.shutdown import reports, slots

from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.shutdown_world import (
    NAMESPACE,
    event_reasons,
    finished_pod,
    opened,
    phase,
    reconciler,
)

VIRTUAL_TIME = True


def at_most(per_node: int) -> slots.Limits:
    return slots.Limits(first=slots.Share(per_node=per_node, total=64))


async def test_pod_that_finishes_under_watch_completes(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(main=pods.running()))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        assert cluster.proxies["job-x"].requests == []
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
        await until(lambda: phase(cluster) == "Succeeded")
        await until(lambda: event_reasons(cluster) == ["ProxyStopped"])

    assert cluster.proxies["job-x"].requests == ["port-forward"]


async def test_pod_that_finished_while_nobody_watched_completes(cluster: FakeApiserver):
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")


async def test_proxy_that_ends_without_an_answer_counts_as_stopped(cluster: FakeApiserver):
    cluster.proxies["job-x"].mode = "mute"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: event_reasons(cluster) == ["ProxyStopped"])

    assert phase(cluster) == "Succeeded"


async def test_onfailure_payload_that_comes_back_keeps_its_proxy(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(main=pods.running(), policy="OnFailure"))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        for state in (pods.ended(1), pods.waiting(), pods.running(), pods.ended(1)):
            cluster.set_state(NAMESPACE, "job-x", "main", state)
            await asyncio.sleep(30)
        assert cluster.proxies["job-x"].requests == []
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended(0))
        await until(lambda: phase(cluster) == "Succeeded")


@pytest.mark.parametrize("mode", ["refused", "403", "no-http", "hang", "vanish", "deaf"])
async def test_exec_is_used_where_the_port_forward_fails(cluster: FakeApiserver, mode: str):
    cluster.proxies["job-x"].mode = mode
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")

    assert cluster.proxies["job-x"].requests[-1] == "exec"


async def test_proxy_that_answers_500_is_asked_again_the_same_way(cluster: FakeApiserver):
    cluster.proxies["job-x"].mode = "500"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: len(cluster.proxies["job-x"].requests) == 3)
        cluster.proxies["job-x"].mode = "ok"
        await until(lambda: phase(cluster) == "Succeeded")

    assert set(cluster.proxies["job-x"].requests) == {"port-forward"}


async def test_failing_stop_is_never_given_up_and_said_once(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode, proxy.exec_mode = "refused", "exit-1"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: cluster.all("events"))
        assert opened(cluster) == reports.FAILURES_BEFORE_EVENT
        await asyncio.sleep(3600)
        tries = len([path for _, path in cluster.requests if path.endswith("/portforward")])
        assert tries > 20
        assert event_reasons(cluster) == ["ProxyStopFailed"]
        proxy.exec_mode = "ok"
        await until(lambda: phase(cluster) == "Succeeded")


async def test_forbidden_port_forward_is_remembered_for_other_pods(cluster: FakeApiserver):
    cluster.denied = lambda method, path: path.endswith("/portforward")
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")
        cluster.put("pods", finished_pod(name="job-y", uid="uid-y"))
        await until(lambda: phase(cluster, "job-y") == "Succeeded")

    asked = [path for _, path in cluster.requests if path.endswith("/portforward")]
    assert len(asked) == 1


async def test_hung_proxy_delays_no_other_pod_of_its_node(cluster: FakeApiserver):
    for number in range(4):
        proxy = cluster.proxies[f"hung-{number}"]
        proxy.mode = proxy.exec_mode = "hang"
        cluster.put("pods", finished_pod(name=f"hung-{number}", uid=f"hung-{number}"))
    loop = asyncio.get_running_loop()
    async with reconciler(cluster):
        await asyncio.sleep(60)
        began = loop.time()
        cluster.put("pods", finished_pod())
        await until(lambda: phase(cluster) == "Succeeded")
        assert loop.time() - began < 1


async def test_hung_proxies_that_ask_first_hold_the_places_of_their_node_for_a_moment(
    cluster: FakeApiserver,
):
    limits = slots.Limits()
    for number in range(limits.first.per_node):
        cluster.proxies[f"hung-{number}"].mode = "hang"
        cluster.put("pods", finished_pod(name=f"hung-{number}", uid=f"hung-{number}"))
    cluster.put("pods", finished_pod())
    loop = asyncio.get_running_loop()
    async with reconciler(cluster):
        began = loop.time()
        await until(lambda: phase(cluster) == "Succeeded")
        assert loop.time() - began < 2


async def test_connection_that_is_slow_to_end_holds_no_place(cluster: FakeApiserver):
    for number in range(5):
        cluster.proxies[f"job-{number}"].mode = "lingers"
        cluster.put("pods", finished_pod(name=f"job-{number}", uid=f"uid-{number}"))
    loop = asyncio.get_running_loop()
    async with reconciler(cluster, limits=at_most(1)):
        began = loop.time()
        await until(lambda: all(p["status"]["phase"] == "Succeeded" for p in cluster.all("pods")))
        assert loop.time() - began < 1


async def test_retry_after_is_respected(cluster: FakeApiserver):
    cluster.failures = [("/portforward", 429, {"Retry-After": "40"})]
    cluster.put("pods", finished_pod())
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")
    assert 40 <= loop.time() - began < 60


async def test_retry_after_shortens_no_back_off(cluster: FakeApiserver):
    cluster.failures = [("/portforward", 429, {"Retry-After": "1"})] * 5
    cluster.put("pods", finished_pod())
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")
    assert not cluster.failures
    assert loop.time() - began > 10


async def test_stop_is_cancelled_when_the_pod_goes(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = "hang"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster) as controller:
        await until(lambda: proxy.requests)
        cluster.delete("pods", NAMESPACE, "job-x")
        await until(lambda: metrics.IN_FLIGHT._value.get() == 0, seconds=2)
        assert len(controller.view) == 0


async def test_proxy_lost_is_said_after_it_has_stayed_lost(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(main=pods.running()))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        cluster.set_state(NAMESPACE, "job-x", "istio-proxy", pods.ended())
        await asyncio.sleep(5)
        assert event_reasons(cluster) == []
        await until(lambda: event_reasons(cluster) == ["ProxyLost"])
        assert phase(cluster) == "Running"


async def test_kubelet_that_ends_a_pod_proxy_first_is_no_lost_proxy(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(main=pods.running()))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        cluster.set_state(NAMESPACE, "job-x", "istio-proxy", pods.ended())
        await asyncio.sleep(5)
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended(143))
        await asyncio.sleep(60)
        assert event_reasons(cluster) == []


async def test_container_that_an_annotation_names_and_the_pod_lacks_is_said_once(
    cluster: FakeApiserver,
):
    annotations = {"istio-integrator.charmhub.io/wait-for-containers": "mian"}
    cluster.put("pods", finished_pod(main=pods.running(), annotations=annotations))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
        await until(lambda: event_reasons(cluster) == ["ProxyStopped", "UnknownContainer"])


async def test_container_that_holds_the_pod_is_named(cluster: FakeApiserver):
    annotations = {"istio-integrator.charmhub.io/ignore-containers": "agent"}
    cluster.put("pods", finished_pod(others={"agent": pods.running()}, annotations=annotations))
    async with reconciler(cluster):
        await until(lambda: event_reasons(cluster) == ["ProxyStopped"])

    assert "agent" in cluster.all("events")[0]["message"]


@pytest.mark.parametrize("how", ["ended", "410", "unstreamed"])
async def test_watch_interruptions_lose_nothing(cluster: FakeApiserver, how: str):
    cluster.streaming_lists = how != "unstreamed"
    cluster.put("pods", finished_pod(main=pods.running()))
    cluster.put("pods", finished_pod(name="goes", uid="uid-goes", main=pods.running()))
    relists = metrics.RELISTS._value.get()
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 2)
        cluster.end_watches()
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
        cluster.delete("pods", NAMESPACE, "goes")
        if how != "ended":
            cluster.compact()
        await until(lambda: phase(cluster) == "Succeeded")
        await until(lambda: len(controller.view) == 0)
    assert metrics.RELISTS._value.get() - relists == (how != "ended")


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        pytest.param({}, "Running", id="other"),
        pytest.param(
            {"labels": {"app.kubernetes.io/part-of": "kubeflow-profile"}},
            "Succeeded",
            id="profile",
        ),
        pytest.param(
            {
                "labels": {"istio-integrator.charmhub.io/served": "enabled"},
                "annotations": {"istio-integrator.charmhub.io/proxy-shutdown": "disabled"},
            },
            "Running",
            id="shutdown-disabled",
        ),
    ],
)
@pytest.mark.parametrize("wide", [True, False], ids=["cluster-wide", "per-namespace"])
async def test_namespaces_in_scope(
    cluster: FakeApiserver, metadata: dict[str, Any], want: str, wide: bool
):
    if not wide:
        cluster.denied = lambda method, path: path == "/api/v1/pods"
    cluster.namespace("team", **metadata)
    cluster.put("pods", finished_pod(namespace="team"))
    async with reconciler(cluster) as controller:
        await until(lambda: controller.pods.live)
        await asyncio.sleep(30)

    assert cluster.get("pods", "team", "job-x")["status"]["phase"] == want


async def test_namespace_labelled_later_is_served_from_then_on(cluster: FakeApiserver):
    cluster.namespace("team")
    cluster.put("pods", finished_pod(namespace="team"))
    async with reconciler(cluster) as controller:
        await until(lambda: controller.pods.live)
        await asyncio.sleep(30)
        assert cluster.get("pods", "team", "job-x")["status"]["phase"] == "Running"
        cluster.namespace("team", labels={"istio-integrator.charmhub.io/served": "enabled"})
        await until(lambda: cluster.get("pods", "team", "job-x")["status"]["phase"] == "Succeeded")


async def test_model_is_served_where_namespaces_may_not_be_listed(cluster: FakeApiserver):
    cluster.denied = lambda method, path: path in ("/api/v1/pods", "/api/v1/namespaces")
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")


async def test_switched_off_stops_nothing(cluster: FakeApiserver):
    cluster.put("pods", finished_pod())
    async with reconciler(cluster, proxy_shutdown=False) as controller:
        await until(lambda: len(controller.view) == 1)
        await asyncio.sleep(60)

    assert cluster.proxies["job-x"].requests == []


async def test_stop_under_way_finishes_when_asked_to_end(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = "hang"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: proxy.requests)
        asyncio.get_running_loop().call_later(1, proxy.release.set)

    assert phase(cluster) == "Succeeded"


async def test_asked_to_end_it_ends_before_pebble_kills_it(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = "hang"
    cluster.put("pods", finished_pod())
    loop = asyncio.get_running_loop()
    async with reconciler(cluster):
        await until(lambda: proxy.requests)
        asked = loop.time()

    assert loop.time() - asked < 4
