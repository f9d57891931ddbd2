"""What related applications are told about the gateway that serves the model."""

from __future__ import annotations

from collections.abc import Iterable

from istio_integrator import parts
from istio_integrator.ingress import gateway, managed_gateway, observed
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Said
from istio_integrator.relations import (
    endpoints,
    gateway_metadata,
    ingress_route,
    kubeflow,
)


class Announced:
    """Writes into relations where routes belong and how the model is reached."""

    def __init__(
        self,
        scope: parts.Context,
        related: endpoints.Relations,
        managed: managed_gateway.ManagedGateway,
    ) -> None:
        self._scope = scope
        self._related = related
        self._managed = managed

    def gateway(self, *, up: bool) -> None:
        """Tell applications the name of Istio's Gateway, and whether it is there and served."""
        kubeflow.publish_gateway(
            self._related, name=gateway.NAME, namespace=self._scope.model, up=up
        )

    def controllers(self) -> Message | None:
        """Tell controllers where their HTTPRoutes belong, once istiod serves that Gateway.

        What was told stays while the option does: each pod of the gateway that restarts would else
        have every controller restart.

        Returns:
            What they wait for that only the operator can give them; None: nothing.
        """
        if self._scope.config.routing == "gateway-api":
            if found := self._managed.metadata():
                gateway_metadata.publish(self._related, found)
            return None
        gateway_metadata.withdraw(self._related)
        waiting = sorted(bag.application for bag in self._related.bags(gateway_metadata.ENDPOINT))
        if not waiting:
            return None
        return Said.GATEWAY_METADATA_AWAITED(applications=", ".join(waiting))

    def routed(
        self,
        target: gateway.Target | Message,
        *,
        has_tls: bool,
        services: Iterable[cluster.Object],
    ) -> None:
        """Tell applications how the model is reached, whether or not they asked for routes yet.

        Args:
            target: Where it is served.
            has_tls: Whether by HTTPS.
            services: All Services of the cluster, of which some have an address from outside.
        """
        ingress_route.answer(
            self._related,
            external_host=self._external_host(target, services),
            tls_enabled=has_tls,
        )

    def _external_host(
        self,
        target: gateway.Target | Message,
        services: Iterable[cluster.Object],
    ) -> str:
        is_found = isinstance(target, gateway.Target)
        hosts = target.hosts if is_found else self._scope.config.hosts
        for host in hosts:
            if not host.startswith("*"):
                return host
        if not is_found:
            return ""
        name = f"{target.service}.{target.namespace}.svc.{self._scope.cluster_domain}"
        reference = f"{target.namespace}/{target.service}"
        found = (observed.address(one) for one in services if observed.reference(one) == reference)
        return next(found, "") or name
