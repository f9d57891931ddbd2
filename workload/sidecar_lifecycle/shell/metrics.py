"""The metrics of `sidecar-lifecycle run`; their help texts are their documentation.

Times are seconds. Counters restart from zero with the process, as Prometheus expects.
"""

from __future__ import annotations

import functools

import prometheus_client

REGISTRY = prometheus_client.CollectorRegistry()
prometheus_client.ProcessCollector(registry=REGISTRY)

PREFIX = "sidecar_lifecycle"
_histogram = functools.partial(prometheus_client.Histogram, namespace=PREFIX, registry=REGISTRY)
_counter = functools.partial(prometheus_client.Counter, namespace=PREFIX, registry=REGISTRY)
_gauge = functools.partial(prometheus_client.Gauge, namespace=PREFIX, registry=REGISTRY)
# A stop takes some 50 ms when all is well, and the kubelet reports an exit up to 1 s late.
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
    "Pods whose proxy ended for good while their payload had not.",
)
REPLACED = _counter(
    "broken_pods_replaced",
    "Pods deleted because their proxy was lost (delete-broken-pods).",
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
    "Times that the pods were listed anew because a watch could not be resumed.",
)
