"""Hooks are traced by ops-tracing, with spans of what the charm does in them."""

import json
import ssl

import pytest

from testbed import certificates
from tests import hook_process, otlp
from tests.unit.charm import charm_world, fake_cluster


@pytest.fixture
def unit(tmp_path):
    return hook_process.Unit(tmp_path)


def tracing(unit, url, *authorities):
    """Relate a collector of traces and authorities that may know it, and run the first hook."""
    receivers = [{"protocol": {"name": "otlp_http", "type": "http"}, "url": url}]
    bags = [
        hook_process.Bag("tracing", 1, "tempo", {"receivers": json.dumps(receivers)}),
        hook_process.Bag(
            "receive-ca-cert", 2, "authority", {"certificates": json.dumps(authorities)}
        ),
    ]
    unit.says(bags)
    unit.hook("relation-changed", bags[0])


def attributes(span):
    return {one.key: one.value for one in span.attributes}


def test_each_hook_is_one_trace_from_the_first_one_of_the_relation(unit):
    with otlp.collecting() as collector:
        tracing(unit, collector.base)
        unit.hook("config-changed")
    assert len({span.trace_id for span in collector.spans}) == 2
    assert {each["juju_unit"] for each in collector.resources} == {"istio-integrator/0"}
    spans = {span.name: span for span in collector.spans}
    assert {"ops.main", "is-leader", "reconcile"} <= spans.keys()
    reconcile = attributes(spans["reconcile"])
    assert reconcile["outcome"].string_value == "stopped early"
    assert [each.string_value for each in reconcile["problems"].array_value.values] == [
        "mesh: waiting"
    ]


@pytest.mark.parametrize("is_known", [True, False])
def test_https_needs_an_authority_that_the_relation_sends(unit, tmp_path, is_known):
    made = [certificates.Authority(tmp_path / name) for name in ("signs", "does-not")]
    pair = made[0].server("collector", ["localhost"], ["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    sent = made[0 if is_known else 1].pair.certificate.read_text()
    with otlp.collecting(tls) as collector:
        tracing(unit, collector.base, sent)
    assert bool(collector.spans) == is_known


def test_requests_and_parts_are_spans_of_the_hook(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.config_changed(), charm_world.state())
    spans = {span.name: span for span in ctx.trace_data}
    assert {"list Node", "Ingress.reconcile", "reconcile"} <= spans.keys()
    part = spans["Ingress.reconcile"]
    assert part.parent.span_id == spans["reconcile"].context.span_id
    assert spans["reconcile"].attributes == {"leader": True, "outcome": "all parts"}
    missing = [span for span in ctx.trace_data if span.attributes.get("error.type") == "404"]
    assert missing
    assert all(span.status.is_ok or span.status.is_unset for span in missing)
    # What is missing need not be there, and is no exception of the trace.
    assert not any(span.events for span in missing)
