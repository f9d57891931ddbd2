"""Training jobs of several pods that are suspended before they begin and while they work.

JobSet's and Trainer's own controllers do it. Whoever is suspended loses its pods at once, and gets
others when it goes on; the payload asks its peer through the mesh at its start and before its end.
"""

import asyncio
import dataclasses
from collections.abc import Mapping

import pytest

from testbed import kubernetes
from testbed.kit import observer, timeline
from tests.e2e import kubeflow_kinds, shutdown_world
from tests.e2e import shutdown_workloads as made

# The first one builds Kubeflow's controllers where that was not done yet.
pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

MODEL = shutdown_world.MODEL
WORKS = 20
"""Seconds for which a pod works: time enough to be suspended."""
WITHIN = 120
SETTLE = 3
"""Seconds for what must not happen to happen."""
KINDS = {
    # Kind, how it is made, its pods that work side by side, and its condition in the end.
    "jobset": ("JobSet", made.job_set, 4, "Completed"),
    "trainjob": ("TrainJob", made.train_job, 2, "Complete"),
}


@dataclasses.dataclass
class Story:
    """What was seen of one job."""

    name: str
    end: str
    sidecar: str
    conditions: list[set[str]] = dataclasses.field(default_factory=list)
    """Those that were true when it was suspended at first, again, and in the end."""
    before: list[str] = dataclasses.field(default_factory=list)
    """Pods that were there although it had never begun."""
    suspended: Mapping[str, timeline.PodLine] = dataclasses.field(default_factory=dict)
    """The pods that worked when it was suspended, by UID."""
    pods: Mapping[str, timeline.PodLine] = dataclasses.field(default_factory=dict)
    counted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    events: list[kubernetes.Object] = dataclasses.field(default_factory=list)
    workers: int = 0

    def said_of(self, uid: str) -> list[str]:
        """The reasons of our Events on a pod."""
        ours = ("ProxyStopped", "ProxyStopFailed", "ProxyLost")
        return [
            event["reason"]
            for event in self.events
            if event["involvedObject"].get("uid") == uid and event["reason"] in ours
        ]


@pytest.fixture(scope="module")
def world(node):
    """Where the jobs are put."""
    yield asyncio.run(shutdown_world.set_up(node))

    async def forget():
        async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
            await api.delete("Deployment", shutdown_world.PEER, MODEL)

    asyncio.run(forget())


@pytest.fixture(scope="module", params=["classic", "native"])
def sidecar(request):
    return request.param


@pytest.fixture(scope="module", params=KINDS)
def story(node, world, sidecar, request):
    """A job that is created suspended, goes on, is suspended while it works, and goes on."""

    async def tell():
        async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
            watching = observer.Observer()
            async with watching.following(api):
                return await play(api, world, watching, request.param, sidecar)

    return asyncio.run(tell())


async def play(api, world, watching, what, sidecar):
    kind, make, workers, end = KINDS[what]
    name = f"{what}-suspended-{sidecar}"
    told = Story(name, end, sidecar, workers=workers)
    annotations = shutdown_world.NATIVE if sidecar == "native" else {}
    *others, job = make_of(make, annotations)(world, name)
    job["spec"]["suspend"] = True
    items = [shutdown_world.labelled(name, item) for item in (*others, job)]

    async def conditions():
        status = (await api.get(kind, name, MODEL)).get("status", {})
        return {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}

    async def until(wanted):
        async def is_so():
            return wanted in await conditions()

        await observer.eventually(is_so, WITHIN, f"{name} {wanted}")
        told.conditions.append(await conditions())

    def lines():
        return {line.uid: line for line in watching.timeline.select(MODEL, {"case": name})}

    def at_work():
        return {
            uid: line
            for uid, line in lines().items()
            if line.deleted is None
            and any(each.now.state is timeline.State.RUNNING for each in line.payload)
            and "dataset-initializer" not in line.containers
        }

    async def all_have_asked():
        counted = await shutdown_world.counted(api, MODEL)
        return len(at_work()) == workers and counted.get(name, 0) >= workers

    try:
        await kubeflow_kinds.create(api, items)
        await until("Suspended")
        await asyncio.sleep(SETTLE)
        told.before = [line.name for line in lines().values()]
        await api.patch(kind, name, MODEL, {"spec": {"suspend": False}})
        await observer.eventually(all_have_asked, WITHIN, f"all pods of {name} at work")
        told.suspended = at_work()
        await api.patch(kind, name, MODEL, {"spec": {"suspend": True}})
        await until("Suspended")
        await watching.until(
            lambda: all(line.deleted is not None for line in told.suspended.values()),
            WITHIN,
            f"the pods of {name} gone",
        )
        await api.patch(kind, name, MODEL, {"spec": {"suspend": False}})
        await until(end)
        await asyncio.sleep(SETTLE)
        told.pods = lines()
        told.counted = await shutdown_world.counted(api, MODEL)
        told.events = await api.list("Event", MODEL)
    finally:
        for item in reversed(items):
            await api.delete(item["kind"], name, MODEL)
    return told


def make_of(make, annotations):
    if make is made.train_job:
        return make("0", WORKS, **annotations)
    return make(WORKS, **annotations)


def test_suspended_job_has_no_pods_until_it_goes_on(story):
    assert "Suspended" in story.conditions[0]
    assert story.before == []


def test_pods_of_a_job_suspended_at_work_go_and_nothing_is_said_of_them(story):
    assert "Suspended" in story.conditions[1]
    assert len(story.suspended) == story.workers
    for uid, line in story.suspended.items():
        assert line.deleted is not None
        assert story.said_of(uid) == []


def test_job_that_went_on_comes_to_its_end(story):
    assert story.end in story.conditions[2]
    assert "Failed" not in story.conditions[2]
    rest = [line for uid, line in story.pods.items() if uid not in story.suspended]
    # Those that work again, and the one before or after them.
    assert len(rest) == story.workers + 1
    assert {line.phase for line in rest} == {"Succeeded"}
    assert story.counted[story.name] == 2 * story.workers


def test_proxies_were_stopped_once_where_somebody_has_to(story):
    for uid, line in story.pods.items():
        if uid in story.suspended:
            continue
        is_classic = story.sidecar == "classic"
        assert story.said_of(uid) == ["ProxyStopped"] * is_classic
        assert line.proxy is not None
        assert line.proxy.now.exit_code == 0
        assert all(part.now.exit_code == 0 for part in line.payload)
