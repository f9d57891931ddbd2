"""The metrics about what the charm knows."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import core, registry

from integrator_contract import charm_facts

_PREFIX = "istio_integrator"


class Collector(registry.Collector):
    """Shows what the charm's last hook on this unit found, nothing before its end."""

    def __init__(self, read: Callable[[], charm_facts.CharmFacts | None]) -> None:
        self._read = read

    def describe(self) -> Iterable[core.Metric]:
        """Name the metrics."""
        return _families(charm_facts.CharmFacts(looked=0.0))

    def collect(self) -> Iterable[core.Metric]:
        """Show what is known."""
        known = self._read()
        return _families(known) if known else ()


def _families(known: charm_facts.CharmFacts) -> list[core.Metric]:
    problems = collections.Counter((each.part, each.severity) for each in known.problems)
    certificates = {each.owner: each for each in known.certificates}.values()
    guards = charm_facts.GUARDS if known.guard else ()
    return [
        _gauge(
            "last_look_timestamp_seconds",
            "When the charm last looked on this unit, in Unix time; what it knows is as old.",
            {(): known.looked},
        ),
        _gauge(
            "problems",
            "Things that are not as they should be, by the part of the charm that says so and"
            " Juju's word for how bad it is. The unit's status says them in words.",
            problems,
            "part",
            "severity",
        ),
        _gauge(
            "gateway_ready",
            "1 where the gateway that serves the model is there and open, 0 where not; of the"
            " leader, where the model has an ingress.",
            {(): known.gateway_ready},
        ),
        _gauge(
            "guard",
            "1 for what stands before the model's routes: asks (somebody is asked about each"
            " request), closed (nobody is there to be asked, so no request passes) or none (all"
            " pass unasked); of the leader, where the model has an ingress.",
            {(state,): state == known.guard for state in guards},
            "state",
        ),
        _gauge(
            "certificate_not_before_timestamp_seconds",
            "From when the certificate of gateway or webhook is valid; of the leader.",
            {(each.owner,): each.not_before for each in certificates},
            "owner",
        ),
        _gauge(
            "certificate_not_after_timestamp_seconds",
            "Until when the certificate of gateway or webhook is valid; of the leader.",
            {(each.owner,): each.not_after for each in certificates},
            "owner",
        ),
        _gauge(
            "old_proxies",
            "Pods of the model whose proxy is of another revision or of an earlier istiod.",
            {(): known.old_proxies},
        ),
    ]


def _gauge(
    name: str, meaning: str, samples: Mapping[tuple[str, ...], float | None], *labels: str
) -> core.GaugeMetricFamily:
    family = core.GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, labels=labels)
    for values, value in sorted(samples.items()):
        if value is not None:
            family.add_metric(values, value)
    return family
