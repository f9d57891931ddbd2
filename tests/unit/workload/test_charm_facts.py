"""What the charm knows becomes metrics."""

from __future__ import annotations

import prometheus_client
from sidecar_lifecycle.shell import metrics

from integrator_contract import charm_facts

FACTS = charm_facts.CharmFacts(
    looked=100.0,
    problems=(
        charm_facts.Problem(part="ingress", severity="blocked"),
        charm_facts.Problem(part="ingress", severity="blocked"),
        charm_facts.Problem(part="mesh", severity="waiting"),
    ),
    gateway_ready=True,
    guard="closed",
    certificates=(charm_facts.Certificate(owner="gateway", not_before=5.0, not_after=9.5),),
    old_proxies=3,
)


def served(known: charm_facts.CharmFacts | None) -> dict[tuple[str, ...], float]:
    collector = metrics.CharmFactsCollector()
    collector.read = lambda: known
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    return {
        (sample.name.removeprefix("istio_integrator_"), *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_everything_that_the_charm_knows_is_shown_with_the_time_of_its_look():
    assert served(FACTS) == {
        ("last_look_timestamp_seconds",): 100,
        ("problems", "ingress", "blocked"): 2,
        ("problems", "mesh", "waiting"): 1,
        ("gateway_ready",): 1,
        ("guard", "asks"): 0,
        ("guard", "closed"): 1,
        ("guard", "none"): 0,
        ("certificate_not_before_timestamp_seconds", "gateway"): 5,
        ("certificate_not_after_timestamp_seconds", "gateway"): 9.5,
        ("old_proxies",): 3,
    }


def test_what_only_the_leader_looks_at_is_not_shown_by_others():
    known = charm_facts.CharmFacts(looked=1.0)
    assert {name for name, *_ in served(known)} == {"last_look_timestamp_seconds"}


def test_before_the_first_hook_there_is_nothing_to_show():
    assert served(None) == {}
