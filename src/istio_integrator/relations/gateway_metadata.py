"""The wire format of `gateway_metadata`, by which controllers learn where HTTPRoutes belong.

One JSON document under `metadata` in the application's data bag, with what the library
charmlibs.interfaces.gateway_metadata reads; the other side says nothing. Whoever reads it makes
the Gateway the parent of HTTPRoutes, so it is one of gateway.networking.k8s.io.
"""

from __future__ import annotations

import dataclasses
import json

from istio_integrator.relations import endpoints

ENDPOINT = "gateway-metadata"
METADATA = "metadata"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GatewayMetadata:
    """A Gateway and the workload behind it."""

    namespace: str
    gateway_name: str
    deployment_name: str
    service_account: str


def publish(related: endpoints.Relations, metadata: GatewayMetadata) -> None:
    """Tell every related application which Gateway there is."""
    text = json.dumps(dataclasses.asdict(metadata), sort_keys=True)
    related.write(ENDPOINT, {METADATA: text})


def withdraw(related: endpoints.Relations) -> None:
    """Tell them that there is none: without the key they wait."""
    related.write(ENDPOINT, {METADATA: ""})
