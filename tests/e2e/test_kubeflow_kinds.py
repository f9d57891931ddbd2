"""Notebooks, trials and steps of pipelines run on, whatever we do to the model around them.

Their owners are of Kubeflow's own kinds: those would not make an equal pod again, or somebody's
work would be lost with it. A Deployment beside them shows that others were replaced meanwhile.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest

from testbed import kubernetes, parts
from testbed.kit import diagnostics, juju, observer, timeline, workloads
from tests.e2e import kubeflow_kinds, life_world, race_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

MODEL = "kinds"
PROFILE = "ann"
WATCHED = "watched"
"""A label by which a pod is called here."""
EARLY = ("analysis", "anns-analysis", "trial", "step")
"""There before the mesh."""
LATE = ("forecast", "anns-forecast")
"""Made in the mesh."""
READY = 120
REPLACED = 240
"""Seconds: a pod must have been Ready for one minute, and a crowded node is slow."""
HOOK = 240
TOGGLES = (
    {"proxy_shutdown": "false", "hold_application": "false"},
    {"proxy_shutdown": "true", "hold_application": "true"},
    {"served_namespaces": "model", "pod_labels": "{kept: 'yes'}"},
    {"served_namespaces": "model,profiles,labelled", "job_sidecars": "classic"},
    {"mesh_mode": "none"},
    {"included_pods": "app=nobody", "mesh_mode": "auto"},
    {"included_pods": ""},
)


@dataclasses.dataclass(frozen=True)
class Life:
    """What would differ if a pod were another one, or a container of it were started anew."""

    uid: str
    containers: frozenset[tuple[str, str, int]]
    """Name, id and number of restarts of each."""


@dataclasses.dataclass
class Story:
    """The pods after each thing that was done, and what was answered."""

    stages: dict[str, dict[str, Life]] = dataclasses.field(default_factory=dict)
    answers: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    injected: set[str] = dataclasses.field(default_factory=set)


class World(life_world.World):
    """The model, and a profile's namespace."""

    async def pods(self) -> dict[str, kubernetes.Object]:
        """The pods that are watched, by name."""
        return {
            pod["metadata"]["labels"][WATCHED]: pod
            for namespace in (self.model, PROFILE)
            for pod in await self.api.list("Pod", namespace, labels=WATCHED)
        }

    async def lives(self) -> dict[str, Life]:
        return {name: life(pod) for name, pod in (await self.pods()).items()}

    async def create(self, *names: str) -> None:
        """Create things by their names, and wait until their pods are Ready."""
        for name in names:
            make = {"trial": self._trial, "step": self._step}.get(name, self._notebook)
            await kubeflow_kinds.create(self.api, make(name))

        async def are_ready():
            found = await self.pods()
            return set(names) <= {name for name, pod in found.items() if timeline.is_ready(pod)}

        await observer.eventually(are_ready, READY, f"{', '.join(names)} Ready")

    def _notebook(self, name: str) -> list[kubernetes.Object]:
        namespace = PROFILE if name.startswith(PROFILE) else self.model
        image = self.node.charms.payload_image
        return kubeflow_kinds.notebook(name, namespace, image, {WATCHED: name})

    def _endless(self, name: str) -> kubernetes.Object:
        command = workloads.payload("sleep.py", 100000)
        main = workloads.container("main", self.node.charms.payload_image, command)
        return workloads.template([main], restart_policy="Never", labels={WATCHED: name})

    def _trial(self, name: str) -> list[kubernetes.Object]:
        peer = "katib-db-manager:6789"
        template = kubeflow_kinds.with_collector(
            self._endless(name), name, peer, wait_for_all=False
        )
        return kubeflow_kinds.trial(workloads.job(name, self.model, template))

    def _step(self, name: str) -> list[kubernetes.Object]:
        one = kubeflow_kinds.step(self._endless(name), name)
        return kubeflow_kinds.workflow(name, self.model, name, [one])

    async def label_profile(self) -> None:
        labels = {"app.kubernetes.io/part-of": "kubeflow-profile", "istio-injection": "enabled"}
        await self.api.apply(workloads.namespace(PROFILE, labels))

    async def replaced(self) -> None:
        """Wait until the Deployment beside them has got its sidecar."""

        async def is_replaced():
            pods = await self.api.list("Pod", self.model, labels="app=stays")
            return len(pods) == 1 and is_injected(pods[0]) and timeline.is_ready(pods[0])

        await observer.eventually(is_replaced, REPLACED, "the Deployment in the mesh")

    @contextlib.asynccontextmanager
    async def hook(self, name: str) -> AsyncIterator[None]:
        """Do something of which this hook is told, and wait for the hook's end."""
        before = await self.ran(name)
        yield

        async def has_run():
            return await self.ran(name) > before

        await observer.eventually(has_run, HOOK, f"{name} run")

    async def act(self, action: str) -> dict[str, str]:
        outcome = await self.juju.do("run", f"{juju.APPLICATION}/0", action)
        return outcome["results"]


