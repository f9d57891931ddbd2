"""What related applications are told about the gateway that serves the model."""

from __future__ import annotations

from collections.abc import Iterable

from istio_integrator import parts
from istio_integrator.ingress import gateway, managed_gateway, observed
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Said
from istio_integrator.relations import endpoints, kubeflow


def publish_metadata(
    scope: parts.Context,
    related: endpoints.Relations,
    managed: managed_gateway.ManagedGateway,
) -> Message | None:
    """Tell controllers where their HTTPRoutes belong, once istiod serves that Gateway.

    What was told stays while the option does: each pod of the gateway that restarts would else
    have every controller restart.

    Returns:
        What they wait for that only the operator can give them; None: nothing.
    """
    if scope.config.routing == "gateway-api":
        if found := managed.metadata():
            kubeflow.publish_metadata(related, found)
        return None
    kubeflow.publish_metadata(related, None)
    waiting = sorted(bag.application for bag in related.bags(kubeflow.GATEWAY_METADATA))
    if not waiting:
        return None
    return Said.GATEWAY_METADATA_AWAITED(applications=", ".join(waiting))


def external_host(
    scope: parts.Context,
    target: gateway.Target | Message,
    services: Iterable[cluster.Object],
) -> str:
    """Name the host by which the model is reached; empty while no gateway is known.

    Args:
        scope: What every part may use.
        target: Where the model is served.
        services: All Services of the cluster, of which some have an address from outside.
    """
    is_found = isinstance(target, gateway.Target)
    hosts = target.hosts if is_found else scope.config.hosts
    if exact := [host for host in hosts if not host.startswith("*")]:
        return exact[0]
    if not is_found:
        return ""
    reference = f"{target.namespace}/{target.service}"
    found = (observed.address(one) for one in services if observed.reference(one) == reference)
    return next(found, "") or f"{target.service}.{target.namespace}.svc.{scope.cluster_domain}"
