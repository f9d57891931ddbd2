"""Every kind of workload that runs to completion, side by side, with classic sidecars.

One run has all workloads of `shutdown_cases`; a test for each looks at what became of it. They
start x alone that a selected test is about: `-k "today and pytorch"`.
"""

import asyncio
import dataclasses

import pytest

from testbed import kubernetes
from testbed.kit import juju, observer, timeline
from tests.e2e import kubeflow_kinds, shutdown_world
from tests.e2e import shutdown_cases as cases
from tests.e2e.shutdown_world import MODEL, conditions_of, labelled

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
LEFT_ALONE = ("job-never", "argo-step", "trainjob")
"""Cases, one of each controller, that don't end where nobody stops proxies."""


@dataclasses.dataclass
class Run:
    """What was seen of all cases."""

    world: shutdown_world.World
    pods: list[timeline.PodLine]
    objects: dict[tuple[str, str], dict]
    counted: dict[str, int]
    events: list[dict]
    seconds: float
    is_over: bool
    """Every case had come to its end in time."""

    def pods_of(self, case):
        namespace = getattr(self.world, case.namespace)
        return [
            pod
            for pod in self.pods
            if pod.namespace == namespace
            and pod.pod["metadata"]["labels"].get("case") == case.name
        ]

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
                found, is_over = await settled(api, chosen)
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
    """Create all objects, their pods labelled by case, and return them."""
    assert await shutdown_world.counted(api, MODEL) == {}
    created, seen = [], set()
    for first in range(0, len(chosen), LOT):
        lot = chosen[first : first + LOT]
        items = [[labelled(c.name, item) for item in c.make(world, c.name)] for c in lot]
        await asyncio.gather(*(kubeflow_kinds.create(api, its) for its in items))
        created += [item for its in items for item in its]
        if any(case.name == "cron" for case in lot):
            await make_due(api, "cron")
        await have_started(api, {case.name for case in lot}, seen)
    return created


async def have_started(api, cases, seen):
    """Wait until all pods so far have started, of each of some cases at least one."""

    async def all_have():
        pods = await api.list("Pod", labels="case")
        seen.update(pod["metadata"]["labels"]["case"] for pod in pods)
        return cases <= seen and not any(shutdown_world.starts(pod) for pod in pods)

    await observer.eventually(all_have, START_WITHIN, "the pods so far started", every=1)


async def make_due(api, name):
    """Have a CronJob run at once, as if a run had been due since."""
    resource = await api.resource("CronJob")
    await api.request(
        "PATCH",
        f"{resource.path(MODEL, name)}/status",
        body={"status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}},
        content_type="application/merge-patch+json",
    )


async def settled(api, chosen):
    """Wait until every case is as it should end; return the objects, and whether all are."""
    wanted = {case.name: case for case in chosen}
    found = {}

    def add(kind, item):
        metadata = item["metadata"]
        found[metadata["namespace"], metadata["name"]] = {**item, "kind": kind}

    async def all_over():
        nonlocal found
        found = {}
        pods = await api.list("Pod", labels="case")
        for kind in JOBS:
            for item in await api.list(kind, labels="case"):
                add(kind, item)
        for pod in pods:
            if not any(owner["kind"] in JOBS for owner in owners_of(pod)):
                add("Pod", pod)
        if {item["metadata"]["labels"]["case"] for item in found.values()} != set(wanted):
            return False
        for item in found.values():
            case = wanted[item["metadata"]["labels"]["case"]]
            ended = conditions_of(item) & ENDS
            its = [pod for pod in pods if pod["metadata"]["labels"]["case"] == case.name]
            is_over = stays(its, case) if case.endures else bool(ended)
            if not is_over:
                return False
        return True

    try:
        await observer.eventually(all_over, WITHIN, "every case over", every=1)
    except observer.NotObserved:
        # Which ones are not shows in the tests of the single cases.
        return found, False
    return found, True


def owners_of(item):
    return item["metadata"].get("ownerReferences", ())


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
    items = [
        item for item in run.objects.values() if item["metadata"]["labels"]["case"] == case.name
    ]
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


def test_every_case_came_to_its_end(run, node, figures):
    figures[f"{node.kind.name}: the whole matrix, s"] = round(run.seconds, 1)
    ended = [pod for case in cases.CASES for pod in run.pods_of(case) if run.stops_of(pod)]
    delays = timeline.proxy_delays(ended)
    figures[f"{node.kind.name}: matrix, payload exit to proxy exit seen, median s"] = round(
        timeline.quantile(delays, 0.5), 2
    )
    assert run.is_over


async def test_without_the_stop_no_controller_sees_an_end_and_with_it_each_does(node, world, api):
    controller = node.juju(MODEL)
    chosen = [case for case in cases.CASES if case.name in LEFT_ALONE]
    created = [labelled(c.name, item) for c in chosen for item in c.make(world, c.name)]

    async def ended():
        names = [(each["kind"], each["metadata"]["name"]) for each in created]
        objects = [{**await api.get(*name, MODEL), "kind": name[0]} for name in names]
        return [each["kind"] for each in objects if conditions_of(each) & ENDS]

    async def only_proxies_run():
        pods = await api.list("Pod", MODEL, labels=f"case in ({','.join(LEFT_ALONE)})")
        running = [
            {name for name, state in shutdown_world.states_of(pod).items() if "running" in state}
            for pod in pods
        ]
        are_there = {pod["metadata"]["labels"]["case"] for pod in pods} == {*LEFT_ALONE}
        return are_there and all(names == {"istio-proxy"} for names in running)

    await controller.config(juju.APPLICATION, proxy_shutdown="false")
    try:
        await kubeflow_kinds.create(api, created)
        await observer.eventually(only_proxies_run, WITHIN, "all payloads ended")
        await asyncio.sleep(SETTLE)
        assert await ended() == []
        await controller.config(juju.APPLICATION, proxy_shutdown="true")
        found, _ = await settled(api, chosen)
        assert all(conditions_of(each) & {"Complete", "Succeeded"} for each in found.values())
    finally:
        await controller.config(juju.APPLICATION, proxy_shutdown="true")
        await clear(api, created)
