"""How often proxies were called in plain text, as Envoy itself counted; pure.

Istio's standard metrics say of each request and connection that came in whether it was mutual TLS
(the label `connection_security_policy`). Of a caller in plain text they know no name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

PATH = "/stats/prometheus?usedonly&filter=istio_(requests_total|tcp_connections_opened_total)"
"""What to ask Envoy's administration for."""
MOST_LINES = 20_000
"""Lines of an answer that are read."""
_LINE = re.compile(r"istio_(requests|tcp_connections_opened)_total\{(.*)\} (\d+)(?:\.0*)?\s*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclasses.dataclass(frozen=True, order=True)
class Counted:
    """Calls of a Service in plain text, since its proxies started."""

    workload: str
    service: str
    """As the metrics name it; it may be `unknown`."""
    what: str
    """`requests` or `connections`."""
    number: int


def parse(text: str, workload: str) -> list[Counted]:
    """Read what a proxy counted of calls that came in without mutual TLS.

    Args:
        text: In the format of Prometheus.
        workload: Whose proxy it is.
    """
    sums: dict[tuple[str, str], int] = {}
    for line in text.splitlines()[:MOST_LINES]:
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        labels: Mapping[str, str] = dict(_LABEL.findall(found[2]))
        is_incoming = labels.get("reporter") == "destination"
        if is_incoming and labels.get("connection_security_policy") == "none":
            what = "requests" if found[1] == "requests" else "connections"
            key = labels.get("destination_service_name", "unknown"), what
            sums[key] = sums.get(key, 0) + int(found[3])
    return [Counted(workload, *key, number) for key, number in sums.items() if number]


def is_counting(text: str) -> bool:
    """Tell whether a proxy has counted any call: without Istio's metrics it counts none.

    Args:
        text: In the format of Prometheus.
    """
    return any(map(_LINE.fullmatch, text.splitlines()[:MOST_LINES]))


def summed(found: Iterable[Counted]) -> list[Counted]:
    """Add up what the pods of a workload counted."""
    sums: dict[tuple[str, str, str], int] = {}
    for each in found:
        key = each.workload, each.service, each.what
        sums[key] = sums.get(key, 0) + each.number
    return sorted(Counted(*key, number) for key, number in sums.items())
