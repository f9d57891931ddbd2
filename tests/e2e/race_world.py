"""A model of twelve applications, as a Kubeflow bundle has them, and what came of each."""

import contextlib
import dataclasses
import re
import time

from testbed import kubernetes
from testbed.kit import istiod, juju, observer, workloads
from tests.e2e import kubeflow_kinds, race_ledger

LIMIT = 2
"""The default of restart-max-unavailable."""
BUSY = "pipelines"
"""The charm that is still at work in a hook when its pod is replaced."""
BUDGET = "katib-db"
DISABLED = {"istio-integrator.charmhub.io/restart-pods": "disabled"}
NOTEBOOKS = kubeflow_kinds.NOTEBOOKS


@dataclasses.dataclass(frozen=True)
class Application:
    """One application of the bundle."""

    workload: str
    replicas: int = 1
    charm: dict[str, str] | None = None
    """Its options, where it is a real charm."""
    ours: bool = True
    """Whether convergence may replace its pods."""

    @property
    def name(self):
        return self.workload.partition("/")[2]


ALL = (
    Application("StatefulSet/dashboard", charm={"install-seconds": "15"}),
    Application(f"StatefulSet/{BUSY}", charm={"install-seconds": "5"}),
    Application("StatefulSet/minio", replicas=3),
    Application("Deployment/katib-ui"),
    Application("StatefulSet/analysis", ours=False),  # of a Notebook
    Application(f"StatefulSet/{BUDGET}"),
    Application("StatefulSet/profiles", charm={"install-seconds": "10", "setup-seconds": "2"}),
    Application("StatefulSet/mlmd"),
    Application("Deployment/ml-pipeline", replicas=3),
    Application("DaemonSet/cache"),
    Application("Deployment/left-alone", ours=False),
    Application("Pod/bare", ours=False),
)
WORKLOADS = {each.workload: each for each in ALL}


