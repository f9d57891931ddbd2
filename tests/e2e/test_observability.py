"""What the stack is told leads a real Prometheus to units and webhook, and to all the figures."""

import asyncio
import json
import runpy

import pytest

from juju_standin import bootstrap
from testbed import addresses, launch, paths
from testbed.kit import juju, training, workloads
from tests import otlp, prometheus

APP = juju.APPLICATION
MODEL = "kubeflow"
DASHBOARD_PICTURE = runpy.run_path(str(paths.SOURCE / "docs/dashboard_picture.py"))
HEALTHY = {"Without their sidecar, by reason (A)", "Gateway (A)", "Guard (A)"}
"""Have nothing to show where every pod is in the mesh, and where none is to be reached from
outside; the functional tier sees them filled."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.cluster("today"),
    pytest.mark.usefixtures("integrated"),
    pytest.mark.timeout(900),
]


@pytest.fixture
def model(node):
    """The stand-in's client."""
    return bootstrap.juju(node.testbed, MODEL)


@pytest.fixture
def told(model):
    """What the application and its unit say to a Prometheus that is related."""
    model.fake_app("prometheus", {"metrics-endpoint": {"role": "requires"}})
    model.integrate(f"{APP}:metrics-endpoint", "prometheus:metrics-endpoint")

    def bags():
        for relation in model.show_unit(f"{APP}/0")["relation-info"]:
            if relation["endpoint"] == "metrics-endpoint":
                return relation["local-application-data"], relation["local-unit"]["data"]
        return {}, {}

    yield lambda: bags() if "scrape_jobs" in bags()[0] else None
    model.remove_application("prometheus")


async def eventually(condition, seconds=60):
    async with asyncio.timeout(seconds):
        while not (found := await asyncio.to_thread(condition)):  # noqa: ASYNC110 - a question
            await asyncio.sleep(0.5)
    return found


def keep(found, seconds):
    """Draw what the dashboard shows."""
    folder = paths.SOURCE / "build" / "e2e"
    folder.mkdir(parents=True, exist_ok=True)
    shown = prometheus.shown(found, "30s", seconds)
    drawn = DASHBOARD_PICTURE["draw"](shown, "The dashboard Istio Integrator")
    (folder / "dashboard.svg").write_text(drawn)
    return shown


async def test_every_panel_has_numbers_after_a_few_jobs(on, told, tmp_path):
    await on.juju.wait_until_in_mesh(120)
    application, unit = await eventually(told)
    jobs = prometheus.jobs(application, [unit])
    rules = json.loads(application["alert_rules"])
    with prometheus.serving(tmp_path, jobs, rules) as found:
        found.strict = True
        await eventually(lambda: len(found.query("up == 1")) == 3)
        names = [f"seen-{number}" for number in range(4)]
        outside = {"sidecar.istio.io/inject": "false"}
        sleepers = [workloads.sleeper(name, on.model, on.image) for name in names]
        sleepers.append(workloads.sleeper("unseen", on.model, on.image, labels=outside))
        await on.api.apply(*sleepers)
        queries = prometheus.dashboard_queries("5m")
        assert set(await asyncio.to_thread(found.without_data, queries, 180)) <= HEALTHY
        assert found.query('ALERTS{alertstate="firing"}') == []
        for wave in range(4):
            again = [
                workloads.sleeper(f"wave-{wave}-{number}", on.model, on.image)
                for number in range(2 + wave)
            ]
            await on.api.apply(*again)
            await asyncio.sleep(15)
        shown = await asyncio.to_thread(keep, found, 120)
        empty = {each["title"] for each in shown if each["type"] != "row" and not each["series"]}
        assert {f"{title} (A)" for title in empty} <= HEALTHY
    await training.clear_jobs(on.api, on.model)


@pytest.fixture
def collector(node, model):
    """A collector of traces that is related, at the host's end of the link to the node."""
    holder = launch.holder(node.testbed.state_dir)
    assert holder is not None
    assert holder.slot is not None
    with otlp.collecting(host=str(addresses.plan(holder.slot).host)) as found:
        receivers = [{"protocol": {"name": "otlp_http", "type": "http"}, "url": found.base}]
        bag = {"receivers": json.dumps(receivers)}
        model.fake_app("tempo", {"tracing": {"role": "provides", "application": bag}})
        model.integrate(f"{APP}:tracing", "tempo:tracing")
        yield found
        model.remove_application("tempo")


async def test_each_hook_is_a_trace(on, model, collector):
    await eventually(lambda: collector.traces("reconcile"))
    model.config(APP, {"log-level": "debug"})

    def reconciled():
        return [
            spans
            for spans in collector.traces("reconcile")
            if any(span.name.startswith("config_changed") for span in spans)
        ]

    (hook, *_) = await eventually(reconciled)
    assert {"ops.main", "WorkloadService.reconcile", "list Pod"} <= {span.name for span in hook}
    model.config(APP, reset=("log-level",))
