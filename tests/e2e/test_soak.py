"""The soak: the charm lives through everything that happens, again and again, and does not grow.

`SOAK_CYCLES=10` runs fewer cycles, `SOAK_MINUTES=60` begins none after that time. Each has one
change of the configuration, one killed unit, one restart of istiod, one application added and one
removed; the next begins when the status is Active again with a true count.
"""

import asyncio
import os
import time

import pytest

from testbed.kit import juju, objects, observer, timeline, workloads
from tests.e2e import soak

CYCLES = int(os.environ.get("SOAK_CYCLES", "200"))
MINUTES = float(os.environ.get("SOAK_MINUTES", CYCLES))
ENOUGH = 40
"""Cycles from which growth can be told from warming up."""
WITHIN = 240.0
"""Seconds for anything in a cycle; on a quiet machine all of it takes a tenth."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900 + MINUTES * 60)]

MODEL = "soak"
MARK = "example.com/cycle"
LASTING = f"{juju.APPLICATION}-0"
KILLED = f"{juju.APPLICATION}-1"
OWNED = f"istio-integrator.charmhub.io/owner={MODEL}.{juju.APPLICATION}"
UNCOUNTED = {"Event", "EndpointSlice", "Endpoints", "ReplicaSet", "Pod", "PodMetrics"}


class World:
    """The model under soak, and what is done to it."""

    def __init__(self, node, api):
        self.node, self.api = node, api
        self.juju = node.juju(MODEL)
        self.record = soak.Record()

    async def set_up(self):
        """Deploy two units and one application that stays."""
        await self.juju.add_model()
        image = self.node.charms.payload_image
        wait = ["python3", "-c", "import time; time.sleep(1e9)"]
        template = workloads.template([workloads.container("main", image, wait)])
        await self.api.apply(workloads.deployment("stays", MODEL, template))
        await self.juju.deploy(self.node.charms.integrator, juju.APPLICATION)
        await self.juju.do("add_unit", juju.APPLICATION)
        await self.active(in_mesh=1)
        await observer.eventually(self.is_at_rest, WITHIN, "no replacement under way")

    async def is_at_rest(self):
        """Whether convergence remembers no round; a pod counts before its round is over."""
        memory = await self.api.get("ConfigMap", f"{juju.APPLICATION}-convergence", MODEL)
        return '"rounds"' not in memory["data"]["state"]

    async def cycle(self, number):
        """Let everything happen once, much of it at the same time."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.kill_unit())
            tasks.create_task(self.configure(number))
            if number:
                tasks.create_task(self.juju.remove(f"app-{number - 1}"))
            await self.add(f"app-{number}")
            await self.restart_istiod()
        await self.active(in_mesh=2)

    async def kill_unit(self):
        """Kill a unit's pod as a node that dies would, and wait until another runs its hooks."""
        before = (await self.api.get("Pod", KILLED, MODEL))["metadata"]["uid"]
        await self.api.delete("Pod", KILLED, MODEL, grace=0)

        async def is_back():
            pod = await self.api.find("Pod", KILLED, MODEL)
            return pod and pod["metadata"]["uid"] != before and timeline.is_ready(pod)

        await observer.eventually(is_back, WITHIN, f"{KILLED} Ready again")

    async def configure(self, number):
        """Change an option, and see it on a pod."""
        await self.juju.set(juju.APPLICATION, pod_annotations=f"{{{MARK}: c{number}}}")
        body = workloads.template(
            [workloads.container("main", "unused", ["true"])], labels=workloads.NO_SIDECAR
        )
        trial = workloads.pod("trial", MODEL, body)

        async def is_changed():
            created = await self.api.create(trial, dry_run=True)
            return created["metadata"].get("annotations", {}).get(MARK) == f"c{number}"

        await observer.eventually(is_changed, WITHIN, f"new pods with {MARK}=c{number}")

    async def add(self, name):
        """Add an application, and wait until its pod is in the mesh."""
        await self.juju.deploy(self.node.charms.web, name)

        async def is_in_mesh():
            pod = await self.api.find("Pod", f"{name}-0", MODEL)
            return pod and "sidecar.istio.io/status" in pod["metadata"].get("annotations", {})

        await observer.eventually(is_in_mesh, WITHIN, f"{name} with a sidecar")

    async def restart_istiod(self):
        """Kill istiod's pod and wait for the next one."""
        namespace, labels = "istio-system", "app=istiod"
        before = await self.api.list("Pod", namespace, labels=labels)
        for pod in before:
            await self.api.delete("Pod", pod["metadata"]["name"], namespace, grace=0)
        gone = {pod["metadata"]["uid"] for pod in before}

        async def is_back():
            pods = await self.api.list("Pod", namespace, labels=labels)
            return any(
                timeline.is_ready(pod) and pod["metadata"]["uid"] not in gone for pod in pods
            )

        await observer.eventually(is_back, WITHIN, "istiod Ready again")

    async def active(self, *, in_mesh):
        """Wait until all units are Active and idle, and the leader counts the pods right."""
        await self.juju.wait_until_settled(WITHIN, in_mesh)

    async def sample(self):
        """Measure processes now and then, until cancelled."""
        while True:
            await asyncio.to_thread(self.record.measure, await self.containers())
            await asyncio.sleep(5)

    async def containers(self):
        """Name the containers of ours by what they are."""
        found = {}
        for pod in await self.api.list("Pod", MODEL):
            name = pod["metadata"]["name"]
            role = name if name in (LASTING, KILLED) else name.rsplit("-", 2)[0]
            if role.startswith(juju.APPLICATION):
                for status in pod.get("status", {}).get("containerStatuses", ()):
                    identity = status.get("containerID", "").rpartition("/")[2]
                    if identity:
                        found[identity] = f"{role}/{status['name']}"
        return found

    async def count(self):
        """Count the objects that are ours."""
        counted = 0
        for resource in await self.api.resources():
            if {"list", "get"} <= resource.verbs and resource.kind not in UNCOUNTED:
                counted += len(await self.api.list(resource.kind, labels=OWNED))
        self.record.add("cluster", "objects", counted)


@pytest.mark.cluster("today")
async def test_many_cycles_leave_no_growth_and_nothing_stuck(node, api):
    world = World(node, api)
    await world.set_up()
    before = await objects.snapshot(api)
    began = time.monotonic()
    sampling = asyncio.create_task(world.sample())
    done = 0
    try:
        for number in range(CYCLES):
            if time.monotonic() - began > MINUTES * 60:
                break
            await world.cycle(number)
            await world.count()
            print(f"cycle {number + 1}/{CYCLES}: {time.monotonic() - began:.0f} s in all")
            assert not sampling.done()
            done += 1
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
    grown = world.record.grown()
    log = await world.juju.report()
    assert "Traceback" not in log
    assert [line for line in log.splitlines() if 'hook "' in line and "failed" in line] == []
    await world.juju.remove(f"app-{done - 1}")
    await world.juju.config(juju.APPLICATION, pod_annotations="")
    await world.active(in_mesh=1)
    await objects.until_same(api, before, 60)
    await world.juju.remove(juju.APPLICATION)
    await api.delete("Namespace", MODEL)
    assert "SOAK_MINUTES" in os.environ or done == CYCLES
    assert done < ENOUGH or grown == []
