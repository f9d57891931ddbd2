"""Hooks are traced where a collector is related, and without one do not even load what traces."""

import json
import os
import pathlib
import ssl
import subprocess
import sys

import pytest

from istio_integrator import hook_traces
from testbed import certificates
from tests import otlp
from tests.unit.charm import charm_world, fake_cluster

ROOT = pathlib.Path(__file__).parents[3]
NEEDLESS = ("ops_tracing._backend", "opentelemetry.sdk")
TOOLS = """#!/bin/sh
case "$(basename "$0") $*" in
    is-leader*) echo true;;
    goal-state*) cat "$WORLD/goal";;
    "relation-ids tracing"*) cat "$WORLD/ids";;
    "relation-ids receive-ca-cert"*) echo '["receive-ca-cert:2"]';;
    relation-ids*) echo '[]';;
    relation-list*--app*) echo '"tempo"';;
    relation-list*) echo '[]';;
    relation-get*receive-ca-cert*) cat "$WORLD/authorities";;
    relation-get*tempo*) cat "$WORLD/bag";;
    juju-log*) echo "$*" >>"$WORLD/log";;
    *) echo '{}';;
esac
"""
NAMES = (
    "is-leader config-get goal-state relation-ids relation-list relation-get relation-set "
    "state-get state-set state-delete juju-log status-set status-get application-version-set"
)


class Unit:
    """The charm as Juju starts it, where there is no API server."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.charm, self._world = folder / "charm", folder / "world"
        tools = folder / "tools"
        for each in (self.charm, self._world, tools):
            each.mkdir()
        for name in NAMES.split():
            (tools / name).write_text(TOOLS)
            (tools / name).chmod(0o755)
        for name in ("metadata.yaml", "config.yaml", "actions.yaml"):
            (self.charm / name).write_text((ROOT / name).read_text())
        self.environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'lib'}",
            "JUJU_CHARM_DIR": str(self.charm),
            "JUJU_MODEL_NAME": "kubeflow",
            "JUJU_MODEL_UUID": "b2f5b6e0-0000-4000-8000-000000000000",
            "JUJU_UNIT_NAME": "istio-integrator/0",
            "JUJU_VERSION": "3.6.9",
            "WORLD": str(self._world),
        }
        planned = {"istio-integrator/0": {"status": "active", "since": "2026-01-01T00:00:00Z"}}
        goal = {"units": planned, "relations": {}}
        (self._world / "goal").write_text(json.dumps(goal))
        self.related("")

    def related(self, url: str, *authorities: str) -> None:
        """Relate a collector of traces, or none, and authorities that may know it."""
        sent = {"certificates": json.dumps(authorities)}
        (self._world / "authorities").write_text(json.dumps(sent))
        receivers = [{"protocol": {"name": "otlp_http", "type": "http"}, "url": url}]
        bag = {"receivers": json.dumps(receivers)} if url else {}
        (self._world / "ids").write_text(json.dumps(["tracing:1"] if url else []))
        (self._world / "bag").write_text(json.dumps(bag))

    def hook(self, event: str) -> set[str]:
        """Run a hook; returns the names of the modules that it imported."""
        environment = {**self.environment, "JUJU_DISPATCH_PATH": f"hooks/{event}"}
        if event.startswith("tracing-"):
            relation = {"JUJU_RELATION": "tracing", "JUJU_RELATION_ID": "tracing:1"}
            environment |= {**relation, "JUJU_REMOTE_APP": "tempo"}
        done = subprocess.run(
            [sys.executable, "-X", "importtime", ROOT / "src" / "charm.py"],
            env=environment,
            cwd=self.charm,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (self._world / "log").read_text()
        return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.fixture
def unit(tmp_path):
    return Unit(tmp_path)


def attributes(span):
    return {one.key: one.value for one in span.attributes}


def test_hook_without_a_collector_imports_nothing_that_traces(unit):
    imported = unit.hook("config-changed")
    assert "ops" in imported
    assert not imported.intersection(NEEDLESS)
    assert not (unit.charm / hook_traces.BUFFER).exists()


def test_first_hook_of_the_relation_is_one_trace_and_so_is_each_further_one(unit):
    with otlp.collecting() as collector:
        unit.related(collector.base)
        unit.hook("tracing-relation-changed")
        unit.hook("config-changed")
    assert len({span.trace_id for span in collector.spans}) == 2
    assert {each["juju_unit"] for each in collector.resources} == {"istio-integrator/0"}
    spans = {span.name: span for span in collector.spans}
    assert {"ops.main", "is-leader", "reconcile"} <= spans.keys()
    names = [attributes(span).get("event_name") for span in collector.spans]
    events = {name.string_value for name in names if name}
    assert {"tracing_relation_changed", "config_changed"} <= events
    reconcile = attributes(spans["reconcile"])
    assert reconcile["outcome"].string_value == "stopped early"
    assert [each.string_value for each in reconcile["problems"].array_value.values] == [
        "mesh: waiting"
    ]


def test_once_the_relation_is_gone_nothing_is_kept_or_imported(unit):
    with otlp.collecting() as collector:
        unit.related(collector.base)
        unit.hook("tracing-relation-changed")
        unit.related("")
        unit.hook("tracing-relation-broken")
    imported = unit.hook("config-changed")
    assert not imported.intersection(NEEDLESS)
    assert not (unit.charm / hook_traces.BUFFER).exists()


@pytest.mark.parametrize(
    ("of_system", "related", "is_known"),
    [
        pytest.param("", "", False, id="nobody"),
        pytest.param("ours", "", True, id="system"),
        pytest.param("", "ours", True, id="relation"),
        pytest.param("ours", "other", True, id="system-beside-another"),
        pytest.param("other", "ours", True, id="relation-beside-another"),
        pytest.param("", "other", False, id="another"),
    ],
)
def test_https_needs_an_authority_that_the_system_or_the_relation_knows(
    unit, tmp_path, of_system, related, is_known
):
    made = {name: certificates.Authority(tmp_path / name) for name in ("ours", "other")}
    pair = made["ours"].server("collector", ["localhost"], ["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    if of_system:
        unit.environment["SSL_CERT_FILE"] = str(made[of_system].pair.certificate)
    authorities = [made[related].pair.certificate.read_text()] if related else []
    with otlp.collecting(tls) as collector:
        unit.related(collector.base, *authorities)
        unit.hook("tracing-relation-changed")
    assert bool(collector.spans) == is_known


def test_collector_that_was_away_gets_the_hooks_that_it_missed(unit):
    with otlp.collecting() as collector:
        unit.related(collector.base)
        collector.status = 503
        unit.hook("tracing-relation-changed")
        collector.status = 200
        unit.hook("config-changed")
    assert len({span.trace_id for span in collector.spans}) == 2


def test_requests_and_parts_are_spans_of_the_hook(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.config_changed(), charm_world.state())
    spans = {span.name: span for span in ctx.trace_data}
    assert {"list Node", "Ingress.reconcile", "reconcile"} <= spans.keys()
    part = spans["Ingress.reconcile"]
    assert part.parent.span_id == spans["reconcile"].context.span_id
    missing = [span for span in ctx.trace_data if span.attributes.get("error.type") == "404"]
    assert missing
    assert all(span.status.is_ok or span.status.is_unset for span in missing)
    # What is missing need not be there, and is no exception of the trace.
    assert not any(span.events for span in missing)
