"""The metrics of `sidecar-lifecycle run`; their help texts are their documentation.

Times are seconds. Counters restart from zero with the process, as Prometheus expects.
"""

from __future__ import annotations

import prometheus_client

REGISTRY = prometheus_client.CollectorRegistry()
prometheus_client.ProcessCollector(registry=REGISTRY)

_PREFIX = "sidecar_lifecycle"
# A stop takes some 50 ms when all is well, and the kubelet reports an exit up to 1 s late.
_FAST = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

ACKNOWLEDGED = prometheus_client.Histogram(
    f"{_PREFIX}_stop_acknowledged_seconds",
    "From the first watch event that made a pod stoppable to the proxy's answer to the stop. A"
    " proxy that ends before its answer is out has none.",
    buckets=_FAST,
    registry=REGISTRY,
)
PROXY_EXIT = prometheus_client.Histogram(
    f"{_PREFIX}_payload_exit_to_proxy_exit_seconds",
    "From the end of the last payload container, by its node's clock in whole seconds, to the"
    " moment at which the proxy was seen to have ended.",
    buckets=(0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 300),
    registry=REGISTRY,
)
STOPS = prometheus_client.Counter(
    f"{_PREFIX}_stops",
    "Attempts to stop a proxy, by transport (port-forward, exec) and result: acknowledged;"
    " unanswered, when the connection ended before the answer, as it does where the proxy ends"
    " first, which is a failure only if the proxy has not ended seconds later; changed or gone,"
    " when there was nothing to stop any more; or the class of failure.",
    ("transport", "result"),
    registry=REGISTRY,
)
STOPPED = prometheus_client.Counter(
    f"{_PREFIX}_proxies_stopped",
    "Proxies seen to have ended after they were told to stop.",
    registry=REGISTRY,
)
LOST = prometheus_client.Counter(
    f"{_PREFIX}_proxies_lost",
    "Pods whose proxy ended for good while their payload had not.",
    registry=REGISTRY,
)
REPLACED = prometheus_client.Counter(
    f"{_PREFIX}_broken_pods_replaced",
    "Pods deleted because their proxy was lost (delete-broken-pods).",
    registry=REGISTRY,
)
PODS = prometheus_client.Gauge(
    f"{_PREFIX}_pods",
    "Running pods with a sidecar that run to completion, by what is decided about them and why.",
    ("decision", "reason"),
    registry=REGISTRY,
)
IN_FLIGHT = prometheus_client.Gauge(
    f"{_PREFIX}_stops_in_flight",
    "Stops being sent at this moment.",
    registry=REGISTRY,
)
PENDING = prometheus_client.Gauge(
    f"{_PREFIX}_stops_pending",
    "Pods whose proxy is to be stopped and has not been seen to end.",
    registry=REGISTRY,
)
OLDEST_PENDING = prometheus_client.Gauge(
    f"{_PREFIX}_oldest_pending_stop_seconds",
    "Age of the oldest stop that is pending.",
    registry=REGISTRY,
)
TASKS = prometheus_client.Gauge(
    f"{_PREFIX}_tasks",
    "Tasks of the event loop; at rest their number does not grow.",
    registry=REGISTRY,
)
BROKEN = prometheus_client.Counter(
    f"{_PREFIX}_broken_objects",
    "Times that an object could not be dealt with and was passed over, by what was being done"
    " (decode, observe, decide, stop, report, converge) and the object's kind. The log names it.",
    ("stage", "kind"),
    registry=REGISTRY,
)
RELISTS = prometheus_client.Counter(
    f"{_PREFIX}_relists",
    "Times that the pods were listed anew because a watch could not be resumed.",
    registry=REGISTRY,
)
