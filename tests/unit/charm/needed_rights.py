"""Which rights a hook without an ingress does without, and what they are for."""

from istio_integrator.kube import manifests

ADMISSION = (
    "admission-certificates",
    "admission-webhook",
    "admission-webhook-configuration",
)
INGRESS = (
    "authentication",
    "gateway",
    "gateway-tls",
    "gateway-workload",
    "grpc",
    "http-routes",
    "managed-gateway",
    "record",
    "routes",
    "tenant-policy",
)


def of_ingress_alone() -> set[str]:
    """Name the resources that only an ingress needs, which nobody asks for here."""
    needed = {kind.plural for folder in ADMISSION for kind in manifests.kinds(folder)}
    return {kind.plural for folder in INGRESS for kind in manifests.kinds(folder)} - needed


POLICIES_OF_OTHERS = {
    "peerauthentications",
    "authorizationpolicies",
    "sidecars",
    "validatingwebhookconfigurations",
}
"""Without them the charm knows less, and does all that it does."""
GOES_WITH_US = {"clusterroles"}
"""Without it a removal by force leaves what the model's end takes away."""
