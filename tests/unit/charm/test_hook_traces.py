"""Hooks are traced where a collector is related, and without one do not even load what traces."""

import ssl

import pytest

from istio_integrator import hook_traces
from testbed import certificates
from tests import otlp
from tests.unit.charm import charm_world, fake_cluster, hook_process

NEEDLESS = ("ops_tracing._backend", "opentelemetry.sdk")


@pytest.fixture
def unit(tmp_path):
    return hook_process.Unit(tmp_path)


def attributes(span):
    return {one.key: one.value for one in span.attributes}


def test_hook_without_a_collector_imports_nothing_that_traces(unit):
    imported = unit.hook("config-changed")
    assert "ops" in imported
    assert not imported.intersection(NEEDLESS)
    assert not (unit.charm / hook_traces.BUFFER).exists()


@pytest.fixture(scope="module")
def related(tmp_path_factory):
    """Return a unit with a collector, to which it sent two hooks."""
    unit = hook_process.Unit(tmp_path_factory.mktemp("related"))
    with otlp.collecting() as collector:
        unit.related(collector.base)
        unit.hook("tracing-relation-changed")
        unit.hook("config-changed")
        yield unit, [*collector.spans], [*collector.resources]


def test_first_hook_of_the_relation_is_one_trace_and_so_is_each_further_one(related):
    _, sent, resources = related
    assert len({span.trace_id for span in sent}) == 2
    assert {each["juju_unit"] for each in resources} == {"istio-integrator/0"}
    spans = {span.name: span for span in sent}
    assert {"ops.main", "is-leader", "reconcile"} <= spans.keys()
    names = [attributes(span).get("event_name") for span in sent]
    events = {name.string_value for name in names if name}
    assert {"tracing_relation_changed", "config_changed"} <= events
    reconcile = attributes(spans["reconcile"])
    assert reconcile["outcome"].string_value == "stopped early"
    assert [each.string_value for each in reconcile["problems"].array_value.values] == [
        "mesh: waiting"
    ]


def test_once_the_relation_is_gone_nothing_is_kept_or_imported(related):
    unit, _, _ = related
    assert (unit.charm / hook_traces.BUFFER).exists()
    unit.related("")
    unit.hook("tracing-relation-broken")
    imported = unit.hook("config-changed")
    assert not imported.intersection(NEEDLESS)
    assert not (unit.charm / hook_traces.BUFFER).exists()


@pytest.mark.parametrize(
    ("of_system", "related", "is_known"),
    [
        pytest.param("", "", False, id="nobody", marks=pytest.mark.long),
        pytest.param("ours", "", True, id="system", marks=pytest.mark.long),
        pytest.param("", "ours", True, id="relation", marks=pytest.mark.long),
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


@pytest.mark.usefixtures("traced")
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
