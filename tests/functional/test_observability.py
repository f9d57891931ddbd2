"""Alert rules and dashboard: judged by promtool, evaluated by a Prometheus that scrapes us."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys

import pytest
import yaml

from istio_integrator.relations import observability
from testbed import loopback
from tests import prometheus
from tests.functional import admission_world, convergence_world, loopback_webhook
from tests.functional.test_workload_reconciler import create
from tests.unit.workload import pods

CASES = pathlib.Path(__file__).parent / "alert_rules.test.yaml"
UUID = "00000000-0000-4000-8000-000000000000"


def topology(model: str, uuid: str) -> observability.Topology:
    return observability.Topology(
        model=model,
        model_uuid=uuid,
        application="app",
        unit="app/0",
        charm="istio-integrator",
    )


@pytest.fixture
def rules(tmp_path) -> pathlib.Path:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(observability.alert_rules(topology("m", "u"), "")))
    return file


def promtool(*arguments: object) -> None:
    run = subprocess.run(
        [prometheus.program("promtool"), *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_rules_are_what_prometheus_accepts(rules):
    promtool("check", "rules", rules)


def test_rules_fire_when_they_should_and_only_then(rules):
    cases = shutil.copy(CASES, rules.parent)
    promtool("test", "rules", cases)


def test_every_rule_has_a_case(rules):
    known = {
        rule["alert"]
        for group in yaml.safe_load(rules.read_text())["groups"]
        for rule in group["rules"]
    }
    text = CASES.read_text()
    assert {name for name in known if name not in text} == set()


@pytest.fixture
async def world(kubeconfig, namespace):
    async with convergence_world.living(kubeconfig, namespace) as world:
        yield world


@contextlib.contextmanager
def reconciler(folder, kubeconfig, model):
    """Run `sidecar-lifecycle run` as a process; yields its port."""
    port = loopback.free_port()
    command = [
        *(sys.executable, "-m", "sidecar_lifecycle.shell.cli", "run"),
        *("--model", model, "--application", "app", "--unit", "app/0"),
        *("--joined", "true", "--mesh-namespace", "istio-system", "--kubeconfig", kubeconfig),
        *("--listen", f"127.0.0.1:{port}"),
    ]
    env = {**os.environ, "PYTHONPATH": loopback_webhook.WORKLOAD}
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stderr=log)
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


def review(server, pod):
    """Ask the webhook about a pod, as an API server does."""
    request = {
        "uid": "1",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": pod,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    context = ssl.create_default_context(cadata=server.material.ca)
    connection = http.client.HTTPSConnection("localhost", server.port, context=context)
    with contextlib.closing(connection):
        connection.request("POST", "/mutate/model", json.dumps(body))
        assert connection.getresponse().status == 200


def scraped(model, port, server):
    """Say what is scraped as the charm does; only the ports are those of this machine."""
    told = topology(model, UUID)
    jobs = json.dumps(observability.scrape_jobs({"admission-x": "127.0.0.1"}, 8080))
    jobs = jobs.replace("*:8080", f"*:{port}").replace("127.0.0.1:8080", server)
    application = {"scrape_metadata": json.dumps(told.metadata), "scrape_jobs": jobs}
    unit = {"prometheus_scrape_unit_address": "127.0.0.1", "prometheus_scrape_unit_name": "app/0"}
    return prometheus.jobs(application, [unit])


async def test_every_query_of_the_dashboard_has_an_answer(world, client, kubeconfig, tmp_path):
    model = world.namespace
    await world.workload("Deployment", "late")
    # It is never replaced, so it is counted for as long as Prometheus needs.
    await world.bare_pod("nobody-s")
    done = pods.pod_json(name="done", namespace=model)
    done["metadata"]["annotations"]["istio-integrator.charmhub.io/applied"] = "hold"
    create(client, done)
    await world.join()
    settings = admission_world.wanted("hold", model).settings.document()
    rules = observability.alert_rules(topology(model, UUID), "")
    with (
        loopback_webhook.serving(tmp_path / "admission", settings) as server,
        reconciler(tmp_path, kubeconfig, model) as port,
        prometheus.serving(
            tmp_path, scraped(model, port, f"127.0.0.1:{server.health}"), rules
        ) as found,
    ):
        for container in ("main", "istio-proxy"):
            spec = {"containers": [{"name": container}]}
            review(server, {"metadata": {"namespace": model}, "spec": spec})
        queries = prometheus.dashboard_queries()
        assert found.without_data(queries, 120) == []
        states = [rule for group in found.get("rules")["groups"] for rule in group["rules"]]
        assert {(rule["health"], rule.get("lastError", "")) for rule in states} == {("ok", "")}
        (acting,) = found.query("sidecar_lifecycle_leader == 1")
        assert acting["metric"]["juju_unit"] == "app/0"
        assert acting["metric"]["juju_model_uuid"] == UUID
