"""Alert rules and dashboard: judged by promtool, evaluated by a Prometheus that scrapes us."""

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import http.client
import itertools
import json
import pathlib
import re
import runpy
import ssl
import subprocess
import time

import pytest
import yaml
from cosl import JujuTopology
from ops import testing

import charm
from integrator_contract import charm_facts, names, namespaces, service
from testbed import paths
from tests import prometheus, waiting
from tests.functional import admission_world, convergence_world, loopback_webhook
from tests.functional.test_workload_reconciler import create
from tests.kubernetes_objects import pod
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task

DASHBOARD_PICTURE = runpy.run_path(str(paths.SOURCE / "docs/dashboard_picture.py"))
CASES = pathlib.Path(__file__).parent / "alert_rules.test.yaml"
UUID = "00000000-0000-4000-8000-000000000000"


def published(model: str) -> dict[str, str]:
    """Return the charm's data bag for Prometheus, of an application in a model."""
    relation = testing.Relation("metrics-endpoint")
    given = testing.State(
        leader=True,
        containers={testing.Container("lifecycle")},
        relations=[relation],
        model=testing.Model(model, uuid=UUID, type="kubernetes"),
    )
    ctx = testing.Context(charm.IstioIntegrator, app_name="app")
    out = ctx.run(ctx.on.config_changed(), given)
    return dict(out.get_relation(relation.id).local_app_data)


@pytest.fixture
def told(connected) -> dict[str, str]:
    return published("m")


@pytest.fixture
def rules(told, tmp_path) -> pathlib.Path:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(json.loads(told["alert_rules"])))
    return file


