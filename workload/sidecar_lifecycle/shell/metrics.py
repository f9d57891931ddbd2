"""The metrics of `sidecar-lifecycle run`; their help texts are their documentation.

Times are seconds. Counters restart from zero with the process, as Prometheus expects.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable, Mapping

import prometheus_client
from prometheus_client import core, registry

from integrator_contract import charm_facts

REGISTRY = prometheus_client.CollectorRegistry()
prometheus_client.ProcessCollector(registry=REGISTRY)

PREFIX = "sidecar_lifecycle"
_histogram = functools.partial(prometheus_client.Histogram, namespace=PREFIX, registry=REGISTRY)
_counter = functools.partial(prometheus_client.Counter, namespace=PREFIX, registry=REGISTRY)
_gauge = functools.partial(prometheus_client.Gauge, namespace=PREFIX, registry=REGISTRY)
# A stop usually takes about 50 ms. The kubelet reports an exit up to 1 s late.
_FAST = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

ACKNOWLEDGED = _histogram(
    "stop_acknowledged_seconds",
    "From the first watch event that made a pod stoppable to the proxy's answer to the stop. A"
    " proxy that ends before its answer is out has none.",
    buckets=_FAST,
)
PROXY_EXIT = _histogram(
    "payload_exit_to_proxy_exit_seconds",
    "From the end of the last payload container, by its node's clock in whole seconds, to the"
    " moment at which the proxy was seen to have ended.",
    buckets=(0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 300),
)
STOPS = _counter(
    "stops",
    "Attempts to stop a proxy, by transport (port-forward, exec) and result: acknowledged;"
    " unanswered, when the connection ended before the answer, as it does where the proxy ends"
    " first, which is a failure only if the proxy has not ended seconds later; changed or gone,"
    " when there was nothing to stop any more; or the class of failure.",
    ("transport", "result"),
)
STOPPED = _counter(
    "proxies_stopped",
    "Proxies seen to have ended after they were told to stop.",
)
LOST = _counter(
    "proxies_lost",
    "Pods whose proxy has ended and will not restart, although their payload still runs.",
)
PODS = _gauge(
    "pods",
    "Running pods with a sidecar that run to completion, by what is decided about them and why.",
    ("decision", "reason"),
)
IN_FLIGHT = _gauge(
    "stops_in_flight",
    "Stops being sent at this moment.",
)
PENDING = _gauge(
    "stops_pending",
    "Pods whose proxy is to be stopped and has not been seen to end.",
)
OLDEST_PENDING = _gauge(
    "oldest_pending_stop_seconds",
    "Age of the oldest stop that is pending.",
)
TASKS = _gauge(
    "tasks",
    "Tasks of the event loop; at rest their number does not grow.",
)
BROKEN = _counter(
    "broken_objects",
    "Times that an object could not be dealt with and was passed over, by what was being done"
    " (decode, observe, decide, stop, report, converge) and the object's kind. The log names it.",
    ("stage", "kind"),
)
RELISTS = _counter(
    "relists",
    "Times that all pods were listed again because a watch could not be resumed.",
)
UNINJECTED = _gauge(
    "uninjected_pods",
    "Pods of the model without the sidecar that they should have.",
    ("reason",),
)
IN_MESH = _gauge("in_mesh_pods", "Pods of the model with a sidecar.")
APPLIED = _gauge(
    "applied_pods",
    "Pods of the model by what was changed at their creation, each once per change.",
    ("change",),
)
ROUNDS = _gauge("convergence_workloads_in_flight", "Workloads of which a pod is being replaced.")
EVICTIONS = _counter("evictions", "Evictions of pods without a sidecar.", ("result",))
_RESULTS = "evicted", "budget", "forbidden", "refused", "error", "gone", "replaced", "unknown"
for _result in _RESULTS:
    # Each series starts at zero. Otherwise `increase()` would miss its first count.
    EVICTIONS.labels(_result)


class CharmFactsCollector(registry.Collector):
    """Metrics from the last hook of the charm on this unit; none before the first hook ends."""

    def __init__(self) -> None:
        self.read: Callable[[], charm_facts.CharmFacts | None] = lambda: None

    def describe(self) -> Iterable[core.Metric]:
        """Return the metrics without values."""
        return _make_families(charm_facts.CharmFacts(looked=0.0))

    def collect(self) -> Iterable[core.Metric]:
        """Return the metrics with their current values."""
        known = self.read()
        return _make_families(known) if known else ()


def _make_families(known: charm_facts.CharmFacts) -> list[core.Metric]:
    problems = collections.Counter((each.part, each.severity) for each in known.problems)
    certificates = {each.owner: each for each in known.certificates}.values()
    guards = charm_facts.GUARDS if known.guard else ()
    return [
        _make_family(
            "last_look_timestamp_seconds",
            "When the charm last looked on this unit, in Unix time; what it knows is as old.",
            {(): known.looked},
        ),
        _make_family(
            "problems",
            "Problems, by the part of the charm that reports them and"
            " their severity. The unit's status has their text.",
            problems,
            "part",
            "severity",
        ),
        _make_family(
            "gateway_ready",
            "1 where the gateway that serves the model is there and open, 0 where not; of the"
            " leader, where the model has an ingress.",
            {(): known.gateway_ready},
        ),
        _make_family(
            "guard",
            "1 for how requests to the model's routes are authenticated: asks (the authorization"
            " service is asked about each one), closed (no authorization service is available, and"
            " every request is rejected) or none (no request is authenticated); of the leader,"
            " where the model has an ingress.",
            {(state,): state == known.guard for state in guards},
            "state",
        ),
        _make_family(
            "certificate_not_before_timestamp_seconds",
            "From when the certificate of gateway or webhook is valid; of the leader.",
            {(each.owner,): each.not_before for each in certificates},
            "owner",
        ),
        _make_family(
            "certificate_not_after_timestamp_seconds",
            "Until when the certificate of gateway or webhook is valid; of the leader.",
            {(each.owner,): each.not_after for each in certificates},
            "owner",
        ),
        _make_family(
            "old_proxies",
            "Pods of the model whose proxy is of another revision or of an earlier istiod.",
            {(): known.old_proxies},
        ),
    ]


def _make_family(
    name: str, meaning: str, samples: Mapping[tuple[str, ...], float | None], *labels: str
) -> core.GaugeMetricFamily:
    family = core.GaugeMetricFamily(f"istio_integrator_{name}", meaning, labels=labels)
    for values, value in sorted(samples.items()):
        if value is not None:
            family.add_metric(values, value)
    return family


CHARM_FACTS = CharmFactsCollector()
REGISTRY.register(CHARM_FACTS)
