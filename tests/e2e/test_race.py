"""The bundle-ordering race: whatever order things come up in, the model ends up in the mesh.

Each case has a model of its own with twelve applications. Its pods are watched while it converges:
nobody is taken who may not be, never more at once than allowed, and the charm's counts are true.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import re
import time

import pytest

from testbed.kit import juju, observer
from tests.e2e import race_world
from tests.e2e.race_world import ALL, BUDGET, BUSY, LIMIT, WORKLOADS

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SEED = int(os.environ.get("RACE_SEED", "1"))
"""Of what happens at random moments: fixed, so that a failure comes back, unless the environment
has another."""
METRICS = "/api/v1/namespaces/{}/pods/{}-0:8080/proxy/metrics"
REFUSED = re.compile(r'sidecar_lifecycle_evictions_total\{result="budget"\} (\S+)')
READY_FOR = 60
"""Seconds that a pod has been Ready before it may be replaced."""
WITHIN = 480
"""Seconds until the last pod is in the mesh."""
SAID = 240
"""Seconds until the charm says so: a hook takes a second or two, on a crowded machine a minute."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One order of events."""

    name: str
    order: tuple[str, ...]
    disturbance: str = ""
    notices: bool = True
    install: int = 15
    """Seconds of a charm's install hook; with more than a minute it could be taken meanwhile."""
    clusters: tuple[str, ...] = ("today",)


CASES = (
    Case(
        "istiod first, integrator last",
        ("istiod", "applications", "integrator"),
        install=80,
        clusters=("today", "external"),
    ),
    Case(
        "integrator first, istiod last",
        ("integrator", "applications", "istiod"),
        clusters=("today", "external"),
    ),
    Case(
        "istiod last",
        ("applications", "integrator", "istiod"),
        clusters=("today", "tomorrow", "external"),
    ),
    Case(
        "istiod flapping",
        ("istiod", "applications", "integrator"),
        disturbance="flapping",
        clusters=("today", "tomorrow"),
    ),
    Case(
        "integrator killed",
        ("applications", "istiod", "integrator"),
        disturbance="killed",
        clusters=("today", "tomorrow"),
    ),
    Case(
        "no notices",
        ("applications", "integrator", "istiod"),
        notices=False,
        clusters=("today", "tomorrow"),
    ),
)


@pytest.fixture(scope="module")
def notebooks(node):
    """The kind that owns a Notebook's StatefulSet."""
    text = json.dumps(race_world.NOTEBOOKS)
    node.testbed.apply(text)
    node.testbed.kubectl("wait", "--for=condition=Established", "crd/notebooks.kubeflow.org")
    yield
    node.testbed.kubectl("delete", "crd/notebooks.kubeflow.org")


@pytest.fixture
async def world(node, api, notebooks, case):
    """A model of the case's own."""
    name = f"race-{'-'.join(case.name.replace(',', '').split())}"
    options = {"dashboard": {"install-seconds": str(case.install)}}
    async with race_world.model(node, api, name, notices=case.notices, options=options) as made:
        yield made


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(each, id=each.name, marks=pytest.mark.cluster(*each.clusters))
        for each in CASES
    ],
)
async def test_every_order_ends_in_the_mesh(world, node, record_property, case):
    print(f"RACE_SEED={SEED}")
    if case.order[0] != "istiod":
        await world.istiod.remove()
    async with disturbed(world, case.disturbance):
        for part in case.order:
            await add(world, part)
            if part == "integrator" and part != case.order[-1]:
                await world.started(juju.APPLICATION)
        await world.watcher.until(world.converged, WITHIN, "all in the mesh")
    took = time.time() - max(world.there.values())
    record_property(
        f"{node.kind.name}: race, {case.name}, from the last part to the mesh, s", took
    )
    await the_budget_is_waited_for(world)
    await the_counts_are_true(world)
    await hooks_are_repeated(world)
    nobody_was_taken_who_may_not_be(world, killed=case.disturbance == "killed")


async def add(world, part):
    if part == "applications":
        await world.applications(*ALL)
    else:
        await {"istiod": world.istio, "integrator": world.integrator}[part]()


