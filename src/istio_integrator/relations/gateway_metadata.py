"""The interface `gateway_metadata`, by which controllers learn where HTTPRoutes belong.

They make the Gateway the parent of HTTPRoutes, so it is one of gateway.networking.k8s.io.
"""

from __future__ import annotations

from charmlibs.interfaces.gateway_metadata import GatewayMetadata

from istio_integrator.relations import endpoints

__all__ = ["ENDPOINT", "METADATA", "GatewayMetadata", "publish", "withdraw"]

ENDPOINT = "gateway-metadata"
METADATA = "metadata"


def publish(related: endpoints.Relations, metadata: GatewayMetadata) -> None:
    """Tell every related application which Gateway there is."""
    related.write(ENDPOINT, {METADATA: metadata.model_dump_json()})


def withdraw(related: endpoints.Relations) -> None:
    """Tell them that there is none: without the key they wait."""
    related.write(ENDPOINT, {METADATA: ""})