def known(rules: pathlib.Path) -> dict[str, dict]:
    groups = yaml.safe_load(rules.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def cases() -> list[dict]:
    return yaml.safe_load(CASES.read_text())["tests"]


def promtool(*arguments: object) -> None:
    run = subprocess.run(
        [prometheus.program("promtool"), *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def completed(expected: dict, rule: dict, value: object) -> dict:
    """Write what an alert is to be of a rule, as Prometheus fills its template in."""
    labels = {**rule["labels"], **expected["exp_labels"]}
    parameters = {f"$labels.{key}": text for key, text in labels.items()} | {"$value": value}

    def filled(variable: re.Match[str]) -> str:
        return str(parameters[variable[1].partition("|")[0].strip()])

    annotations = {
        key: re.sub(r"\{\{(.*?)\}\}", filled, text) for key, text in rule["annotations"].items()
    }
    return {"exp_labels": labels, "exp_annotations": annotations}


def test_rules_fire_when_they_should_and_only_then(rules, told):
    alerts = known(rules)
    topology = JujuTopology.from_dict(json.loads(told["scrape_metadata"]))
    own = ",".join(f'{key}="{text}"' for key, text in topology.label_matcher_dict.items())
    document = yaml.safe_load(CASES.read_text().replace("$own", own))
    for case in document["tests"]:
        for look in case["alert_rule_test"]:
            value = look.pop("value", None)
            look["exp_alerts"] = [
                completed(each, alerts[look["alertname"]], value)
                for each in look.get("exp_alerts", [])
            ]
    # Rules are evaluated as often as a case has samples: a minute's steps through days take long.
    for interval in {case["interval"] for case in document["tests"]}:
        chosen = [case for case in document["tests"] if case["interval"] == interval]
        file = rules.parent / f"{interval}.yaml"
        file.write_text(
            yaml.safe_dump({**document, "evaluation_interval": interval, "tests": chosen})
        )
        promtool("test", "rules", file)


def test_every_rule_is_seen_to_fire_and_to_clear(rules):
    seen = set()
    for case in cases():
        firing = set()
        for look in case["alert_rule_test"]:
            if look.get("exp_alerts"):
                firing.add(look["alertname"])
            elif look["alertname"] in firing:
                seen.add(look["alertname"])
    assert known(rules).keys() - seen == set()


@pytest.fixture
async def world(kubeconfig, namespace):
    async with convergence_world.living(kubeconfig, namespace) as world:
        yield world


RESULTS = service.Results(
    facts=charm_facts.CharmFacts(
        looked=time.time(),
        problems=(charm_facts.Problem(part="ingress", severity="waiting"),),
        gateway_ready=True,
        guard="asks",
        certificates=(
            charm_facts.Certificate(
                owner="gateway", not_before=0, not_after=time.time() + 60 * 86400
            ),
        ),
        old_proxies=0,
    )
)


def review(server, pod):
    """Ask the webhook about a pod, as an API server does."""
    context = ssl.create_default_context(cadata=server.material.bundle)
    connection = http.client.HTTPSConnection("localhost", server.port, context=context)
    with contextlib.closing(connection):
        connection.request("POST", "/mutate/model", loopback_webhook.review(pod))
        assert connection.getresponse().status == 200


async def review_often(server, model):
    """Ask the webhook about a pod without a proxy and one with, as long as the test runs."""
    for container in itertools.cycle(("main", "istio-proxy")):
        spec = {"containers": [{"name": container}]}
        asked = {"metadata": {"namespace": model}, "spec": spec}
        await asyncio.to_thread(review, server, asked)
        await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def stopping(folder, options):
    """Run a unit where pods end and proxies answer, which needs a kubelet; yields its port."""
    folder.mkdir()

    async def end_pods():
        for number in itertools.count():
            when = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=number % 3)
            ended = pods.ended(finished=when.strftime("%Y-%m-%dT%H:%M:%SZ"))
            job = {"name": f"job-{number}", "uid": f"uid-{number}", "namespace": options.model}
            cluster.put("pods", pods.pod_json(ended, **job))
            await asyncio.sleep(0.2 + number % 5 / 5)
            if number % 10 == 9:
                # The watch is to list the pods again.
                cluster.compact()
                cluster.end_watches()

    async with FakeApiserver() as cluster:
        cluster.namespace(options.model)
        parts = {
            "clusters": {"cluster": {"server": cluster.address}},
            "users": {"user": {"token": cluster.token}},
            "contexts": {"context": {"cluster": "x", "user": "x"}},
        }
        access = {key: [{"name": "x", **part}] for key, part in parts.items()}
        (folder / "access").write_text(yaml.safe_dump({"current-context": "x", **access}))
        with loopback_webhook.reconciler(folder, folder / "access", options) as port:
            async with running_task(end_pods()):
                yield port


def scraped(told, ports, server):
    """Say what is scraped as the charm does; only the ports are those of this machine."""
    found = []
    for name, port in ports.items():
        jobs = told["scrape_jobs"].replace("*:8080", f"*:{port}").replace("127.0.0.1:8080", server)
        address = {"prometheus_scrape_unit_address": "127.0.0.1"}
        unit = {**address, "prometheus_scrape_unit_name": name}
        found.append(prometheus.jobs({**told, "scrape_jobs": jobs}, [unit]))
    first, *others = found
    for job, more in (
        (job, more) for each in others for job, more in zip(first, each, strict=True)
    ):
        job["static_configs"] += [
            one for one in more["static_configs"] if "juju_unit" in one["labels"]
        ]
    return first


def flat(shown):
    """Name the panels of lines that have no numbers but 0."""
    lines = (each for each in shown if each["type"] == "timeseries")
    return [
        each["title"]
        for each in lines
        if not any(number > 0 for one in each["series"] for _, number in one["values"])
    ]


def draw_dashboard(found, begin):
    """Draw what is shown once no panel is flat; pods are replaced after the first figures."""
    assert found.without_data(prometheus.dashboard_queries(), 120) == []
    begin()
    waiting.eventually(lambda: not flat(prometheus.shown(found, "30s", 30)), 120)
    shown = prometheus.shown(found, "30s", 30)
    assert flat(shown) == []
    assert [each["title"] for each in shown if each["type"] != "row" and not each["series"]] == []
    drawn = DASHBOARD_PICTURE["draw"](shown, "The dashboard Istio Integrator")
    (paths.SOURCE / "build").mkdir(exist_ok=True)
    (paths.SOURCE / "build/dashboard.svg").write_text(drawn)


def plain(model, port):
    """Read the scrape configuration of the how-to, with the pods that Prometheus would find.

    Debian's Prometheus is built without Kubernetes: its pods' labels are given as it would.
    """
    text = (paths.SOURCE / "docs/how-to/prometheus.yaml").read_text()
    (job,) = yaml.safe_load(text.replace("8080", str(port)))["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [
        {"role": "pod", "namespaces": {"names": ["kubeflow"]}}
    ]
    server = {"label_istio_integrator_charmhub_io_component": "admission-webhook"}
    found = {
        ("istio-integrator-0", "lifecycle"): {"label_app_kubernetes_io_name": "istio-integrator"},
        ("istio-integrator-0", "charm"): {"label_app_kubernetes_io_name": "istio-integrator"},
        ("istio-integrator-admission-x", "admission"): server,
        ("other-0", "lifecycle"): {"label_app_kubernetes_io_name": "other"},
    }
    job["static_configs"] = [
        {
            "targets": ["10.0.0.1"],
            "labels": {
                "__meta_kubernetes_namespace": model,
                "__meta_kubernetes_pod_name": pod,
                "__meta_kubernetes_pod_container_name": container,
                "__meta_kubernetes_pod_ip": "127.0.0.1",
                **{f"__meta_kubernetes_pod_{key}": value for key, value in labels.items()},
            },
        }
        for (pod, container), labels in found.items()
    ]
    return [job]


def answers_of(found, variable):
    """Ask for the values of a dashboard's variable, as Grafana does."""
    query = variable["query"]["query"]
    metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    counted = found.query(f"count by ({label}) ({prometheus.filled(metric, '30s')})")
    return {sample["metric"].get(label) for sample in counted} - {None}


def assert_rules_are_healthy(found):
    states = [rule for group in found.get("rules")["groups"] for rule in group["rules"]]
    assert {(rule["health"], rule.get("lastError", "")) for rule in states} == {("ok", "")}


@pytest.mark.usefixtures("unreachable_node")
async def test_rules_and_dashboard_have_their_figures_with_cos_and_without(
    world, connected, client, kubeconfig, tmp_path
):
    model = world.namespace
    await world.workload("Deployment", "late", replicas=3)
    # It is never replaced, so it is counted for as long as Prometheus needs.
    await world.pod("unowned")
    done = pods.pod_json(name="done", namespace=model)
    done["metadata"]["annotations"]["istio-integrator.charmhub.io/applied"] = "hold"
    create(client, done)
    await world.join()
    other = service.Options(model=model, application="app", unit="app/0")
    unit = dataclasses.replace(
        other,
        joined=True,
        mesh_namespace="istio-system",
        served_namespaces=namespaces.MODEL_ONLY,
        restart_max_unavailable="1",
    )
    settings = admission_world.wanted("hold", model).to_document()
    owner = names.make_labels(model, "app", names.WEBHOOK_COMPONENT)
    server = connected.create(pod("admission-x", model, {"labels": owner}))
    connected.patch_status(server, {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]})
    told = published(model)
    (shipped,) = (paths.SOURCE / "src" / "prometheus_alert_rules").glob("*")
    async with world.kubelet(), stopping(tmp_path / "other", other) as second:
        with (
            loopback_webhook.serving(tmp_path / "admission", settings) as server,
            loopback_webhook.reconciler(tmp_path, kubeconfig, unit, RESULTS) as port,
            prometheus.serving(
                tmp_path / "cos",
                scraped(told, {"app/0": port, "app/1": second}, f"127.0.0.1:{server.health}"),
                json.loads(told["alert_rules"]),
            ) as cos,
            prometheus.serving(tmp_path / "plain", plain(model, port), shipped) as found,
        ):
            async with running_task(review_often(server, model)):
                leader = dataclasses.replace(unit, leader=True).encode()
                begin = functools.partial((tmp_path / "settings.json").write_text, leader)
                await asyncio.to_thread(draw_dashboard, cos, begin)
            assert_rules_are_healthy(cos)
            (unit,) = cos.query('sidecar_lifecycle_tasks{juju_unit="app/0"}')
            assert unit["metric"]["juju_unit"] == "app/0"
            assert unit["metric"]["juju_model_uuid"] == UUID

            pending = 'ALERTS{alertname="IstioIntegratorUnitWaits", alertstate="pending"}'
            queries = {"webhook": 'up{pod="istio-integrator-admission-x"}', "pending": pending}
            assert found.without_data(queries, 60) == []
            assert_rules_are_healthy(found)
            (unit,) = found.query('up{juju_unit!=""} == 1')
            assert {
                key: unit["metric"][key] for key in unit["metric"] if key.startswith("juju_")
            } == {
                "juju_model": model,
                "juju_application": "istio-integrator",
                "juju_unit": "istio-integrator/0",
                "juju_charm": "istio-integrator",
            }
            assert {each["metric"]["pod"] for each in found.query("up")} == {
                "istio-integrator-0",
                "istio-integrator-admission-x",
            }
            asked = [one for one in prometheus.dashboard_variables() if one["type"] == "query"]
            values = {variable["name"]: answers_of(found, variable) for variable in asked}
            assert values["juju_model"] == {model}
            assert values["juju_unit"] == {"istio-integrator/0"}
