"""Who of several reconcilers acts, and what becomes of a stop when that changes."""

from __future__ import annotations

import asyncio

import pytest
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import lease

from integrator_contract.answers import Action
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until
from tests.unit.workload.shutdown_world import (
    NAMESPACE,
    Voted,
    event_reasons,
    finished_pod,
    opened,
    phase,
    reconciler,
)

VIRTUAL_TIME = True


HOLDING = {
    "others": {"ignored": pods.running()},
    "annotations": {"istio-integrator.charmhub.io/ignore-containers": "ignored"},
}
"""A container that runs on when the proxy has ended."""
OWNED = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]


def work_of_each_kind(cluster: FakeApiserver) -> None:
    """A pod to stop, one to speak about, and one to replace."""
    cluster.put("pods", finished_pod())
    annotations = {"istio-integrator.charmhub.io/wait-for-containers": "mian"}
    misspelt = finished_pod(
        name="misspelt", uid="uid-m", main=pods.running(), annotations=annotations
    )
    cluster.put("pods", misspelt)
    broken = {"main": pods.running(), "proxy": pods.ended(), "ownerReferences": OWNED}
    cluster.put("pods", finished_pod(name="broken", uid="uid-b", **broken))


async def test_stand_by_watches_and_does_nothing_until_it_is_elected(cluster: FakeApiserver):
    work_of_each_kind(cluster)
    leadership = Voted()
    async with reconciler(cluster, leadership=leadership, replace_broken_pods=True) as controller:
        await until(lambda: len(controller.view) == 3)
        cluster.set_state(NAMESPACE, "misspelt", "main", pods.ended())
        await asyncio.sleep(120)
        assert {method for method, _ in cluster.requests} == {"GET"}
        assert not opened(cluster)
        assert not opened(cluster, "misspelt")
        assert metrics.PENDING._value.get() == 0

        leadership.elect()
        await until(lambda: phase(cluster) == phase(cluster, "misspelt") == "Succeeded")
        await until(lambda: len(cluster.all("pods")) == 2)
        assert "ProxyLost" in event_reasons(cluster)


async def test_stand_by_tells_nobody_of_a_pod_that_it_can_not_read(cluster: FakeApiserver):
    odd = finished_pod(name="odd", uid="uid-o")
    odd["spec"]["nodeName"] = 5
    cluster.put("pods", odd)
    cluster.put("pods", finished_pod())
    async with reconciler(cluster, leadership=Voted()) as controller:
        await until(lambda: len(controller.view) == 1)
        await asyncio.sleep(60)

    assert cluster.all("events") == []


