"""Services and other objects of the cluster, read as far as the ingress looks at them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from integrator_contract import pods
from istio_integrator.kube import cluster

_MOST_SELECTED = 64
"""Labels of a Service's selector; one with more is treated as one without a selector."""
_MOST_NAMES = 4
"""Names in one message to people; a status is one line."""
_ADDRESS = re.compile(r"[0-9A-Za-z.:_-]{1,253}")


def reference(obj: cluster.Object) -> str:
    """Name an object as the options do: `namespace/name`."""
    metadata = cluster.at(obj, "metadata")
    return f"{_text(metadata.get('namespace'))}/{_text(metadata.get('name'))}"


def selector_of(service: cluster.Object | None) -> dict[str, str]:
    """Read the labels by which a Service selects its pods; empty where it selects none."""
    found = cluster.at(service, "spec", "selector")
    texts = {key: value for key, value in found.items() if isinstance(value, str)}
    return texts if len(texts) <= _MOST_SELECTED else {}


def address(service: cluster.Object) -> str:
    """Read the first name or address of a load balancer; empty while it has none."""
    balancers = cluster.parts(cluster.at(service, "status", "loadBalancer"), "ingress")
    found = (_text(one.get(key)) for one in balancers[:1] for key in ("hostname", "ip"))
    return next((each for each in found if _ADDRESS.fullmatch(each)), "")


def number(value: object) -> int:
    """Read a port; 0 where the value is not one."""
    return value if pods.is_port(value) else 0


def listed(names: Iterable[str]) -> str:
    """Name things for people, not more than they read."""
    found = sorted(set(names))
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
