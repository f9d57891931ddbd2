"""Every kind of workload that runs to completion, side by side, with classic sidecars.

One run has all workloads of `shutdown_cases`; a test for each looks at what became of it. They
start x alone that a selected test is about: `-k "today and pytorch"`.
"""

import asyncio
import dataclasses

import pytest

from testbed import kubernetes
from testbed.kit import observer, timeline
from tests.e2e import shutdown_cases as cases
from tests.e2e import shutdown_world
from tests.e2e.shutdown_world import MODEL, conditions_of

# The first one builds Kubeflow's controllers where that was not done yet.
pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

WITHIN = 300
JOBS = ("Job", "TFJob", "PyTorchJob", "Workflow", "JobSet", "TrainJob")
ENDS = {"Complete", "Completed", "Failed", "Succeeded", "Error"}
LOT = 12
"""Cases that start at once."""
START_WITHIN = 240
SETTLE = 3
"""Seconds for what must not happen to happen."""


@dataclasses.dataclass
class Run:
    """What was seen of all cases."""

    world: shutdown_world.World
    pods: list[timeline.PodLine]
    objects: list[tuple[cases.Case, dict]]
    counted: dict[str, int]
    events: list[dict]
    seconds: float
    is_over: bool
    """Every case had come to its end in time."""

    def pods_of(self, case):
        namespace = getattr(self.world, case.namespace)
        return [pod for pod in self.pods if pod.namespace == namespace and case.has(pod.pod)]

    def stops_of(self, pod):
        return [
            event
            for event in self.events
            if event["reason"] == "ProxyStopped" and event["involvedObject"]["uid"] == pod.uid
        ]


@pytest.fixture(scope="module")
def world(node):
    """Where the cases are put."""
    return asyncio.run(shutdown_world.set_up(node))


def selected(session):
    """The cases that the selected tests are about."""
    params = [item.callspec.params for item in session.items if hasattr(item, "callspec")]
    names = {each["case"].name for each in params if "case" in each}
    return [case for case in cases.CASES if case.name in names]


@pytest.fixture(scope="module")
def run(node, world, request):
    """Start the workloads and wait until each has come to its end."""
    chosen = selected(request.session)

    async def play():
        async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
            watching = observer.Observer()
            async with watching.following(api):
                made = await start(api, world, chosen)
                began = watching.now
                found, is_over = await settled(api, world, chosen)
                seconds = watching.now - began
                await asyncio.sleep(SETTLE)
                counted = await shutdown_world.counted(api, MODEL)
                events = await api.list("Event")
            # Nobody watches any more, or what deleting does to the pods would be seen, too.
            await clear(api, made)
            pods = list(watching.timeline.pods.values())
            return Run(world, pods, found, counted, events, seconds, is_over)

    return asyncio.run(play())


async def start(api, world, chosen):
    """Create all objects, and return them."""
    assert await shutdown_world.counted(api, MODEL) == {}
    created, seen = [], set()
    for first in range(0, len(chosen), LOT):
        lot = chosen[first : first + LOT]
        items = [case.make(world, case.name) for case in lot]
        await asyncio.gather(*(create(api, its) for its in items))
        created += [item for its in items for item in its]
        await have_started(api, world, lot, seen)
    return created


async def create(api, items):
    """Create objects, one after the other."""
    for item in items:
        await api.create(item)


async def existing(api, world, kind, chosen):
    """The objects of a kind, each with its case."""
    items = [*await api.list(kind, MODEL), *await api.list(kind, world.by_revision)]
    return [(case, {**item, "kind": kind}) for item in items for case in chosen if case.has(item)]


async def have_started(api, world, lot, seen):
    """Wait until all pods so far have started, of each of some cases at least one."""

    async def all_have():
        found = await existing(api, world, "Pod", cases.CASES)
        seen.update(case.name for case, _ in found)
        return {case.name for case in lot} <= seen and not any(
            shutdown_world.starts(pod) for _, pod in found
        )

    await observer.eventually(all_have, START_WITHIN, "the pods so far started", every=1)


