"""Actions of several units on the same pods, and actions of Juju's leader alone."""

import asyncio

import pytest

from integrator_contract import names
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.pods import ended, pod_json, running
from tests.unit.workload.shutdown_world import (
    NAMESPACE,
    OWNED,
    TURN,
    event_reasons,
    opened,
    phase,
    unit,
)

BROKEN = {"main": running(), "proxy": ended(), "ownerReferences": OWNED}
"""A pod to replace."""


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
    cluster.namespace(NAMESPACE, labels={"istio-injection": "enabled"})
    values = {"joined": True, "mesh_namespace": "istio-system", "delete_broken_pods": True}
    async with unit(cluster, leader=False, **values) as service:
        await until(service.is_ready)
        await asyncio.sleep(120)
        assert {method for method, _ in cluster.requests} == {"GET"}

        cluster.put("pods", pod_json())
        await until(lambda: phase(cluster) == "Succeeded")
        cluster.delete("pods", NAMESPACE, "job-x")
        service.change(leader=True)
        await until(lambda: len(cluster.all("pods")) == 2)
        assert {"ProxyLost", "UnknownContainer"} <= set(event_reasons(cluster))
        service.change(leader=False)
        await asyncio.sleep(2)
        said = len(cluster.all("events"))
        cluster.put("pods", pod_json(name="other", uid="uid-o", proxy=ended()))
        await asyncio.sleep(120)
        assert len(cluster.all("events")) == said


async def test_leader_that_leads_no_more_does_not_replace_what_it_was_about_to(
    cluster: FakeApiserver,
):
    work_of_the_leader(cluster)
    async with unit(cluster, delete_broken_pods=True) as service:
        await until(service.is_ready)
        service.change(leader=False)
        await asyncio.sleep(120)

    assert len(cluster.all("pods")) == 3


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_unit_stops_a_proxy_after_the_units_before_it_had_time_to(
    cluster: FakeApiserver, number: int
):
    turn = number * TURN
    async with unit(cluster, number) as service:
        await until(service.is_ready)
        cluster.put("pods", pod_json())
        if turn:
            await asyncio.sleep(turn - 0.5)
            assert not opened(cluster)
            # A pod that changes meanwhile has no longer to wait.
            cluster.put("pods", pod_json(annotations={"team": "a"}))
        await until(lambda: phase(cluster) == "Succeeded", seconds=2)


async def test_need_that_is_over_before_the_units_turn_is_forgotten(cluster: FakeApiserver):
    async with unit(cluster, 2) as service:
        await until(service.is_ready)
        cluster.put("pods", pod_json())
        cluster.put("pods", pod_json(annotations={names.PROXY_SHUTDOWN: "disabled"}))
        await asyncio.sleep(60)

    assert not opened(cluster)


async def test_what_the_unit_before_has_stopped_is_left_alone(cluster: FakeApiserver):
    """Even while a container that is ignored holds the pod."""
    holding = {"others": {"agent": running()}, "annotations": {names.IGNORE_CONTAINERS: "agent"}}
    async with unit(cluster) as first, unit(cluster, 1) as second:
        await until(first.is_ready)
        await until(second.is_ready)
        counters = (
            *("proxies_stopped_total", "stop_acknowledged_seconds_count"),
            "payload_exit_to_proxy_exit_seconds_count",
        )
        before = [await first.counted(each) for each in counters]
        cluster.put("pods", pod_json(**holding))
        await until(lambda: cluster.proxies["job-x"].requests)
        await asyncio.sleep(60)
        after = [await first.counted(each) for each in counters]
        assert after == [each + 1 for each in before]

    assert cluster.proxies["job-x"].requests == ["port-forward"]
    assert event_reasons(cluster) == ["ProxyStopped"]


async def test_unit_that_was_cut_off_does_not_stop_the_pod_that_has_the_name_now(
    cluster: FakeApiserver,
):
    cluster.denied = lambda method, path: path.endswith(("/portforward", "/exec"))
    async with unit(cluster) as first:
        await until(first.is_ready)
        cluster.put("pods", pod_json())
        # Its next try is a quarter of a minute away.
        await until(lambda: len(opened(cluster)) == 6)
        # Its watches stay open, and nothing comes.
        cluster.watchers.clear()
        cluster.denied = lambda method, path: False
        async with unit(cluster, 1):
            await until(lambda: phase(cluster) == "Succeeded", seconds=TURN + 2)
            cluster.delete("pods", NAMESPACE, "job-x")
            cluster.put("pods", pod_json(running(), uid="uid-2"))
            await until(lambda: len(opened(cluster)) == 8)
            await asyncio.sleep(60)

    assert cluster.proxies["job-x"].requests == ["port-forward"]
    assert phase(cluster) == "Running"


async def test_metrics_say_how_long_the_oldest_stop_has_waited(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    for each in (proxy, cluster.proxies["younger"]):
        each.mode = each.exec_mode = "hang"
    async with unit(cluster) as service:
        assert await service.shows(0, "oldest_pending_stop_seconds")
        cluster.put("pods", pod_json(running(), name="younger", uid="uid-y"))
        cluster.put("pods", pod_json())
        await until(lambda: proxy.requests)
        await asyncio.sleep(30)
        cluster.set_state(NAMESPACE, "younger", "main", ended())
        await asyncio.sleep(30)
        oldest = await service.counted("oldest_pending_stop_seconds")
        assert oldest == pytest.approx(60, abs=5)
        assert await service.shows(2, "stops_pending")


async def test_second_stop_of_a_proxy_does_no_harm(cluster: FakeApiserver):
    names_ = [f"job-{number}" for number in range(20)]
    for name in names_:
        cluster.put("pods", pod_json(running(), name=name, uid=f"uid-{name}"))
    async with unit(cluster) as first, unit(cluster) as second:
        await until(first.is_ready)
        await until(second.is_ready)
        for name in names_:
            assert cluster.proxies[name].requests == []
            cluster.set_state(NAMESPACE, name, "main", ended())
        await until(lambda: all(phase(cluster, name) == "Succeeded" for name in names_))
        await until(lambda: len(cluster.all("events")) == 20)
        await asyncio.sleep(60)

    assert event_reasons(cluster) == ["ProxyStopped"] * 20
