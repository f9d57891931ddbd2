"""Pods that would wait for ever: their owner is told, or the wait has an end."""

from __future__ import annotations

import asyncio

from sidecar_lifecycle.shell.shutdown import controller, reports

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


async def test_payload_that_ended_without_its_proxy_is_reported_once(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(proxy=pods.waiting("ErrImagePull")))
    async with reconciler(cluster):
        await until(lambda: event_reasons(cluster) == ["ProxyNotRunning"])
        cluster.set_state(NAMESPACE, "job-x", "istio-proxy", pods.waiting("ImagePullBackOff"))
        await asyncio.sleep(3 * reports.START_WITHIN)

    (event,) = cluster.all("events")
    assert event["type"] == "Warning"
    assert "ErrImagePull" in event["message"] or "ImagePullBackOff" in event["message"]
    assert event.get("count", 1) == 1
    assert not opened(cluster)


async def test_proxy_without_envoy_is_reported_once_and_never_asked_to_quit(
    cluster: FakeApiserver,
):
    annotations = {"inject.istio.io/templates": "grpc-agent"}
    cluster.put("pods", finished_pod(annotations=annotations))
    async with reconciler(cluster):
        await until(lambda: event_reasons(cluster) == ["ProxyWithoutEnvoy"])
        await asyncio.sleep(3 * reports.START_WITHIN)

    (event,) = cluster.all("events")
    command = "kubectl -n kubeflow exec job-x -c istio-proxy -- bash -c 'kill 1'"
    assert command in event["message"]
    assert event.get("count", 1) == 1
    assert not opened(cluster)


async def test_proxy_that_starts_late_is_stopped_and_nobody_alarmed(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(proxy=pods.waiting("ContainerCreating")))
    async with reconciler(cluster):
        await asyncio.sleep(reports.START_WITHIN / 2)
        cluster.set_state(NAMESPACE, "job-x", "istio-proxy", pods.running())
        await until(lambda: phase(cluster) == "Succeeded")
        await asyncio.sleep(3 * reports.START_WITHIN)

    assert event_reasons(cluster) == ["ProxyStopped"]


async def test_payload_that_runs_again_is_not_reported(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(proxy=pods.waiting("ContainerCreating")))
    async with reconciler(cluster):
        await asyncio.sleep(reports.START_WITHIN / 2)
        cluster.set_state(NAMESPACE, "job-x", "main", pods.running())
        await asyncio.sleep(3 * reports.START_WITHIN)

    assert event_reasons(cluster) == []


async def test_proxy_that_starts_after_the_report_is_stopped(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(proxy=pods.waiting("ImagePullBackOff")))
    async with reconciler(cluster):
        await until(lambda: event_reasons(cluster) == ["ProxyNotRunning"])
        cluster.set_state(NAMESPACE, "job-x", "istio-proxy", pods.running())
        await until(lambda: event_reasons(cluster) == ["ProxyNotRunning", "ProxyStopped"])

    assert phase(cluster) == "Succeeded"


BEFORE_ITS_POD = pods.ended(finished="2025-12-31T23:59:00Z")


async def test_pod_whose_nodes_clock_stepped_back_is_ended_after_a_while(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(main=BEFORE_ITS_POD))
    async with reconciler(cluster):
        await asyncio.sleep(controller.OLD_END_COUNTS_AFTER / 2)
        assert not opened(cluster)
        await until(lambda: phase(cluster) == "Succeeded")
        await until(lambda: event_reasons(cluster) == ["ProxyStopped"])


async def test_status_from_before_the_pod_is_not_believed_in_the_pods_next_life(
    cluster: FakeApiserver,
):
    cluster.put("pods", finished_pod(main=BEFORE_ITS_POD))
    async with reconciler(cluster):
        await asyncio.sleep(controller.OLD_END_COUNTS_AFTER / 2)
        cluster.put("pods", finished_pod(main=pods.running()))
        await asyncio.sleep(controller.OLD_END_COUNTS_AFTER)
        cluster.put("pods", finished_pod(main=BEFORE_ITS_POD))
        await asyncio.sleep(controller.OLD_END_COUNTS_AFTER / 2)
        assert not opened(cluster)
        await until(lambda: phase(cluster) == "Succeeded")
