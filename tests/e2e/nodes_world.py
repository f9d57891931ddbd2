"""A model on three nodes: its workloads, the unit that acts, and what befalls a node."""

import asyncio
import dataclasses
import time

from integrator_contract import names
from testbed import components, istio
from testbed.kit import istiod, juju, observer, stage, timeline, workloads
from tests.e2e import chaos_world, conftest, pods, race_ledger, shutdown_world
from tests.unit.workload.fake_apiserver import running_task

MODEL = conftest.MODEL
JOBS = 60
LATE = {"a": 2, "b": 2, "c": 2, "d": 1, "e": 1, "f": 1}
"""Workloads that come while nothing is injected, and their replicas; a budget keeps one of two."""
FIRST = components.node_name(0)
HOST = "kubernetes.io/hostname"
ON_FIRST = {"nodeSelector": {HOST: FIRST}}
ELSEWHERE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": [FIRST]}]}
            ]
        }
    },
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": juju.APPLICATION}},
                "topologyKey": HOST,
            }
        ]
    },
}
"""Units are on the nodes that may be lost, each on its own."""
WITHIN = 600
"""Seconds: sixty pods start on a machine with two processors."""


async def prepare(on):
    """The charm with two units, what must outlive a node on the first one, and the peer."""
    if await on.api.find("Namespace", MODEL):
        return
    selected = {"spec": {"template": {"spec": ON_FIRST}}}
    await on.api.patch("Deployment", "istiod", istiod.NAMESPACE, selected)
    elsewhere = {"spec": {"template": {"spec": {"nodeSelector": {HOST: "testbed-1"}}}}}
    await on.api.patch("Deployment", istio.GATEWAY, istio.INGRESS, elsewhere)
    await on.istiod.wait_until_ready()
    await on.juju.add_model()
    await on.juju.deploy(on.charms.integrator, juju.APPLICATION)

    async def is_made():
        return await on.api.find("StatefulSet", juju.APPLICATION, MODEL)

    await observer.eventually(is_made, 60, "the units' StatefulSet")
    placed = {"spec": {"template": {"spec": {"affinity": ELSEWHERE}}}}
    await on.api.patch("StatefulSet", juju.APPLICATION, MODEL, placed)
    await on.juju.do("add_unit", juju.APPLICATION)
    await on.juju.until(lambda status: status.is_settled, 400, "settled")
    peer, service = shutdown_world.peer(tries(on.image))
    peer["spec"]["template"]["spec"] |= ON_FIRST
    await on.api.apply(peer, service)
    await shutdown_world.peer_is_ready(on.api, MODEL)


def tries(image):
    return shutdown_world.World(MODEL, "", image, {})


