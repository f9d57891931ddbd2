"""How objects of the cluster are named for people."""

from __future__ import annotations

from collections.abc import Iterable

from istio_integrator.kube import cluster

_MOST_NAMES = 4
"""Names in one message to people; a status is one line."""


def reference(obj: cluster.Object) -> str:
    """Name an object as the options do: `namespace/name`."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def listed(names: Iterable[str]) -> str:
    """Name things for people, not more than they read."""
    found = sorted(set(names))
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more