def life(pod: kubernetes.Object) -> Life:
    status = pod["status"]
    both = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    containers = {(each["name"], each["containerID"], each["restartCount"]) for each in both}
    return Life(pod["metadata"]["uid"], frozenset(containers))


def is_injected(pod: kubernetes.Object) -> bool:
    return "sidecar.istio.io/status" in pod["metadata"].get("annotations", {})


@pytest.fixture(scope="module")
def story(node):
    """All that can be done to a model with such pods in it."""
    told = Story()

    async def tell():
        async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
            world = World(node, api, MODEL)
            try:
                async with profiles_unclaimed(world):
                    await live(world, told)
            except BaseException:
                folder = race_world.BUILD / "failures"
                folder.mkdir(parents=True, exist_ok=True)
                text = await diagnostics.collect(api, world.juju, (MODEL, PROFILE))
                (folder / f"{MODEL}.txt").write_text(text)
                raise
            finally:
                await world.juju.do("destroy_model", force=True)
                await api.delete("Namespace", PROFILE)

    asyncio.run(tell())
    return told


@contextlib.asynccontextmanager
async def profiles_unclaimed(world: World) -> AsyncIterator[None]:
    """Keep the model that other modules leave on the node from serving our profile."""
    neighbour = world.node.juju()
    present = await world.api.find("Namespace", neighbour.model) and await neighbour.status()
    if present:
        await neighbour.config(juju.APPLICATION, served_namespaces="model")
    try:
        yield
    finally:
        if present:
            await neighbour.config(juju.APPLICATION, served_namespaces="model,profiles,labelled")


async def live(world: World, told: Story) -> None:
    async def note(stage: str) -> None:
        told.stages[stage] = await world.lives()

    await asyncio.to_thread(parts.install, world.node.testbed, "argo-workflows")
    await kubeflow_kinds.define(world.node.testbed)
    await world.api.apply(workloads.namespace(PROFILE))
    await world.set_up()
    await world.api.apply(*kubeflow_kinds.executor_rights(world.model))
    await world.create(*EARLY)
    await note("before the mesh")
    await world.label_profile()
    await world.deploy()
    await world.replaced()
    await note("converged")
    await world.create(*LATE)
    await note("created in the mesh")
    for action in ("list-uninjected", "restart-uninjected", "restart-stale"):
        told.answers[action] = await world.act(action)
        await note(action)
    for options in TOGGLES:
        async with world.hook("config-changed"):
            await world.juju.set(juju.APPLICATION, **options)
        await note(f"{options}")
    async with world.hook("upgrade-charm"):
        await world.juju.do("refresh", juju.APPLICATION, world.node.charms.integrator.path)
    await world.juju.wait_for("active", HOOK)
    await note("refreshed")
    await world.juju.do("add_unit", juju.APPLICATION)
    await world.juju.wait_for("active", HOOK)
    await note("two units")
    await world.juju.remove(juju.APPLICATION)
    await note("removed")
    told.injected = {name for name, pod in (await world.pods()).items() if is_injected(pod)}


@pytest.mark.parametrize("name", [*EARLY, *LATE])
def test_pod_of_kubeflow_keeps_running_throughout(story, name):
    seen = {stage: pods[name] for stage, pods in story.stages.items() if name in pods}
    assert "removed" in seen
    (first,) = {each.uid for each in seen.values()}
    assert first
    assert {each.containers for each in seen.values()} == {seen["removed"].containers}
    assert {restarts for _, _, restarts in seen["removed"].containers} == {0}


def test_those_that_came_before_the_mesh_stay_outside_and_the_others_are_in_it(story):
    assert story.injected == set(LATE)


@pytest.mark.parametrize(
    ("action", "key"),
    [("list-uninjected", "pods"), ("restart-uninjected", "not-ours-to-restart")],
)
def test_actions_say_to_whom_a_pod_without_sidecar_belongs(story, action, key):
    analysis = "StatefulSet/analysis"
    lines = sorted(story.answers[action][key].splitlines())
    found = [line for line in lines if line.startswith(f"{MODEL}/")]
    assert found[:2] == [
        f"{MODEL}/analysis-0 ({analysis}): {analysis} belongs to Notebook analysis",
        f"{MODEL}/step (Workflow/step): Workflow is no Deployment, StatefulSet or DaemonSet",
    ]
    assert found[2].startswith(f"{MODEL}/trial-")
    assert found[2].endswith(" (Job/trial): it runs to completion")
    assert len(found) == 3


def test_pod_of_a_profile_without_sidecar_is_listed(story):
    lines = story.answers["list-uninjected"]["pods"].splitlines()
    found = [line.partition(": ")[0] for line in lines if line.startswith(f"{PROFILE}/")]
    assert found == [f"{PROFILE}/anns-analysis-0"], lines


def test_nothing_of_theirs_is_replaced_on_request(story):
    assert story.answers["restart-uninjected"]["restarting"] == "none"
    assert story.answers["restart-stale"]["restarting"] == "none"
