"""Objects as an API server has them."""

from typing import Any

KINDS = {
    "v1": "ConfigMap Event Namespace Node Pod Secret Service",
    "apps/v1": "DaemonSet Deployment ReplicaSet StatefulSet",
    "admissionregistration.k8s.io/v1": (
        "MutatingWebhookConfiguration ValidatingWebhookConfiguration"
    ),
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "apiregistration.k8s.io/v1": "APIService",
    "discovery.k8s.io/v1": "EndpointSlice",
    "rbac.authorization.k8s.io/v1": "ClusterRole Role",
    "gateway.networking.k8s.io/v1": "GatewayClass HTTPRoute",
    "networking.k8s.io/v1": "Ingress",
    "networking.istio.io/v1": "DestinationRule Gateway Sidecar VirtualService",
    "networking.istio.io/v1alpha3": "EnvoyFilter",
    "extensions.istio.io/v1alpha1": "WasmPlugin",
    "security.istio.io/v1": "AuthorizationPolicy PeerAuthentication RequestAuthentication",
}
VERSIONS = {kind: version for version, kinds in KINDS.items() for kind in kinds.split()}
"""The API version of each kind; `Gateway` is Istio's."""
METADATA = {
    *("annotations", "creationTimestamp", "deletionTimestamp", "labels", "ownerReferences", "uid")
}


def make(
    kind: str, name: str, namespace: str = "kf", /, *, api_version: str = "", **fields: Any
) -> dict[str, Any]:
    """Return an object with these fields, some of which belong to its metadata."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata |= {field: fields.pop(field) for field in METADATA & fields.keys()}
    version = api_version or VERSIONS[kind]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