@dataclasses.dataclass
class World:
    """One case."""

    on: stage.Stage
    node: conftest.Node
    watcher: race_ledger.Watcher
    late: dict[str, int]

    @property
    def api(self):
        return self.on.api

    # What there is

    async def come_late(self):
        """Start workloads while nothing is injected, so that convergence has work to do."""
        await self.on.istiod.remove()
        try:
            for name, replicas in self.late.items():
                await self.api.apply(*self._late(name, replicas))
            names = [f"Deployment/{name}" for name in self.late]
            ledger = self.watcher.ledger
            await self.watcher.until(
                lambda: all(ledger.is_whole(name) for name in names), 200, "the late ones Ready"
            )
            assert not any(pod.injected for pod in ledger.of(*names))
        finally:
            await self.on.istiod.install()

    def _late(self, name, replicas):
        server = workloads.server(self.on.image, workloads.payload("server.py", "--port", 8080))
        made = workloads.deployment(name, MODEL, server)
        made["spec"]["replicas"] = replicas
        budget = workloads.budget(name, MODEL, minAvailable=1)
        return [made, budget] if replicas > 1 else [made]

    async def start_jobs(self, prefix):
        """Start Jobs that end over two minutes, and ask their peer just before; their names.

        A pod that its node or an eviction ended does not count, one that lost its proxy fails all.
        """
        world = tries(self.on.image)
        rules = [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [99]}},
        ]
        names = [f"{prefix}-{number}" for number in range(JOBS)]
        for number, name in enumerate(names):
            template = world.template(world.tries(name, "0", 20 + 2 * number))
            spec = {"backoffLimit": 4, "podFailurePolicy": {"rules": rules}}
            await self.api.apply(*shutdown_world.job(world, name, template, **spec))
        return names

    def touched(self, names, node):
        """Those Jobs of these that had a pod on a node, and were not Complete before its loss."""
        lines = self.watcher.timeline.select(MODEL)
        pods = [line for line in lines if _on(line.pod) == node and line.phase != "Succeeded"]
        return {_job(line) for line in pods} & {*names}

    async def node_of_the_first(self):
        """The node of the unit that stops proxies at once."""
        pod = await self.api.get("Pod", f"{juju.APPLICATION}-0", MODEL)
        return self.node.testbed.nodes[_index(pod["spec"]["nodeName"])]

    def incomplete(self, names):
        """Those Jobs of these that are not Complete, with the conditions they have."""
        lines = {name: self.watcher.job(MODEL, name) for name in names}
        return {
            name: sorted(line.conditions) if line else []
            for name, line in lines.items()
            if not line or line.succeeded_at is None
        }

    async def all_complete(self, names, *, but_on=""):
        """Wait until the Jobs are Complete, but for those that a lost node has touched.

        Returns the seconds.
        """
        began = time.monotonic()

        def left():
            but = self.touched(names, but_on) if but_on else set()
            return self.incomplete({*names} - but)

        try:
            await self.watcher.until(lambda: not left(), WITHIN, "the Jobs Complete")
        except observer.NotObserved as error:
            raise observer.NotObserved(f"{error}; not {left()}") from None
        return round(time.monotonic() - began, 1)

    def converged(self):
        ledger = self.watcher.ledger
        names = [f"Deployment/{name}" for name in self.late]
        return all(map(ledger.is_whole, names)) and all(p.injected for p in ledger.of(*names))

    async def servers(self):
        """The pods of the webhook."""
        return await self.api.list("Pod", MODEL, f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}")

    async def serve_on(self, node):
        """Have one of the webhook's two servers on a node, and the other elsewhere."""
        other = next((pod for pod in await self.servers() if _on(pod) != node.name), None)
        if node.name in {_on(pod) for pod in await self.servers()} and other:
            return
        kubectl = self.node.testbed.kubectl
        names = [each.name for each in self.node.testbed.nodes]
        elsewhere = [name for name in names if (name != node.name) == bool(other)]
        # Those are closed where the new one must not go.
        await asyncio.to_thread(kubectl, "cordon", *elsewhere)
        try:
            moved = (await self.servers())[0]["metadata"]["name"]
            await self.api.delete("Pod", moved, MODEL)

            async def are_apart():
                found = [pod for pod in await self.servers() if timeline.is_ready(pod)]
                return len(found) == 2 and [_on(pod) for pod in found].count(node.name) == 1

            await observer.eventually(are_apart, 90, f"a server on {node.name}")
        finally:
            await asyncio.to_thread(kubectl, "uncordon", *elsewhere)

    # What must be so

    async def nothing_was_early(self, names):
        """Where a payload succeeded, its proxy ended after it; none found its proxy gone.

        On a node without the cluster's names nothing is found.
        """
        seen = set()
        for line in self.watcher.timeline.select(MODEL):
            if _job(line) not in names:
                continue
            statuses = line.pod["status"].get("containerStatuses") or ()
            ends = {each["name"]: each["state"].get("terminated") for each in statuses}
            main, proxy = ends.get("main"), ends.get("istio-proxy")
            assert not main or main["exitCode"] != 99 or _is_disrupted(line.pod), line.name
            if main and proxy and line.phase == "Succeeded":
                assert main["exitCode"] == 0, line.name
                assert main["finishedAt"] <= proxy["finishedAt"], line.name
                seen.add(_job(line))
        assert seen == {*names}

    def nobody_was_taken_twice(self, node):
        """Convergence took each pod without a sidecar once, and else only the node's went."""
        for taken in self.watcher.ledger.taken:
            if taken.pod.workload.partition("/")[2] in self.late:
                was = self.watcher.timeline.pods[taken.pod.uid].pod
                assert not taken.pod.injected or _on(was) == node, taken

    async def clear(self):
        for name, replicas in self.late.items():
            await self.api.delete("Deployment", name, MODEL)
            if replicas > 1:
                await self.api.delete("PodDisruptionBudget", name, MODEL)
        for job in await self.api.list("Job", MODEL):
            await self.api.delete("Job", job["metadata"]["name"], MODEL)

        async def is_clear():
            pods = await self.api.list("Pod", MODEL, labels="job-name")
            return not pods

        await observer.eventually(is_clear, 120, "the pods of the Jobs gone")

    async def whole(self):
        """Wait until all nodes are Ready, and the units, each on its node."""

        async def is_whole():
            nodes = await self.api.list("Node")
            found = await self.api.get("StatefulSet", juju.APPLICATION, MODEL)
            return (
                all(_is_ready(each) for each in nodes)
                and found["status"].get("readyReplicas") == 2
            )

        await observer.eventually(is_whole, 240, "both units Ready")


def _is_ready(node):
    kinds = [(each["type"], each["status"]) for each in node["status"]["conditions"]]
    return ("Ready", "True") in kinds and not node["spec"].get("unschedulable")


def _on(pod):
    return pod["spec"].get("nodeName", "")


def _job(line):
    return line.pod["metadata"].get("labels", {}).get("job-name")


def _is_disrupted(pod):
    kinds = {each["type"] for each in pod["status"].get("conditions") or ()}
    return "DisruptionTarget" in kinds


def _index(name):
    return int(name.rpartition("-")[2])


class Admission:
    """Asks all the time what a new pod would look like, without making it."""

    def __init__(self, world):
        self._world = world
        self.answers: list[bool | str] = []
        """Whether each was changed as ours are, or why there was no answer."""

    async def ask(self):
        try:
            made = await pods.tried(self._world.api, MODEL, restart_policy="Never")
        except chaos_world.AWAY as error:
            return str(error)
        config = made["metadata"].get("annotations", {}).get("proxy.istio.io/config", "")
        return "holdApplicationUntilProxyStarts" in config

    def asked(self):
        async def go_on():
            while True:
                self.answers.append(await self.ask())
                await asyncio.sleep(0.5)

        return running_task(go_on())

    async def works(self, times, within):
        """Wait until so many answers in a row are right."""
        start = len(self.answers)

        async def do_work():
            new = self.answers[start:]
            return len(new) >= times and all(each is True for each in new[-times:])

        await observer.eventually(do_work, within, "new pods are changed")
