"""The main job on a real node: join, converge, hold, complete, toggle, and leave no trace.

The tests of one cluster share a model and run in this order.
"""

import collections

import pytest
from prometheus_client import parser

from demo import juju, objects, steps, timeline, workloads

pytestmark = [pytest.mark.usefixtures("integrated"), pytest.mark.timeout(600)]

METRICS = "/api/v1/namespaces/{}/pods/{}-0:8080/proxy/metrics"


def classic(node):
    """Ask for a classic sidecar where istiod would make a native one."""
    return workloads.CLASSIC if node.kind.native else {}


async def all_done(watcher, namespace, names, within):
    """Wait until every job has ended; return those that succeeded."""

    def lines():
        found = [watcher.job(namespace, name) for name in names]
        is_over = all(line and (line.succeeded_at or line.failed_at) for line in found)
        return found if is_over else None

    ended = await watcher.until(lines, within, f"{len(names)} jobs ended")
    return [line for line in ended if line.succeeded_at]


async def test_deployed_in_the_worst_order_everything_is_in_the_mesh(on, integrated):
    status = await on.juju.wait_until_in_mesh(60)
    assert status.in_mesh == (3, 3)
    assert on.kind.backend in status.message
    pods = [pod for pod in on.observer.timeline.select(on.model) if not pod.is_going]
    outside = {pod.name.rpartition("-")[0] for pod in pods if pod.proxy is None}
    assert {name for name in outside if name.startswith(steps.WEB_NAMES)} == set()
    assert any(name.startswith("modeloperator") for name in outside)
    assert juju.APPLICATION in outside


async def test_training_job_succeeds_without_a_failed_download(on):
    await steps.with_us(on)


async def test_twenty_jobs_at_once_with_classic_sidecars_complete(on, node, figures):
    names = [f"twenty-{number}" for number in range(20)]
    annotations = {"sidecar.istio.io/proxyCPU": "10m", **classic(node)}
    await on.api.apply(
        *(
            workloads.sleeper(name, on.model, on.image, seconds=2, annotations=annotations)
            for name in names
        )
    )
    done = await all_done(on.observer, on.model, names, 180)
    pods = on.observer.timeline.select(on.model, prefix="twenty-")
    assert len(done) == 20
    assert {pod.proxy.role for pod in pods} == {timeline.Role.PROXY}
    assert all("istio-proxy" in [c["name"] for c in pod.pod["spec"]["containers"]] for pod in pods)
    delays = timeline.proxy_delays(pods)
    figures[f"{node.kind.name}: 20 Jobs, payload exit to proxy exit seen, median s"] = round(
        timeline.quantile(delays, 0.5), 2
    )
    figures[f"{node.kind.name}: 20 Jobs, the same, longest s"] = round(delays[-1], 2)
    await steps.clear_jobs(on.api, on.model)


async def test_metrics_tell_how_fast_proxies_were_stopped(on, node, figures):
    path = METRICS.format(on.model, juju.APPLICATION)
    text = await on.api.request("GET", path, accept="text/plain")
    values = collections.defaultdict(float)
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name.removeprefix("sidecar_lifecycle_")] += sample.value
    assert values["proxies_stopped_total"] >= 20
    for name in ("stop_acknowledged_seconds", "payload_exit_to_proxy_exit_seconds"):
        count, total = values[f"{name}_count"], values[f"{name}_sum"]
        assert count >= 20
        figures[f"{node.kind.name}: metrics: mean {name}"] = round(total / count, 3)


async def test_with_the_hold_no_first_request_fails_behind_a_slow_proxy(on, node, figures):
    starts = 50 if node.kind.name == "today" else 20
    held = [f"held-{number}" for number in range(starts)]
    free = [f"free-{number}" for number in range(10)]
    slow = {**workloads.SLOW_PROXY, **classic(node)}
    unheld = {**slow, "proxy.istio.io/config": "holdApplicationUntilProxyStarts: false"}
    for names, annotations in ((held, slow), (free, unheld)):
        await on.api.apply(
            *(
                workloads.first_request(name, on.model, on.image, annotations=annotations)
                for name in names
            )
        )
    succeeded = {line.name for line in await all_done(on.observer, on.model, held + free, 280)}
    failed_held = sorted(set(held) - succeeded)
    failed_free = sorted(set(free) - succeeded)
    figures[f"{node.kind.name}: failed first requests with the hold"] = (
        f"{len(failed_held)} of {starts}"
    )
    figures[f"{node.kind.name}: failed first requests without"] = f"{len(failed_free)} of 10"
    assert failed_held == []
    assert len(failed_free) > 0
    await steps.clear_jobs(on.api, on.model)


async def test_options_take_effect_on_running_applications(on):
    await steps.toggles(on)


async def test_removal_leaves_the_cluster_as_it_was(on, integrated):
    if integrated.before is None:
        pytest.skip("the charm was there before this run")
    await steps.clear_jobs(on.api, on.model)
    await on.juju.remove(juju.APPLICATION)
    await objects.until_same(on.api, integrated.before, 90, recreated=integrated.recreated)
