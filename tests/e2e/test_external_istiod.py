"""An istiod outside of the cluster, which calls its injector by URL: the model joins all the same.

One model goes through all of it: it is deployed in the worst order, and is brought into the
mesh a second time while istiod is cut off, killed, and given another authority.
"""

import asyncio
import contextlib
import json

import pytest

from testbed import istio, mesh
from testbed.juju import client
from testbed.kit import bundle, juju, objects, workloads
from tests.e2e import external_world as world

pytestmark = [
    pytest.mark.usefixtures("integrated"),
    pytest.mark.cluster("external"),
    pytest.mark.long,
    pytest.mark.timeout(900),
]

UNIT = f"{juju.APPLICATION}/0"
LATE = ("late-a", "late-b", "late-c", "late-d")
"""Workloads that come while there is no injector."""
AT_ONCE = 2
"""The default of restart-max-unavailable."""
ASK = "import urllib.request; urllib.request.urlopen('http://{}', timeout=10).read()"


async def test_diagnose_names_what_is_not_known_from_here(on, node):
    status = await on.juju.wait_until_in_mesh(60)
    assert f"https://{node.testbed.plan.istiod}:15017/inject" in status.message
    try:
        outcome = await on.juju.do("run", UNIT, "diagnose", {"format": "json"})
    except client.ActionFailedError as error:
        outcome = error.outcome
    found = json.loads(outcome["results"]["report"])
    said = {each["check"]: (each["level"], each["seen"], each["next"]) for each in found}
    assert said["istiod"][0] == "fine"
    (level, seen, command) = said["settings"]
    assert level == "doubtful"
    assert "it is not known whether sidecars let charms call Juju's controller" in seen
    assert [each for each in found if each["level"] == "broken"] == []
    option, _, value = command.partition("istio-integrator ")[2].partition("=")
    await on.juju.config(juju.APPLICATION, **{option: value.strip("'")})
    outcome = await on.juju.do("run", UNIT, "diagnose", {"format": "json"})
    checks = [each["check"] for each in json.loads(outcome["results"]["report"])]
    assert "settings" not in checks
    await on.juju.config(juju.APPLICATION, **{option: ""})


class Late:
    """Workloads that come while there is no injector, and have to be brought into the mesh."""

    def __init__(self, on):
        self.on = on

    async def come(self):
        on = self.on
        await on.istiod.remove()
        await on.api.apply(*(sleeping(on, name) for name in LATE))
        await on.observer.until(lambda: all(map(on.is_ready, LATE)), 90, "the late ones Ready")
        await on.istiod.install()
        assert len(self.bare()) == len(LATE)

    def bare(self):
        found = (pod for name in LATE for pod in self.on.pods_of(name))
        return {pod.uid for pod in found if pod.proxy is None}

    def inside(self):
        return [name for name in LATE if self.on.is_ready(name, in_mesh=True)]

    async def one_is_taken(self):
        before = len(self.bare())
        await self.on.observer.until(lambda: len(self.bare()) < before, 240, "the first eviction")

    async def all_are_in(self):
        await self.on.observer.until(lambda: self.inside() == list(LATE), 300, "all in the mesh")
        status = await self.on.juju.wait_until_in_mesh(120)
        assert status.in_mesh == (3 + len(LATE), 3 + len(LATE))

    @contextlib.asynccontextmanager
    async def refused(self, words):
        """See the charm say why nothing is injected, and that nothing more is taken then."""
        left = self.bare()
        await self.on.juju.set(juju.APPLICATION, log_level="debug")
        await self.on.juju.wait_for("waiting", 120, words=words)
        yield
        # What was evicted before may be missing.
        assert len(left - self.bare()) <= AT_ONCE
        assert left & self.bare()
        await self.on.juju.set(juju.APPLICATION, log_level="info")


@pytest.fixture
async def late(on):
    """Some of them, gone afterwards."""
    made = Late(on)
    await made.come()
    yield made
    for name in LATE:
        await on.api.delete("Deployment", name, on.model)


async def test_model_converges_while_istiod_is_cut_off_killed_and_given_another_authority(
    on, node, late
):
    testbed = node.testbed
    await late.one_is_taken()
    await asyncio.to_thread(mesh.stop, testbed)
    try:
        async with late.refused("does not inject"):
            pass
    finally:
        await asyncio.to_thread(mesh.start, testbed)
    await on.observer.until(late.inside, 240, "one of them in the mesh")
    known, shown = await world.authority(on.api), await world.certificate(testbed)
    await world.killed(testbed)
    # It has made itself a new certificate, of the authority that the API server knows.
    assert await world.certificate(testbed) != shown
    assert await world.authority(on.api) == known
    await asks(on, node)
    async with world.another_authority(on.api, testbed):
        await late.all_are_in()
        assert await world.authority(on.api) != known


async def test_model_converges_once_another_authority_is_written_down(on, node, late):
    await late.one_is_taken()
    async with world.unwritten(on.api), world.another_authority(on.api, node.testbed):
        async with late.refused("certificate signed by unknown authority"):
            await asks(on, node)
        await world.write_authority(on.api)
        await late.all_are_in()


async def asks(on, node):
    """Have an application in the mesh call another one, through the proxies of both."""
    caller, called = (on.pods_of(name)[0] for name in (bundle.WEB_NAMES[0], "digits"))
    assert caller.proxy
    assert called.proxy
    where = ("exec", caller.name, f"--namespace={on.model}", "--container=web", "--")
    command = ("python3", "-c", ASK.format(f"digits.{on.model}.svc/healthz"))
    await asyncio.to_thread(node.testbed.kubectl, *where, *command)


def sleeping(on, name):
    """A workload that waits, with nothing to keep it from being replaced."""
    wait = ["python3", "-c", "import time; time.sleep(1e9)"]
    template = workloads.template([workloads.container("main", on.image, wait)])
    return workloads.deployment(name, on.model, template)


async def test_removal_leaves_the_cluster_as_it_was(on, integrated):
    await on.juju.remove(juju.APPLICATION)
    authority = objects.Key("", "Secret", istio.SYSTEM, world.AUTHORITY)
    again = [*integrated.recreated, authority]
    await objects.until_same(on.api, integrated.before, 90, recreated=again)
