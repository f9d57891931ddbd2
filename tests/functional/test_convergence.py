"""Convergence against a real control plane: evictions, budgets, admission and conflicts."""

import asyncio
import contextlib
import time
from unittest import mock

import pytest
from sidecar_lifecycle.decide.convergence import memory

from integrator_contract import names
from testbed import kubernetes
from tests import rights
from tests.functional import convergence_world
from tests.functional.convergence_world import until


@pytest.fixture
async def world(kubeconfig, namespace):
    async with convergence_world.living(kubeconfig, namespace) as world:
        yield world


async def test_what_missed_its_sidecar_is_replaced_and_nothing_else_is(
    world, untrusted_kubeconfig
):
    world.kubeconfig, world.application = untrusted_kubeconfig, rights.APPLICATION
    await world.workload("StatefulSet", "one")
    await world.workload("StatefulSet", "three", replicas=3)
    await world.workload("Deployment", "web", replicas=2)
    await world.workload("StatefulSet", "nb", owner=await world.owner("notebook"))
    disabled = {names.RESTART_PODS: "disabled"}
    await world.workload("Deployment", "left-alone", annotations=disabled)
    await world.workload(
        "StatefulSet", "modeloperator", labels={"operator.juju.is/name": "modeloperator"}
    )
    await world.pod("bare")
    await world.join()
    before = await world.injected()
    assert not any(before.values())

    async def converged():
        now = await world.injected()
        if (sum(now.values()), len(now)) != (6, 10):
            return False
        return not memory.decode((await world.remembered())["data"]).rounds

    async with world.converging(leader=False, restart_max_unavailable="1") as service:
        counted = await service.counted("evictions_total", "evicted")
        service.change(leader=True)
        await until(converged)
        await asyncio.sleep(0.5)
        assert await service.shows(counted + 6, "evictions_total", "evicted")

    after = await world.injected()
    untouched = {name for name, has in after.items() if not has}
    assert untouched == {"bare", "nb-0", "modeloperator-0"} | {
        name for name in before if name.startswith("left-alone")
    }
    stored = await world.remembered()
    assert stored["metadata"]["labels"][names.MANAGED_BY] == "istio-integrator"
    assert not memory.decode(stored["data"]).rounds
    assert await world.events("SidecarMissing") == 6


async def test_a_disruption_budget_is_waited_for(world):
    await world.workload("Deployment", "web", replicas=2)
    await world.workload("StatefulSet", "other")
    await world.budget("web", 2)
    await world.join()

    async with world.converging(restart_max_unavailable="1") as service:
        await until(lambda: service.shows(2, "uninjected_pods", "DisruptionBudget"))

        async def other_converged():
            return (await world.injected()).get("other-0")

        await until(other_converged)
        assert sum((await world.injected()).values()) == 1
        stored = memory.decode((await world.remembered())["data"])
        assert stored.holds["Deployment/web"].reason == "DisruptionBudget"
        await world.budget("web", 1)

        async def converged():
            return sum((await world.injected()).values()) == 3

        # The service looks again when its settings change; by its clock the hold is over then.
        now = time.time
        with mock.patch.object(time, "time", side_effect=lambda: now() + 60):
            service.change(restart_max_unavailable="2")
            await until(converged)


async def test_units_that_all_believe_to_lead_keep_the_limits_together(world):
    for name in ("one", "two", "three"):
        await world.workload("StatefulSet", name)
    await world.join()

    async def converged():
        return list((await world.injected()).values()) == [True] * 3

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(world.converging(restart_max_unavailable="1"))
        most = 0

        async def converged_one_by_one():
            nonlocal most
            with contextlib.suppress(kubernetes.ApiError):
                rounds = memory.decode((await world.remembered())["data"]).rounds
                most = max(most, len(rounds))
            return await converged()

        await until(converged_one_by_one)
        await asyncio.sleep(0.5)
    assert most <= 1
    assert await world.events("SidecarMissing") == 3
