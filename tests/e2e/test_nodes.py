"""Three nodes, and the one where the unit acts is drained, loses its power, or is cut off.

Sixty Jobs end and a convergence is under way meanwhile. Each Job completes, no proxy is stopped
before its payload, and nobody is evicted twice.
"""

import asyncio
import contextlib
import dataclasses

import pytest

from testbed import kubernetes
from testbed.kit import clusters
from tests.e2e import conftest, nodes_world, race_ledger

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def nodes_node(root):
    """A cluster like today's with three nodes."""
    kind = dataclasses.replace(clusters.KINDS["today"], name="nodes")
    options = dataclasses.replace(kind.options, nodes=3, extras=())
    with conftest.running(kind, options) as found:
        yield found


@pytest.fixture(scope="module")
def deployed(nodes_node):
    """The charm with two units, on the nodes that may be lost."""
    return conftest.played(nodes_node, nodes_world.prepare)


@pytest.fixture
async def world(request, nodes_node, deployed):
    """One case, whose workloads are gone afterwards."""
    case = request.node.callspec.params["case"] if hasattr(request.node, "callspec") else "still"
    late = {f"{case}-{name}": replicas for name, replicas in nodes_world.LATE.items()}
    replicas = {f"Deployment/{name}": count for name, count in late.items()}
    watcher = race_ledger.Watcher(nodes_world.MODEL, replicas)
    async with (
        kubernetes.Api.from_kubeconfig(nodes_node.testbed.kubeconfig) as api,
        watcher.following(api),
    ):
        on = conftest.make_stage(nodes_node, api, watcher)
        made = nodes_world.World(on, nodes_node, watcher, late)
        await made.whole()
        yield made
        await made.clear()


@contextlib.asynccontextmanager
async def taken_away(world, node, case):
    """Take a node away, and give it back."""
    kubectl = world.node.testbed.kubectl
    # As an administrator does it, who heeds every PodDisruptionBudget.
    drain = ("drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    lose, restore = {
        "drained": (
            lambda: kubectl(*drain, "--timeout=400s"),
            lambda: kubectl("uncordon", node.name),
        ),
        "killed": (node.kill, node.start),
        "cut-off": (node.cut, node.mend),
    }[case]
    try:
        await asyncio.to_thread(lose)
        yield
    finally:
        await asyncio.to_thread(restore)


async def test_servers_of_the_webhook_are_on_nodes_of_their_own(world):
    pods = await world.servers()
    assert len(pods) == len({pod["spec"]["nodeName"] for pod in pods}) == 2


@pytest.mark.parametrize("case", ["drained", "killed", "cut-off"])
async def test_jobs_and_convergence_survive_the_loss_of_the_first_units_node(
    world, case, record_property
):
    ledger = world.watcher.ledger
    admission = nodes_world.Admission(world)
    await world.come_late()
    names = await world.start_jobs(case)
    async with admission.asked():
        await admission.works(3, 60)
        await world.watcher.until(lambda: ledger.taken, nodes_world.WITHIN, "the first eviction")
        await world.serve_on(await world.node_of_the_first())
        node = await world.node_of_the_first()
        assert world.touched(world.incomplete(names), node.name), "no Job on the node"
        answered = len(admission.answers)
        async with taken_away(world, node, case):
            await admission.works(5, 120)
            away = admission.answers[answered:]
            share = sum(each is True for each in away) / len(away)
            record_property(f"nodes: {case}, of new pods changed while the node is away", share)
            lost = "" if case == "drained" else node.name
            took = await world.all_complete(names, but_on=lost)
            record_property(f"nodes: {case}, Jobs complete while the node is away, s", took)
            done = len(names) - len(world.incomplete(names))
            assert done > len(names) / 3, "too few to tell"
        took = await world.all_complete(names)
        record_property(f"nodes: {case}, and all others once it is back, s", took)
    await world.watcher.until(world.converged, nodes_world.WITHIN, "all late ones in the mesh")
    await world.nothing_was_early(names)
    world.nobody_was_taken_twice(node.name)
    if case == "drained":
        assert set(away) == {True}, away
        assert ledger.emptied == set()
    await world.whole()
