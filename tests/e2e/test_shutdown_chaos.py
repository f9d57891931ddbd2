"""Jobs complete, and none too early, while parts of the cluster and of ours are killed or hang.

Each payload calls its peer just before its end, so a proxy stopped too early shows.
"""

import asyncio
import os
import signal
import subprocess

import pytest

from testbed.kit import observer, workloads
from tests.e2e import chaos_world as chaos
from tests.e2e import shutdown_world

pytestmark = [pytest.mark.long, pytest.mark.cluster("today"), pytest.mark.timeout(300)]


@pytest.fixture
async def world(node, api):
    """A namespace in the mesh with a fresh counting peer."""
    made = shutdown_world.World(chaos.MODEL, "", node.charms.payload_image, {})
    mesh = {"istio-injection": "enabled"}
    await api.apply(workloads.namespace(chaos.MODEL, mesh), *shutdown_world.peer(made))
    await shutdown_world.peer_is_ready(api, chaos.MODEL)
    yield made
    await api.delete("Deployment", shutdown_world.PEER, chaos.MODEL)
    for job in await api.list("Job", chaos.MODEL):
        await api.delete("Job", job["metadata"]["name"], chaos.MODEL)

    async def is_clear():
        pods = await api.list("Pod", chaos.MODEL)
        return not [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    await observer.eventually(is_clear, 60, "the pods of the test gone")


@pytest.fixture
async def units(node, tmp_path, request):
    """Two units, or as many as a test asks for, of which the first stops proxies at once."""
    kubeconfig = node.testbed.kubeconfig
    numbers = range(getattr(request, "param", 2))
    made = [chaos.Unit(number, kubeconfig, tmp_path / f"{number}.log") for number in numbers]
    try:
        for unit in made:
            unit.start()
            await observer.eventually(unit.is_ready, 40, "the unit watches pods")
        yield made
    finally:
        codes = {unit.end() for unit in made}
        for unit in made:
            print(unit.log.read_text()[-4000:] if unit.log.exists() else "never started")
    assert codes <= {0, None}


@pytest.mark.parametrize(
    ("units", "lose"),
    [
        pytest.param(2, chaos.Unit.kill, id="killed"),
        pytest.param(3, chaos.Unit.kill, id="two-killed"),
        pytest.param(2, chaos.Unit.freeze, id="frozen"),
    ],
    indirect=["units"],
)
async def test_unit_that_is_lost_is_stood_in_for_by_the_next_one(
    api, world, units, lose, *, request, record_property
):
    *lost, last = units
    before = await last.usage()
    names = await chaos.start(api, world, 12, seconds=lambda number: 2 + number / 2)
    await asyncio.sleep(3)
    for unit in lost:
        lose(unit)
    took = await chaos.complete(api, names, 60)
    case = request.node.callspec.id.removeprefix("today-")
    record_property(f"chaos: 12 Jobs complete after the first unit was lost ({case}), s", took)
    for unit in lost:
        unit.restore()
    # What comes back acts on what it saw before, and looks at each pod once more.
    later = await chaos.start(api, world, 8, prefix="later")
    await chaos.complete(api, later, 60)
    await chaos.none_was_early(api, [*names, *later], chaos.LONGEST_WAIT)
    await chaos.nothing_leaks(last, before)


@pytest.mark.parametrize("component", ["kube-apiserver", "kubelet", "containerd"])
async def test_jobs_complete_through_a_restart(
    api, world, units, *, node, component, record_property
):
    before = await units[0].usage()
    names = await chaos.start(api, world, 12, seconds=lambda number: 2 + number)
    restarts = node.testbed.components()[component]["restarts"]
    await asyncio.to_thread(node.testbed.restart, component)
    took = await chaos.complete(api, names, 120)
    record_property(f"chaos: 12 Jobs of up to 13 s complete after {component} was killed, s", took)
    assert node.testbed.components()[component]["restarts"] == restarts + 1
    await chaos.none_was_early(api, names)
    await chaos.nothing_leaks(units[0], before)


async def test_stopped_proxies_delay_nobody_else(api, world, units, record_property):
    """More than the four places of a node are frozen, while their payloads and others' end."""
    before = await units[0].usage()
    count = 5
    stuck = await chaos.start(
        api, world, count, seconds=lambda number: 30, prefix="stuck", asks=False
    )
    frozen = chaos.of_pods(stuck)
    assert len(frozen) == 2 * len(stuck)
    try:
        for process in frozen:
            os.kill(process, signal.SIGSTOP)
        names = await chaos.start(api, world, 8, seconds=lambda number: 15)
        took = await chaos.complete(api, names, 60)
        record_property(f"chaos: 8 Jobs of 15 s complete beside {count} frozen proxies, s", took)
        assert not await chaos.completed(api) & set(stuck)
    finally:
        for process in frozen:
            os.kill(process, signal.SIGCONT)
    await chaos.complete(api, stuck, 90)
    await chaos.none_was_early(api, names)
    await chaos.nothing_leaks(units[0], before)


async def test_port_forward_that_hangs_is_replaced_by_exec(api, world, units):
    names = await chaos.start(api, world, 4, seconds=lambda number: 8)
    for process in chaos.of_pods(names[:1], ("pilot-agent",)):
        rule = ["-I", "INPUT", "-i", "lo", "-p", "tcp", "--dport", "15020", "-j", "DROP"]
        command = ["nsenter", "-t", str(process), "-n", "iptables", *rule]
        subprocess.run(command, check=True)  # noqa: ASYNC221  it takes milliseconds
    await chaos.complete(api, names, 60)
    await chaos.none_was_early(api, names)
    results = {(e["transport"], e["result"]) for e in units[0].lines("stop attempted")}
    assert ("port-forward", "timeout") in results
    assert ("exec", "acknowledged") in results
