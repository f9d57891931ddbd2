"""Whose turn it is: what waits for a place on a busy node is stopped once, and delays no other."""

from __future__ import annotations

import asyncio

import pytest

from integrator_contract.answers import Action
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.shutdown_world import (
    NAMESPACE,
    finished_pod,
    opened,
    phase,
    reconciler,
)

VIRTUAL_TIME = True


CROWD = 20
"""Pods on one node: more than it has places, and more than there are places for retries."""


def hung(cluster: FakeApiserver, name: str, node: str = "node-1") -> None:
    """Have a pod whose proxy takes no stop, either way, and answers nothing."""
    proxy = cluster.proxies[name]
    proxy.mode = proxy.exec_mode = "hang"
    cluster.put("pods", finished_pod(name=name, uid=f"uid-{name}", node=node))


@pytest.mark.parametrize("comes_back", [True, False], ids=["ends-again", "runs-on"])
async def test_payload_that_runs_again_before_its_turn_gives_its_turn_back(
    cluster: FakeApiserver, comes_back: bool
):
    for number in range(CROWD):
        hung(cluster, f"hung-{number}")
    async with reconciler(cluster) as controller:
        await until(lambda: any(proxy.requests for proxy in cluster.proxies.values()))
        cluster.put("pods", finished_pod(policy="OnFailure"))
        await until(lambda: len(controller.view) == CROWD + 1)
        tracked = next(each for each in controller.view if each.name.endswith("job-x"))
        cluster.set_state(NAMESPACE, "job-x", "main", pods.running())
        await until(lambda: tracked.decision.action is Action.WAIT)
        assert not opened(cluster), "its place came too early for this test"
        if comes_back:
            cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
            await until(lambda: phase(cluster) == "Succeeded")
        await asyncio.sleep(60)

    assert opened(cluster) == comes_back


async def test_node_that_is_away_takes_no_places_from_retries_of_others(cluster: FakeApiserver):
    for number in range(CROWD):
        hung(cluster, f"hung-{number}", "away")
    loop = asyncio.get_running_loop()
    async with reconciler(cluster):
        # Until all of them have failed once, and wait to be tried again one after the other.
        await asyncio.sleep(60)
        cluster.proxies["job-x"].mode = "refused"
        began = loop.time()
        cluster.put("pods", finished_pod(node="well"))
        await until(lambda: phase(cluster) == "Succeeded")
        assert loop.time() - began < 5

    assert cluster.proxies["job-x"].requests == ["exec"]
