"""Which gateway serves the model: its own, the named one, or one that istiod deploys."""

from __future__ import annotations

import dataclasses

from istio_integrator import parts
from istio_integrator.ingress import gateway, managed_gateway, named_gateway, own_gateway
from istio_integrator.ingress.gateway import Target
from istio_integrator.kube import cluster
from istio_integrator.messages import Message


def resolve(
    scope: parts.Context,
    own: own_gateway.OwnGateway,
    managed: managed_gateway.ManagedGateway,
    *,
    only_https: bool,
) -> Target | Message:
    """Say which gateway serves the model, or what the operator has to do; nothing is written.

    What keeps routing=gateway-api from being followed leaves the model at the gateway that serves
    it, with the reason in `messages`.

    Args:
        scope: What every part may use.
        own: The gateway workload of the model's own.
        managed: The gateway that istiod deploys.
        only_https: Whether nothing but redirects is to be served without TLS.
    """

    def by_options() -> Target | Message:
        if scope.config.gateway_service:
            services = scope.cluster.list(cluster.SERVICE)
            return named_gateway.look(scope, services, only_https=only_https)
        return own.target(only_https=only_https)

    if scope.config.routing != "gateway-api":
        return by_options()
    opened = scope.manifests.own(cluster.GATEWAY, gateway.NAME)
    why = managed.obstacle(opened)
    if why is None:
        return managed.target(only_https=only_https)
    if managed.find() is not None:
        return managed.target(only_https=only_https, messages=(why,))
    if opened is None:
        return why
    found = by_options()
    if isinstance(found, Target):
        return dataclasses.replace(found, messages=(why, *found.messages))
    return found
