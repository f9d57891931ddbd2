"""The soak: the charm lives through everything that happens, again and again, and does not grow.

`SOAK_CYCLES` runs another number of cycles. Each has one change of the configuration, one killed
unit, one restart of istiod, one application added and one removed; the next begins when the status
is Active again with a true count.
"""

import asyncio
import os
import statistics

import pytest

from testbed.kit import istiod, juju, objects, observer
from tests.e2e import metrics, pods

CYCLES = int(os.environ.get("SOAK_CYCLES", "40"))
"""From forty on growth can be told from warming up."""
TOLERANCES = {
    # A leak of 100 KiB in each cycle is 2 MiB between the middles of the two quarters that are
    # compared after 40 cycles; Python's arenas come and go by less.
    "process_resident_memory_bytes": 2 * 2**20,
    # Connections of requests under way are one or two.
    "process_open_fds": 4,
    "tasks": 4,
}
"""How much more the last quarter may have than the second, by metric of the first unit."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.cluster("today"),
    pytest.mark.timeout(900 + CYCLES * 60),
]


async def is_at_rest(world):
    """Whether convergence remembers no round; a pod counts before its round is over."""
    memory = await world.api.get("ConfigMap", f"{juju.APPLICATION}-convergence", world.model)
    return '"rounds"' not in memory["data"]["state"]


async def cycle(world, number):
    """Let everything happen once, much of it at the same time."""
    async with asyncio.TaskGroup() as tasks:
        killed = pods.named(f"{juju.APPLICATION}-1")
        tasks.create_task(pods.renewed(world.api, world.model, killed, grace=0))
        tasks.create_task(world.mark(f"c{number}"))
        if number:
            tasks.create_task(world.juju.remove(f"app-{number - 1}"))
        await world.juju.deploy(world.node.charms.web, f"app-{number}")
        await pods.renewed(world.api, istiod.NAMESPACE, "app=istiod", grace=0)
        await world.settings_arrive(f"c{number}")
    await world.active(in_mesh=2)


@pytest.mark.timeout(900 + CYCLES * 60)
async def test_many_cycles_leave_no_growth_and_nothing_stuck(world, api):
    await world.deploy()
    await world.juju.do("add_unit", juju.APPLICATION)
    await world.active()
    await observer.eventually(lambda: is_at_rest(world), 240, "no replacement under way")
    before = await objects.snapshot(api)
    samples = []
    for number in range(CYCLES):
        await cycle(world, number)
        samples.append(await metrics.of_unit(api, world.model))
    await world.juju.remove(f"app-{CYCLES - 1}")
    await world.juju.config(juju.APPLICATION, pod_annotations="")
    await world.active()
    await objects.until_same(api, before, 60)
    await world.juju.remove(juju.APPLICATION)
    await world.is_clean()
    quarter = CYCLES // 4
    for name, tolerance in TOLERANCES.items():
        values = [sample[name] for sample in samples]
        early = statistics.median(values[quarter : 2 * quarter])
        late = statistics.median(values[-quarter:])
        print(f"{name}: {early:.0f} -> {late:.0f}")
        assert late - early <= tolerance, values
