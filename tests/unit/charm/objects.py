"""Objects as an API server has them."""

from typing import Any

from istio_integrator.kube import cluster

VERSIONS = {kind: version for version, kind in sorted(cluster.KINDS)}
"""The API version of each kind; `Gateway` is Istio's."""
METADATA = {
    *("annotations", "creationTimestamp", "deletionTimestamp", "labels", "ownerReferences", "uid")
}


def make(
    kind: str, name: str, namespace: str = "kubeflow", /, *, api_version: str = "", **fields: Any
) -> dict[str, Any]:
    """Return an object with these fields, some of which belong to its metadata."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata |= {field: fields.pop(field) for field in METADATA & fields.keys()}
    version = api_version or VERSIONS[kind]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