async def settled(api, world, chosen):
    """Wait until every case is as it should end; return the objects, and whether all are."""
    found = []

    async def all_over():
        nonlocal found
        pods = await existing(api, world, "Pod", chosen)
        jobs = [each for kind in JOBS for each in await existing(api, world, kind, chosen)]
        found = [each for each in (*jobs, *pods) if not is_made_by_a_job(each[1])]
        if {case.name for case, _ in found} != {case.name for case in chosen}:
            return False
        return all(
            stays([pod for each, pod in pods if each is case], case)
            if case.endures
            else conditions_of(item) & ENDS
            for case, item in found
        )

    try:
        await observer.eventually(all_over, WITHIN, "every case over", every=1)
    except observer.NotObserved:
        # Which ones are not shows in the tests of the single cases.
        return found, False
    return found, True


def is_made_by_a_job(item):
    return any(owner["kind"] in JOBS for owner in item["metadata"].get("ownerReferences", ()))


def stays(pods, case):
    """Whether the pods of a case that does not end are where they should stay."""
    states = [shutdown_world.states_of(pod) for pod in pods]
    return bool(states) and all(
        "terminated" in each.get(case.main, {}) and "running" in each.get("istio-proxy", {})
        for each in states
    )


async def clear(api, made):
    """Delete what the cases made, so that a second run can begin."""
    names = {
        (each["kind"], each["metadata"]["name"], each["metadata"]["namespace"]) for each in made
    }
    names.add(("Deployment", shutdown_world.PEER, MODEL))
    await asyncio.gather(*(api.delete(*name) for name in names))


@pytest.fixture(params=[pytest.param(case, id=case.name) for case in cases.CASES])
def case(request):
    return request.param


def test_workload_comes_to_its_end_in_time(run, case):
    items = [item for each, item in run.objects if each is case]
    assert items
    for item in items:
        assert case.want in conditions_of(item), (item["metadata"]["name"], item.get("status"))


def test_each_try_had_its_network(run, case):
    for suffix, count in (case.tries or {}).items():
        assert run.counted.get(f"{case.name}{suffix}", 0) == count
    codes = {
        interval.seen.exit_code
        for pod in run.pods_of(case)
        for line in pod.payload
        for interval in line.intervals
    }
    assert 99 not in codes


def test_proxy_ends_after_the_payload_and_is_stopped_once(run, case):
    pods = run.pods_of(case)
    assert len(pods) == case.pods
    assert sum(len(run.stops_of(pod)) for pod in pods) == (
        case.pods if case.stopped is None else case.stopped
    )
    for pod in pods:
        stops = run.stops_of(pod)
        assert len(stops) <= 1
        if not stops:
            continue
        states = shutdown_world.states_of(pod.pod)
        proxy = states["istio-proxy"]["terminated"]
        assert proxy["exitCode"] == 0
        ends = {name: state["terminated"]["finishedAt"] for name, state in states.items()}
        if case.holding:
            assert ends.pop(case.holding) >= proxy["finishedAt"]
        assert max(ends.values()) == proxy["finishedAt"]
        if case.holding:
            assert f"before {case.holding} ends" in stops[0]["message"]


def test_sidecars_were_of_the_kind_that_was_meant(run, case):
    for pod in run.pods_of(case):
        names = [each["name"] for each in pod.pod["spec"]["containers"]]
        assert ("istio-proxy" in names) == (case.sidecar == "classic")
        assert pod.proxy is not None


def test_every_case_came_to_its_end(run, node, record_property):
    record_property(f"{node.kind.name}: the whole matrix, s", round(run.seconds, 1))
    ended = [pod for case in cases.CASES for pod in run.pods_of(case) if run.stops_of(pod)]
    delays = timeline.proxy_delays(ended)
    record_property(
        f"{node.kind.name}: matrix, payload exit to proxy exit seen, median s",
        round(timeline.quantile(delays, 0.5), 2),
    )
    assert run.is_over