@contextlib.asynccontextmanager
async def disturbed(world, disturbance):
    """Let something happen meanwhile; the busy charm is let go when it has been interrupted."""
    happening = {"": None, "flapping": flap, "killed": kill}[disturbance]
    tasks = [asyncio.create_task(world.release_busy())]
    disturbing = asyncio.create_task(happening(world)) if happening else None
    try:
        yield
        if disturbing:
            await disturbing
            await world.watcher.until(world.converged, WITHIN, "all in the mesh, after all")
    finally:
        for task in (*tasks, disturbing):
            if task:
                task.cancel()
        await asyncio.gather(*filter(None, (*tasks, disturbing)), return_exceptions=True)


async def flap(world):
    """Take istiod away and bring it back, several times, while pods are replaced."""
    moments = random.Random(SEED)
    await world.watcher.until(lambda: world.replaced, WITHIN, "the first eviction")
    for _ in range(3):
        await world.scale_istiod(0)
        await asyncio.sleep(moments.uniform(0, 6))
        await world.scale_istiod(1)
        await asyncio.sleep(moments.uniform(2, 8))


async def kill(world):
    """Kill the integrator's pod at some moment between its creation and the usual end."""
    moment = random.Random(SEED).uniform(0, 110)
    integrator = f"StatefulSet/{juju.APPLICATION}"
    await world.watcher.until(lambda: world.ledger.of(integrator), WITHIN, "the integrator's pod")
    print(f"the integrator's pod is killed {moment:.1f} s after its creation")
    await asyncio.sleep(moment)
    await world.kill_integrator()


async def the_budget_is_waited_for(world):
    """What a PodDisruptionBudget holds stays until the budget allows it, and is counted so."""
    (pod,) = world.ledger.of(f"StatefulSet/{BUDGET}")
    if not pod.injected:
        path = METRICS.format(world.model, juju.APPLICATION)

        async def is_refused():
            text = await world.api.request("GET", path, accept="text/plain")
            found = REFUSED.search(text)
            return found and float(found[1]) > 0

        await observer.eventually(is_refused, SAID, "an eviction refused")
        inside, eligible, _ = world.counts
        assert eligible == inside + 1
        words = f"{inside}/{eligible} pods in mesh, {pod.workload} waits: Cannot evict pod"
        await world.juju.wait_for("waiting", SAID, words=words)
        (still,) = world.ledger.of(pod.workload)
        assert (still.uid, still.ready) == (pod.uid, True)
    await world.lift_budget()
    await world.watcher.until(lambda: world.converged(budget=True), SAID, "the budget's pod, too")


async def the_counts_are_true(world):
    status = await world.juju.wait_until_in_mesh(SAID)
    inside, eligible, reported = world.counts
    assert status.in_mesh == (inside, eligible)
    assert (f"{reported} need a restart by hand" in status.message) is bool(reported)


async def hooks_are_repeated(world):
    """No install is ended by an eviction; what is runs again."""
    replaced = {taken.pod.name for taken in world.replaced}

    async def all_done():
        found = await world.hooks()
        # Where its pod was not replaced it is at work still, and nobody disturbs it.
        if f"{BUSY}-0" not in replaced and found.pop((f"{BUSY}/0", "setup"), "") != "b":
            return None
        return found if all(marks.endswith("e") for marks in found.values()) else None

    found = await observer.eventually(all_done, SAID, "all hooks at their end")
    charms = [each.name for each in ALL if each.charm]
    assert {found[f"{name}/0", "install"] for name in charms} == {"be"}
    if f"{BUSY}-0" in replaced:
        assert found[f"{BUSY}/0", "setup"] == "bbe"


def nobody_was_taken_who_may_not_be(world, *, killed):
    ledger = world.ledger
    for taken in world.replaced:
        assert WORKLOADS[taken.pod.workload].ours, taken
        assert not taken.pod.injected, taken
        # Times of the API are whole seconds.
        assert taken.at - taken.pod.ready_since >= READY_FOR - 1, taken
    assert len({taken.pod.uid for taken in ledger.taken}) == len(ledger.taken)
    assert ledger.most_at_once <= LIMIT
    assert ledger.emptied == set()
    others = {taken.pod.workload for taken in ledger.taken} - set(WORKLOADS)
    assert "Deployment/modeloperator" not in others
    assert (f"StatefulSet/{juju.APPLICATION}" in others) is killed
