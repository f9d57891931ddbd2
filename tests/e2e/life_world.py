"""A model with the charm in it, and what may happen to an application in its life."""

import collections
import contextlib
import hashlib
import re
import time

from juju_standin import client
from testbed import kubernetes
from testbed.kit import juju, objects, observer, workloads
from tests.e2e import juju_world, pods

MARK = "example.com/version"
_NOTICED = 15.0
"""Seconds after which a notice has been sent, the gap after another one included, and heard."""


@contextlib.asynccontextmanager
async def model(node, api, name):
    """Set a model up that is called after a test, and take it away afterwards."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    made = World(node, api, f"life-{digest}")
    await made.set_up()
    yield made
    with contextlib.suppress(client.JujuError):
        await made.juju.do("destroy_model", force=True)

    async def is_gone():
        return not await api.find("Namespace", made.model)

    await observer.eventually(is_gone, 60, "the model gone")


class World:
    """A model with one application that should be in the mesh, and the charm's life in it."""

    def __init__(self, node, api, model):
        self.node, self.api, self.model = node, api, model
        self.juju = node.juju(model)
        self.before = {}

    async def set_up(self):
        """Add the model and wait until nobody else changes anything."""
        await self.juju.add_model()
        image = self.node.charms.payload_image
        wait = ["python3", "-c", "import time; time.sleep(1e9)"]
        template = workloads.template([workloads.container("main", image, wait)])
        await self.api.apply(workloads.deployment("stays", self.model, template))
        await observer.eventually(
            lambda: juju_world.webhook(self.api, self.model), 60, "Juju's webhook"
        )
        self.before = await objects.snapshot(self.api)

    async def deploy(self, charm=None, name=juju.APPLICATION):
        """Deploy the charm, or another revision of it."""
        await self.juju.deploy(charm or self.node.charms.integrator, name)

    async def active(self, within=300, name=juju.APPLICATION, in_mesh=1):
        """Wait until every unit is Active and idle with a true count."""
        return await self.juju.wait_until_settled(within, in_mesh, name)

    async def settings_arrive(self, value):
        """Wait until new pods get an annotation of this value."""

        async def is_there():
            created = await pods.tried(self.api, self.model, labels=workloads.NO_SIDECAR)
            return created["metadata"].get("annotations", {}).get(MARK) == value

        await observer.eventually(is_there, 180, f"new pods with {MARK}={value}")

    async def mark(self, value):
        """Have new pods get an annotation of this value, whatever the agent is doing."""
        await self.juju.set(juju.APPLICATION, pod_annotations=f"{{{MARK}: {value}}}")

    async def outside(self):
        """Wait until no unit is left and the model is outside of the mesh."""

        async def is_outside():
            status = await self.juju.do("status")
            found = await self.api.get("Namespace", self.model)
            is_labelled = "istio-injection" in found["metadata"].get("labels", {})
            return not status["applications"][juju.APPLICATION]["units"] and not is_labelled

        await observer.eventually(is_outside, 90, "no unit and no label")

    async def pod(self, unit=0):
        """The unit's pod; None while there is none."""
        return await self.api.find("Pod", f"{juju.APPLICATION}-{unit}", self.model)

    async def kill(self, unit=0):
        """Kill a unit's pod as a node that dies would; return its uid."""
        pod = await self.pod(unit)
        await self.api.delete("Pod", pod["metadata"]["name"], self.model, grace=0)
        return pod["metadata"]["uid"]

    async def hooks(self):
        """Count the hooks that came to their end, but those that the clock starts."""
        log = await self.juju.do("debug_log")
        ran = collections.Counter(re.findall(r'ran "(\S+)" hook', log))
        del ran["update-status"]
        return ran

    async def quiet(self):
        """Wait until no hook has come to its end for longer than a notice may wait."""
        seen, since = await self.hooks(), time.monotonic()

        async def is_over():
            nonlocal seen, since
            found = await self.hooks()
            if found != seen:
                seen, since = found, time.monotonic()
            return time.monotonic() - since > _NOTICED

        await observer.eventually(is_over, 180, "no hook for a while", every=0.5)

    async def all_watch(self, units):
        """Wait until the workload of every unit watches pods."""

        async def is_all():
            return all([await self._watches(unit) for unit in range(units)])

        await observer.eventually(is_all, 180, f"{units} workloads watch pods")

    async def _watches(self, unit):
        pod = f"{juju.APPLICATION}-{unit}:8080"
        path = f"/api/v1/namespaces/{self.model}/pods/{pod}/proxy/readyz"
        try:
            await self.api.request("GET", path, accept="text/plain")
        except kubernetes.ApiError:
            return False
        return True

    async def is_clean(self, recreated=()):
        """Wait until the cluster is as it was before the charm, which came and went in peace."""
        await objects.until_same(self.api, self.before, 90, recreated=recreated)
        await self.no_surprises()

    async def no_surprises(self):
        """See that no hook of the charm failed and nothing in it broke off with a traceback.

        Other applications may be removed in the middle of a hook: Juju 4 ends a unit without a
        relation at once.
        """
        log = await self.juju.do("debug_log")
        own = [line for line in log.splitlines() if line.startswith(f"unit-{juju.APPLICATION}-")]
        assert own
        assert [line for line in own if "Traceback" in line] == []
        assert [line for line in own if 'hook "' in line and "failed" in line] == []
