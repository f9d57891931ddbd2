"""What related applications are told about the gateway that serves the model."""

from __future__ import annotations

from collections.abc import Mapping

from istio_integrator import parts
from istio_integrator.ingress import gateway, managed_gateway
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
        self.is_up = False
        """Whether the gateway was last said to be there, and open."""

    def is_of_istio(self, opened: gateway.Target | None) -> bool:
        """Tell whether the model is served by a Gateway of Istio's own kind."""
        return opened is not None and not self._managed.is_at(opened)

    def gateway(self, opened: gateway.Target | None, *, up: bool) -> None:
        """Say which Gateway of Istio's own kind there is; another one is none."""
        self.is_up = up
        kubeflow.publish_gateway(
            self._related,
            name=gateway.NAME,
            namespace=self._scope.model,
            up=up and (opened is None or self.is_of_istio(opened)),
        )

    def controllers(self, opened: gateway.Target | None) -> str:
        """Tell controllers where their HTTPRoutes belong, once istiod serves it.

        What was told stays while the Gateway is there: each pod that restarts would else have
        every controller restart.

        Args:
            opened: Where the model is served; None where it is not.

        Returns:
            What they wait for that only the operator can give them; empty for nothing.
        """
        waiting = sorted(bag.application for bag in self._related.bags(gateway_metadata.ENDPOINT))
        if not (opened and self._managed.is_at(opened)):
            gateway_metadata.withdraw(self._related)
        elif found := self._managed.metadata():
            gateway_metadata.publish(self._related, found)
        if not waiting or self._scope.config.routing == "gateway-api":
            return ""
        return f"gateway-metadata: {', '.join(waiting)} waits for it; set routing=gateway-api"

    def routed(
        self,
        target: gateway.Target | gateway.Missing | gateway.Refusal,
        *,
        has_tls: bool,
        addresses: Mapping[str, str],
    ) -> None:
        """Tell applications how the model is reached, whether or not they asked for routes yet.

        Args:
            target: Where it is served.
            has_tls: Whether by HTTPS.
            addresses: Of Services from outside.
        """
        ingress_route.answer(
            self._related,
            external_host=self._external_host(target, addresses),
            tls_enabled=has_tls,
        )

    def _external_host(
        self,
        target: gateway.Target | gateway.Missing | gateway.Refusal,
        addresses: Mapping[str, str],
    ) -> str:
        is_found = isinstance(target, gateway.Target)
        hosts = target.hosts if is_found else self._scope.config.hosts
        for host in hosts:
            if not host.startswith("*"):
                return host
        if not is_found:
            return ""
        name = f"{target.service}.{target.namespace}.svc.{self._scope.cluster_domain}"
        return addresses.get(f"{target.namespace}/{target.service}") or name
