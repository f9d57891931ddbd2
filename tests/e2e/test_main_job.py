"""The main job on a real node: join, converge, hold, complete, toggle, and leave no trace.

The tests of one cluster share a model. Each stands alone, but for the removal, which is the last.
"""

import dataclasses

import pytest

from testbed.kit import bundle, juju, objects, observer, timeline, toggles, training, workloads
from tests.e2e import conftest, metrics

pytestmark = [pytest.mark.usefixtures("integrated"), pytest.mark.timeout(600)]

PLAYED = 20
"""Jobs with the hold."""
MOST = 0.7
"""The share of the stops that are counted at least.

pilot-agent begins to end before its answer is out (handleQuit in status/server.go), which costs
one answer in fifty, and more under such a load.
"""
COUNTED = ("count", "sum")


async def all_done(watcher, namespace, names, within):
    """Wait until every job has ended; return those that succeeded."""

    def lines():
        found = [watcher.job(namespace, name) for name in names]
        is_over = all(line and line.has_ended for line in found)
        return found if is_over else None

    ended = await watcher.until(lines, within, f"{len(names)} jobs ended")
    return [line for line in ended if line.succeeded_at]


async def test_deployed_in_the_worst_order_everything_is_in_the_mesh(on, integrated):
    status = await on.juju.wait_until_in_mesh(60)
    assert status.in_mesh == (3, 3)
    assert "admission: webhook" in status.message
    pods = [pod for pod in on.observer.timeline.select(on.model) if not pod.is_going]
    outside = {pod.name.rpartition("-")[0] for pod in pods if pod.proxy is None}
    assert {name for name in outside if name.startswith(bundle.WEB_NAMES)} == set()
    assert any(name.startswith("modeloperator") for name in outside)
    assert juju.APPLICATION in outside


async def test_training_job_succeeds_without_a_failed_download(on):
    await training.with_us(on)


@dataclasses.dataclass(frozen=True)
class Wave:
    """Jobs that started at once, each behind a slow classic proxy with a request to make."""

    held: list[str]
    # Those that opted out of the hold.
    free: list[str]
    succeeded: set[str]
    held_pods: list[timeline.PodLine]
    # By how much each metric grew.
    growth: dict[str, float]


@pytest.fixture(scope="module")
def wave(node, integrated):
    """More Jobs than a node stops proxies at a time."""
    found = None

    async def play(on):
        nonlocal found
        found = await run_wave(on)

    conftest.played(node, play)
    return found


async def run_wave(on):
    held = [f"held-{number}" for number in range(PLAYED)]
    free = [f"free-{number}" for number in range(10)]
    slow = {**workloads.SLOW_PROXY, **on.classic}
    unheld = {**slow, "proxy.istio.io/config": "holdApplicationUntilProxyStarts: false"}
    jobs = [
        workloads.first_request(name, on.model, on.image, annotations=annotations)
        for names, annotations in ((held, slow), (free, unheld))
        for name in names
    ]
    async with metrics.growing(on.api, on.model) as growth:
        await on.api.apply(*jobs)
        done = await all_done(on.observer, on.model, held + free, 280)
        # On an overloaded node a proxy may need longer than the minute that Istio gives it. The
        # kubelet kills it then, and there was no hold.
        late = {
            event["involvedObject"]["name"].rpartition("-")[0]
            for event in await on.api.list("Event", on.model)
            if event["reason"] == "FailedPostStartHook"
        }
        held = [name for name in held if name not in late]
        pods = [
            line
            for line in on.observer.timeline.select(on.model, prefix="held-")
            if line.name.rpartition("-")[0] in held
        ]
        await training.clear_jobs(on.api, on.model)

        async def counted():
            is_over = not growth.now["stops_pending"]
            return is_over and growth.grown["proxies_stopped_total"] >= MOST * len(jobs)

        restarts = f"{growth.restarts} restarts of the workload's container"
        await observer.eventually(counted, 60, f"the proxies counted as stopped, {restarts}")
    return Wave(held, free, {line.name for line in done}, pods, growth.grown)


def test_jobs_at_once_with_classic_sidecars_complete_and_are_counted(node, wave, record_property):
    assert len(wave.held) > PLAYED / 2
    assert wave.succeeded >= set(wave.held)
    assert len(wave.held_pods) == len(wave.held)
    assert {pod.proxy.role for pod in wave.held_pods} == {timeline.Role.PROXY}
    containers = [pod.pod["spec"]["containers"] for pod in wave.held_pods]
    assert all("istio-proxy" in [each["name"] for each in found] for found in containers)
    delays = timeline.proxy_delays(wave.held_pods)
    record_property(
        f"{node.kind.name}: Jobs at once, payload exit to proxy exit seen, median s",
        round(timeline.quantile(delays, 0.5), 2),
    )
    record_property(f"{node.kind.name}: Jobs at once, the same, longest s", round(delays[-1], 2))
    for name in ("stop_acknowledged_seconds", "payload_exit_to_proxy_exit_seconds"):
        count, total = (wave.growth[f"{name}_{part}"] for part in COUNTED)
        assert count >= MOST * len(wave.held + wave.free)
        record_property(f"{node.kind.name}: metrics: mean {name}", round(total / count, 3))


def test_with_the_hold_no_first_request_fails_behind_a_slow_proxy(node, wave, record_property):
    failed_held = sorted(set(wave.held) - wave.succeeded)
    failed_free = sorted(set(wave.free) - wave.succeeded)
    record_property(
        f"{node.kind.name}: failed first requests with the hold",
        f"{len(failed_held)} of {len(wave.held)}",
    )
    record_property(
        f"{node.kind.name}: failed first requests without",
        f"{len(failed_free)} of {len(wave.free)}",
    )
    assert failed_held == []
    assert len(failed_free) > 0


async def test_options_take_effect_on_running_applications(on):
    await toggles.toggles(on)


async def test_removal_leaves_the_cluster_as_it_was(on, integrated):
    if integrated.before is None:
        pytest.skip("the charm was there before this run")
    await training.clear_jobs(on.api, on.model)
    await on.juju.remove(juju.APPLICATION)
    await objects.until_same(on.api, integrated.before, 90, recreated=integrated.recreated)
