"""What several units do about the same pods, and what Juju's leader alone does."""

from __future__ import annotations

import asyncio

import pytest
from sidecar_lifecycle.shell.kube import client
from sidecar_lifecycle.shell.shutdown import controller as shutdown

from integrator_contract import names
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.pods import ended, pod_json, running
from tests.unit.workload.shutdown_world import (
    NAMESPACE,
    OWNED,
    counted,
    event_reasons,
    opened,
    phase,
    reconciler,
    settings,
)

VIRTUAL_TIME = True
BROKEN = {"main": running(), "proxy": ended(), "ownerReferences": OWNED}
"""A pod to replace."""
FOLLOWER = settings(leader=False, delete_broken_pods=True)
LEADER = settings(delete_broken_pods=True)


def work_of_the_leader(cluster: FakeApiserver) -> None:
    """A pod to speak about, one that cannot be read, and one to replace."""
    misspelt = {names.WAIT_FOR_CONTAINERS: "mian"}
    cluster.put("pods", pod_json(running(), name="misspelt", uid="m", annotations=misspelt))
    odd = pod_json(running(), name="odd", uid="o")
    odd["spec"]["nodeName"] = 5
    cluster.put("pods", odd)
    cluster.put("pods", pod_json(name="broken", uid="b", **BROKEN))


async def test_only_the_leader_reports_and_replaces_pods(cluster: FakeApiserver):
    work_of_the_leader(cluster)
    async with reconciler(cluster, leader=False, delete_broken_pods=True) as controller:
        await until(lambda: len(controller.view) == 2)
        await asyncio.sleep(120)
        assert {method for method, _ in cluster.requests} == {"GET"}

        controller.live.change(LEADER)
        await until(lambda: len(cluster.all("pods")) == 2)
        assert {"ProxyLost", "UnknownContainer"} <= set(event_reasons(cluster))
        controller.live.change(FOLLOWER)
        said = len(cluster.all("events"))
        cluster.put("pods", pod_json(name="other", uid="uid-o", proxy=ended()))
        await asyncio.sleep(120)
        assert len(cluster.all("events")) == said


async def test_leader_that_leads_no_more_does_not_replace_what_it_was_about_to(
    cluster: FakeApiserver,
):
    work_of_the_leader(cluster)
    async with reconciler(cluster, delete_broken_pods=True) as controller:
        await until(lambda: len(controller.view) == 2)
        controller.live.change(FOLLOWER)
        await asyncio.sleep(120)

    assert len(cluster.all("pods")) == 3


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_unit_stops_a_proxy_after_the_units_before_it_had_time_to(
    cluster: FakeApiserver, number: int
):
    turn = number * shutdown.TURN
    async with reconciler(cluster, unit=number) as controller:
        await until(lambda: controller.pods.live)
        cluster.put("pods", pod_json())
        await until(lambda: len(controller.view) == 1)
        if turn:
            await asyncio.sleep(turn - 0.5)
            assert not opened(cluster)
            # A pod that changes meanwhile has no longer to wait.
            cluster.put("pods", pod_json(annotations={"team": "a"}))
        await until(lambda: phase(cluster) == "Succeeded", seconds=2)


async def test_need_that_is_over_before_the_units_turn_is_forgotten(cluster: FakeApiserver):
    async with reconciler(cluster, unit=2) as controller:
        await until(lambda: controller.pods.live)
        cluster.put("pods", pod_json())
        await until(lambda: len(controller.view) == 1)
        cluster.put("pods", pod_json(annotations={names.PROXY_SHUTDOWN: "disabled"}))
        await asyncio.sleep(60)

    assert not opened(cluster)


async def test_what_the_unit_before_has_stopped_is_left_alone(cluster: FakeApiserver):
    """Even while a container that is ignored holds the pod."""
    holding = {"others": {"agent": running()}, "annotations": {names.IGNORE_CONTAINERS: "agent"}}
    async with reconciler(cluster) as first, reconciler(cluster, unit=1) as second:
        await until(lambda: first.pods.live and second.pods.live)
        cluster.put("pods", pod_json(**holding))
        await until(lambda: cluster.proxies["job-x"].requests)
        await asyncio.sleep(60)

    assert cluster.proxies["job-x"].requests == ["port-forward"]
    assert event_reasons(cluster) == ["ProxyStopped"]


async def test_unit_that_was_cut_off_does_not_stop_the_pod_that_has_the_name_now(
    cluster: FakeApiserver,
):
    server = cluster.client.server
    connection = client.Client(server, token=lambda: cluster.token)
    async with reconciler(cluster, connection=connection) as first:
        await until(lambda: first.pods.live)
        connection.server = "http://127.0.0.1:1"
        cluster.put("pods", pod_json())
        await until(lambda: len(first.view) == 1)
        # Its watches stay open, and nothing comes.
        cluster.watchers.clear()
        async with reconciler(cluster, unit=1):
            await until(lambda: phase(cluster) == "Succeeded", seconds=shutdown.TURN + 2)
            cluster.delete("pods", NAMESPACE, "job-x")
            cluster.put("pods", pod_json(running(), uid="uid-2"))
            connection.server = server
            await until(lambda: len(opened(cluster)) == 2)
            await asyncio.sleep(60)
    await connection.close()

    assert cluster.proxies["job-x"].requests == ["port-forward"]
    assert phase(cluster) == "Running"


async def test_metrics_say_how_long_the_oldest_stop_has_waited(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = proxy.exec_mode = "hang"
    async with reconciler(cluster) as controller:
        assert controller.oldest_pending() == 0
        cluster.put("pods", pod_json())
        await until(lambda: proxy.requests)
        await asyncio.sleep(30)
        cluster.put("pods", pod_json(name="younger", uid="uid-y"))
        await asyncio.sleep(30)
        assert controller.oldest_pending() == pytest.approx(60, abs=5)
    assert counted("stops_pending") == 0


async def test_second_stop_of_a_proxy_does_no_harm(cluster: FakeApiserver):
    names_ = [f"job-{number}" for number in range(20)]
    for name in names_:
        cluster.put("pods", pod_json(running(), name=name, uid=f"uid-{name}"))
    async with reconciler(cluster) as first, reconciler(cluster) as second:
        await until(lambda: len(first.view) == len(second.view) == 20)
        for name in names_:
            assert cluster.proxies[name].requests == []
            cluster.set_state(NAMESPACE, name, "main", ended())
        await until(lambda: all(phase(cluster, name) == "Succeeded" for name in names_))
        await until(lambda: len(cluster.all("events")) == 20)
        await asyncio.sleep(60)

    assert event_reasons(cluster) == ["ProxyStopped"] * 20
