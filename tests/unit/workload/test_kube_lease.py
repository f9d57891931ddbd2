"""Leadership: one at a time, handed over when it is given away, lost or forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from sidecar_lifecycle.shell.kube import lease

from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiserver]:
    fake = FakeApiserver()
    async with fake:
        yield fake


def member(cluster: FakeApiserver, name: str, **extra: Any) -> lease.Leadership:
    return lease.Leadership(
        cluster.client,
        namespace="model",
        name="app-lifecycle",
        identity=name,
        labels={"app.kubernetes.io/managed-by": "istio-integrator"},
        clock=asyncio.get_running_loop().time,
        **extra,
    )


async def test_first_leads_and_the_lease_says_whose_it_is(cluster: FakeApiserver):
    first = member(cluster, "app/0")
    async with running_task(first.run()):
        await first.wait_elected()
        written = cluster.get("leases", "model", "app-lifecycle")
        assert written["spec"]["holderIdentity"] == "app/0"
        assert written["metadata"]["labels"] == {
            "app.kubernetes.io/managed-by": "istio-integrator"
        }


async def test_two_never_lead_together(cluster: FakeApiserver):
    first, second = member(cluster, "app/0"), member(cluster, "app/1")
    async with running_task(first.run()), running_task(second.run()):
        await until(lambda: first.is_leader or second.is_leader)
        for _ in range(100):
            await asyncio.sleep(1)
            assert first.is_leader != second.is_leader
        assert first.holder == second.holder


async def test_lease_given_away_is_taken_within_one_look(cluster: FakeApiserver):
    first, second = member(cluster, "app/0"), member(cluster, "app/1")
    loop = asyncio.get_running_loop()
    async with running_task(first.run()) as running:
        await first.wait_elected()
        async with running_task(second.run()):
            await asyncio.sleep(10)
            assert not second.is_leader
            running.cancel()
            began = loop.time()
            await second.wait_elected()
            assert loop.time() - began < 3


async def test_silent_leader_is_replaced_after_the_leases_duration(cluster: FakeApiserver):
    cluster.put(
        "leases",
        {
            "metadata": {"name": "app-lifecycle", "namespace": "model"},
            "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15},
        },
    )
    second = member(cluster, "app/1")
    began = asyncio.get_running_loop().time()
    async with running_task(second.run()):
        await second.wait_elected()
        assert 15 <= asyncio.get_running_loop().time() - began < 18


async def test_leader_that_is_known_to_be_gone_is_replaced_at_once(cluster: FakeApiserver):
    spec = {"holderIdentity": "app/0_x_7", "leaseDurationSeconds": 15}
    metadata = {"name": "app-lifecycle", "namespace": "model"}
    cluster.put("leases", {"metadata": metadata, "spec": spec})
    again = member(cluster, "app/0_x_8", has_ended=lambda holder: holder == "app/0_x_7")
    began = asyncio.get_running_loop().time()
    async with running_task(again.run()):
        await again.wait_elected()
        assert asyncio.get_running_loop().time() - began < 1


async def test_leader_that_can_not_renew_stops_before_another_may_start(cluster: FakeApiserver):
    first = member(cluster, "app/0")
    async with running_task(first.run()):
        await first.wait_elected()
        cluster.denied = lambda method, path: "leases" in path
        await asyncio.sleep(5)
        assert first.is_leader
        assert not first.reachable
        await first.wait_deposed()
        assert not first.is_leader
        cluster.denied = lambda method, path: False
        await first.wait_elected()


async def test_leader_whose_lease_another_took_steps_back(cluster: FakeApiserver):
    first = member(cluster, "app/0")
    async with running_task(first.run()):
        await first.wait_elected()
        stolen = cluster.get("leases", "model", "app-lifecycle")
        stolen["spec"]["holderIdentity"] = "app/9"
        cluster.put("leases", stolen)
        await first.wait_deposed()
        assert first.holder == "app/9"


@pytest.mark.parametrize(
    ("taken", "reason"), [(True, "held by app/9"), (False, "not renewed in time")]
)
async def test_leader_that_steps_back_says_why(cluster: FakeApiserver, taken: bool, reason: str):
    first = member(cluster, "app/0")
    with structlog.testing.capture_logs() as said:
        async with running_task(first.run()):
            await first.wait_elected()
            written = cluster.get("leases", "model", "app-lifecycle")
            if taken:
                written["spec"]["holderIdentity"] = "app/9"
                cluster.put("leases", written)
            else:
                cluster.denied = lambda method, path: "leases" in path
            await first.wait_deposed()
    (told,) = [one["reason"] for one in said if one["event"] == "not leading any more"]
    assert told == reason


async def test_leader_that_ends_gives_away_no_lease_that_another_took(cluster: FakeApiserver):
    first = member(cluster, "app/0")
    async with running_task(first.run()):
        await first.wait_elected()
        await until(lambda: first.reachable)
        stolen = cluster.get("leases", "model", "app-lifecycle")
        stolen["spec"]["holderIdentity"] = "app/9"
        cluster.put("leases", stolen)
        # It ends before it has looked again.
        assert first.is_leader

    spec = cluster.get("leases", "model", "app-lifecycle")["spec"]
    assert spec["holderIdentity"] == "app/9"


async def test_stand_by_that_ends_leaves_the_lease_alone(cluster: FakeApiserver):
    first, second = member(cluster, "app/0"), member(cluster, "app/1")
    async with running_task(first.run()):
        await first.wait_elected()
        async with running_task(second.run()):
            await asyncio.sleep(5)
        assert first.is_leader
        spec = cluster.get("leases", "model", "app-lifecycle")["spec"]
        assert spec["holderIdentity"] == "app/0"


async def test_lease_deleted_under_a_leader_is_made_again(cluster: FakeApiserver):
    first = member(cluster, "app/0")
    async with running_task(first.run()):
        await first.wait_elected()
        cluster.delete("leases", "model", "app-lifecycle")
        await asyncio.sleep(5)
        assert first.is_leader
        assert cluster.all("leases")


@pytest.mark.parametrize(
    ("code", "times"),
    [(403, 3), (404, 1), (409, 1), (429, 3), (500, 3), (503, 3)],
)
async def test_leader_outlasts_answers_that_are_no_renewal(
    cluster: FakeApiserver, code: int, times: int
):
    first = member(cluster, "app/0")
    async with running_task(first.run()):
        await first.wait_elected()
        cluster.failures = [("/leases", code, {})] * times
        while cluster.failures:
            assert first.is_leader
            await asyncio.sleep(0.5)
        await until(lambda: first.reachable)
        assert first.is_leader


async def test_leader_renews_with_one_request_and_reads_nothing(cluster: FakeApiserver):
    first = member(cluster, "app/0")
    async with running_task(first.run()):
        await first.wait_elected()
        cluster.requests.clear()
        await asyncio.sleep(20)
        assert first.is_leader
        assert {method for method, _ in cluster.requests} == {"PUT"}


async def test_lease_says_since_when_its_holder_has_led(cluster: FakeApiserver):
    first = member(cluster, "app/0")
    async with running_task(first.run()):
        await first.wait_elected()
        acquired = cluster.get("leases", "model", "app-lifecycle")["spec"]["acquireTime"]
        assert acquired
        await asyncio.sleep(20)
        spec = cluster.get("leases", "model", "app-lifecycle")["spec"]
        assert spec["acquireTime"] == acquired


async def test_lease_that_somebody_deletes_is_made_anew_and_deposes_nobody(
    cluster: FakeApiserver,
):
    first = member(cluster, "app/0")
    async with running_task(first.run()):
        await first.wait_elected()
        cluster.delete("leases", "model", "app-lifecycle")
        await until(lambda: cluster.all("leases"))
        assert first.is_leader


async def test_mark_on_the_lease_by_somebody_else_deposes_nobody(cluster: FakeApiserver):
    first = member(cluster, "app/0")
    deposed: list[float] = []

    async def note() -> None:
        await first.wait_deposed()
        deposed.append(1)

    def mark(method: str, path: str) -> None:
        if method == "PUT" and "/leases" in path:
            cluster.before_answer = lambda *_: None
            written = cluster.get("leases", "model", "app-lifecycle")
            owner = {"kind": "ClusterRole", "name": "model-app", "uid": "u"}
            written["metadata"]["ownerReferences"] = [owner]
            cluster.put("leases", written)

    async with running_task(first.run()):
        await first.wait_elected()
        async with running_task(note()):
            cluster.before_answer = mark
            await asyncio.sleep(10)
        assert first.is_leader
        assert deposed == []
        written = cluster.get("leases", "model", "app-lifecycle")["metadata"]
        assert written["ownerReferences"][0]["uid"] == "u"