async def test_deposed_leader_lets_go_of_what_it_was_doing(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = proxy.exec_mode = "hang"
    work_of_each_kind(cluster)
    leadership = Voted()
    leadership.elect()
    async with reconciler(cluster, leadership=leadership, replace_broken_pods=True) as controller:
        await until(lambda: proxy.requests and len(controller.view) == 3)
        leadership.depose()
        await until(lambda: metrics.IN_FLIGHT._value.get() == 0, seconds=1)
        tries, said = opened(cluster), len(cluster.all("events"))
        await asyncio.sleep(120)
        assert opened(cluster) == tries
        assert len(cluster.all("events")) == said
        assert len(cluster.all("pods")) == 3
        assert metrics.PENDING._value.get() == 0


async def test_metrics_say_who_leads_and_how_long_the_oldest_stop_has_waited(
    cluster: FakeApiserver,
):
    proxy = cluster.proxies["job-x"]
    proxy.mode = proxy.exec_mode = "hang"
    leadership = Voted()
    async with reconciler(cluster, leadership=leadership) as controller:
        leadership.elect()
        await until(lambda: metrics.LEADER._value.get() == 1)
        assert controller.oldest_pending() == 0
        cluster.put("pods", finished_pod())
        await until(lambda: proxy.requests)
        await asyncio.sleep(30)
        cluster.put("pods", finished_pod(name="younger", uid="uid-y"))
        await asyncio.sleep(30)
        assert controller.oldest_pending() == pytest.approx(60, abs=5)
        leadership.depose()
        await until(lambda: metrics.LEADER._value.get() == 0)


@pytest.mark.parametrize("stays", [False, True], ids=["pod ends", "pod stays"])
async def test_what_was_sent_is_told_by_who_sent_it_though_deposed(
    cluster: FakeApiserver, stays: bool
):
    cluster.proxies["job-x"].mode = "cut"
    cluster.put("pods", finished_pod(**HOLDING if stays else {}))
    leadership = Voted()
    leadership.elect()
    async with reconciler(cluster, leadership=leadership):
        await until(lambda: cluster.proxies["job-x"].requests)
        leadership.depose()
        await until(lambda: event_reasons(cluster) == ["ProxyStopped"])
        await asyncio.sleep(60)

    assert phase(cluster) == ("Running" if stays else "Succeeded")
    assert len(cluster.all("events")) == 1


async def test_leader_that_is_elected_again_goes_on(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = proxy.exec_mode = "hang"
    cluster.put("pods", finished_pod())
    leadership = Voted()
    leadership.elect()
    async with reconciler(cluster, leadership=leadership):
        await until(lambda: proxy.requests)
        leadership.depose()
        await asyncio.sleep(30)
        proxy.mode = proxy.exec_mode = "ok"
        leadership.elect()
        await until(lambda: phase(cluster) == "Succeeded")


async def test_stand_by_takes_over_when_the_leader_is_killed(cluster: FakeApiserver):
    loop = asyncio.get_running_loop()

    def member(name: str) -> lease.Leadership:
        return lease.Leadership(
            cluster.client, namespace=NAMESPACE, name="x", identity=name, clock=loop.time
        )

    async def nothing() -> None:
        """What a killed process does about its Lease."""

    first, second = member("first"), member("second")
    first._release = nothing  # type: ignore[method-assign]
    async with running_task(first.run()) as killed, running_task(second.run()):
        # The first to look takes the Lease, and the second sees it.
        await until(lambda: first.is_leader and second.holder == "first")
        async with reconciler(cluster, leadership=second) as controller:
            await until(lambda: controller.pods.live)
            killed.cancel()
            cluster.put("pods", finished_pod())
            await until(lambda: len(controller.view) == 1)
            assert not second.is_leader
            assert phase(cluster) == "Running"
            await until(lambda: phase(cluster) == "Succeeded", seconds=20)
        assert second.is_leader


async def test_pod_that_finishes_while_the_renewal_is_late_completes(cluster: FakeApiserver):
    starved, late = False, 0.0
    loop = asyncio.get_running_loop()

    def clock() -> float:
        nonlocal late
        late += lease.Timing().deadline if starved else 0.0
        return loop.time() + late

    leadership = lease.Leadership(
        cluster.client, namespace=NAMESPACE, name="x", identity="first", clock=clock
    )
    cluster.put("pods", finished_pod(main=pods.running()))
    async with (
        running_task(leadership.run()),
        reconciler(cluster, leadership=leadership) as controller,
    ):
        await leadership.wait_elected()
        await until(lambda: len(controller.view) == 1)
        (tracked,) = controller.view
        starved = True
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
        await until(lambda: tracked.decision.action is Action.STOP)
        assert not leadership.is_leader
        starved = False
        await until(lambda: phase(cluster) == "Succeeded")


async def test_two_leaders_at_once_do_no_harm(cluster: FakeApiserver):
    for number in range(20):
        busy = finished_pod(name=f"job-{number}", uid=f"uid-{number}", main=pods.running())
        cluster.put("pods", busy)
    async with reconciler(cluster) as first, reconciler(cluster) as second:
        await until(lambda: len(first.view) == len(second.view) == 20)
        for number in range(20):
            assert cluster.proxies[f"job-{number}"].requests == []
            cluster.set_state(NAMESPACE, f"job-{number}", "main", pods.ended())
        await until(lambda: all(p["status"]["phase"] == "Succeeded" for p in cluster.all("pods")))
        await until(lambda: len(cluster.all("events")) == 20)
        await asyncio.sleep(60)

    assert set(event_reasons(cluster)) == {"ProxyStopped"}
    assert len(cluster.all("events")) == 20
