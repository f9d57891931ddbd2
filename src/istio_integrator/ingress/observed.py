"""How objects of the cluster are named for people."""

from __future__ import annotations

from istio_integrator.kube import cluster


def reference(obj: cluster.Object) -> str:
    """Name an object as the options do: `namespace/name`."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