@dataclasses.dataclass
class World:
    """The model, and the hands of whoever deploys the bundle."""

    node: object
    api: kubernetes.Api
    watcher: race_ledger.Watcher
    juju: juju.Juju
    istiod: istiod.Istiod
    options: dict[str, dict[str, str]]
    """Of some charms, beside their usual ones."""
    there: dict[str, float] = dataclasses.field(default_factory=dict)
    """When each part was there, in seconds since the epoch."""

    @property
    def model(self):
        return self.juju.model

    @property
    def ledger(self):
        return self.watcher.ledger

    # The parts, in any order

    async def applications(self, *which: Application) -> None:
        for each in which:
            if each.charm is None:
                await self.api.apply(*await self._objects(each))
            else:
                config = {**each.charm, **self.options.get(each.name, {})}
                charm = dataclasses.replace(self.node.charms.web, config=config)
                await self.juju.deploy(charm, each.name)
        await self.watcher.until(
            lambda: all(self.ledger.is_whole(each.workload) for each in which),
            240,
            "the applications Ready",
        )
        self.there["applications"] = time.time()
        if any(each.name == BUSY for each in which):
            await self._occupy()

    async def _occupy(self) -> None:
        """Have the busy charm, once it is started, run a hook that does not end by itself."""
        await self.started(BUSY)
        await self.juju.do("config", BUSY, {"setup-seconds": "900"})

    async def started(self, application: str) -> None:
        """Wait until a charm's first unit is through its first hooks."""
        line = f'unit.{application}/0.worker.uniter.operation ran "start" hook'

        async def is_started():
            return line in await self.juju.do("debug_log")

        await observer.eventually(is_started, 240, f"{application} started")

    async def integrator(self) -> None:
        charm = self.node.charms.integrator
        await self.juju.deploy(charm, juju.APPLICATION)
        await self.watcher.until(self._integrator_is_ready, 150, "the integrator Ready")
        self.there["integrator"] = time.time()

    async def istio(self) -> None:
        """Bring istiod back if it is away."""
        if self.istiod.saved:
            await self.istiod.install()
        await self.istiod.wait_until_ready()
        self.there["istiod"] = time.time()

    def _integrator_is_ready(self):
        pods = self.ledger.of(f"StatefulSet/{juju.APPLICATION}")
        return bool(pods) and all(pod.ready for pod in pods)

    async def _objects(self, application: Application) -> list[kubernetes.Object]:
        kind, name = application.workload.split("/")
        command = workloads.payload("server.py", "--port", 8080)
        template = workloads.server(self.node.charms.payload_image, command)
        if kind == "Pod":
            return [workloads.pod(name, self.model, template)]
        made = workloads.deployment(name, self.model, template)
        made["kind"] = kind
        spec = made["spec"]
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
        spec |= {
            "Deployment": {"replicas": application.replicas, "strategy": rolling},
            # As Juju makes them.
            "StatefulSet": {
                "replicas": application.replicas,
                "serviceName": f"{name}-endpoints",
                "podManagementPolicy": "Parallel",
            },
            "DaemonSet": {},
        }[kind]
        if kind == "DaemonSet":
            del spec["replicas"]
        if name == "left-alone":
            made["metadata"]["annotations"] = DISABLED
        if name == "analysis":
            made["metadata"]["ownerReferences"] = [await self._notebook(name)]
        budget = workloads.budget(name, self.model, maxUnavailable=0)
        return [made, budget] if name == BUDGET else [made]

    async def _notebook(self, name):
        body = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook"}
        made = await self.api.create({**body, "metadata": {"name": name, "namespace": self.model}})
        return {**body, "name": name, "uid": made["metadata"]["uid"], "controller": True}

    # What is true

    @property
    def counts(self):
        """Pods in the mesh, those that should be, and those that are only reported."""
        pods = [pod for each in ALL for pod in self.ledger.of(each.workload)]
        inside = sum(pod.injected for pod in pods)
        missing = [WORKLOADS[pod.workload].ours for pod in pods if not pod.injected]
        return inside, inside + sum(missing), missing.count(False)

    def converged(self, *, budget=False):
        """Whether each pod that may be replaced is Ready in the mesh, but for the budget's."""
        return all(
            self.ledger.is_whole(each.workload)
            and all(pod.injected for pod in self.ledger.of(each.workload))
            for each in ALL
            if each.ours and (budget or each.name != BUDGET)
        )

    async def hooks(self) -> dict[tuple[str, str], str]:
        """How the charms' hooks went so far."""
        return hooks(await self.juju.do("debug_log"))

    @property
    def replaced(self) -> list[race_ledger.Taken]:
        """The ends of the bundle's pods so far."""
        return [taken for taken in self.ledger.taken if taken.pod.workload in WORKLOADS]

    # What disturbs

    async def kill_integrator(self) -> None:
        await self.watcher.until(
            lambda: self.ledger.of(f"StatefulSet/{juju.APPLICATION}"), 60, "a pod to kill"
        )
        await self.api.delete("Pod", f"{juju.APPLICATION}-0", self.model, grace=0)

    async def scale_istiod(self, replicas: int) -> None:
        """Have it there or not, and wait for that."""
        body = {"spec": {"replicas": replicas}}
        await self.api.patch("Deployment", "istiod", istiod.NAMESPACE, body)
        if replicas:
            await self.istiod.wait_until_ready()
            return

        async def is_gone():
            return not await self.api.list("Pod", istiod.NAMESPACE, labels="app=istiod")

        await observer.eventually(is_gone, 60, "istiod's pod gone")

    async def lift_budget(self) -> None:
        await self.api.apply(workloads.budget(BUDGET, self.model, maxUnavailable=1))

    async def release_busy(self) -> None:
        """Once the busy charm's pod was replaced, its hook is quick."""
        workload = f"StatefulSet/{BUSY}"
        await self.watcher.until(
            lambda: any(taken.pod.workload == workload for taken in self.ledger.taken),
            900,
            f"{BUSY} replaced",
        )
        await self.juju.do("config", BUSY, {"setup-seconds": "1"})


_MARK = re.compile(r"^unit-\S+ \S+ INFO unit\.(\S+)\.juju-log (begin|end) (\w+)$", re.MULTILINE)


def hooks(log: str) -> dict[tuple[str, str], str]:
    """Read what the charms' hooks wrote into Juju's log, by unit and hook.

    Each begins (b) and ends (e), unless it is killed: `bbe` is one that was interrupted and then
    repeated.
    """
    found: dict[tuple[str, str], str] = {}
    for unit, mark, what in _MARK.findall(log):
        found[unit, what] = found.get((unit, what), "") + mark[0]
    return found


@contextlib.asynccontextmanager
async def model(node, api, name: str, *, notices: bool, options: dict[str, dict[str, str]]):
    """A model of its own, gone afterwards, with istiod as it was."""
    watcher = race_ledger.Watcher(name, {each.workload: each.replicas for each in ALL})
    world = World(node, api, watcher, node.juju(name), istiod.Istiod(api), options)
    config = {
        # One way of hearing of changes at a time, so that each is seen to be enough.
        "update-status-hook-interval": "0" if notices else "10s",
        "testbed-workload-notices": str(notices).lower(),
    }
    async with watcher.following(api):
        await world.juju.add_model(config)
        yield world
        if world.istiod.is_away:
            await world.istiod.install()
        await world.juju.do("destroy_model", force=True)
