"""The common input of the checks; each fact is read once, on its first use."""

from __future__ import annotations

import functools

from integrator_contract import names
from istio_integrator import order
from istio_integrator.ingress import gateway
from istio_integrator.istio import authorization_policy, peer_authentication
from istio_integrator.kube import cluster
from istio_integrator.situation import model


class Facts:
    """The Situation, the charm's parts, and the cluster. Reading a fact may raise a CharmError."""

    def __init__(self, parts: order.Parts) -> None:
        self.parts = parts
        self.situation = situation = parts.situation
        self.cluster = situation.cluster
        self.config = situation.config
        self.mesh = situation.mesh
        self.model = situation.model
        self.application = situation.application

    @functools.cached_property
    def pods(self) -> list[model.Pod]:
        """The pods of the model that have not ended."""
        return model.read_pods(self.cluster, self.model)

    @functools.cached_property
    def profiles(self) -> list[str]:
        """The profile namespaces."""
        return [
            each["metadata"]["name"]
            for each in self.cluster.list(cluster.NAMESPACE)
            if cluster.at(each, "metadata", "labels").get(names.PART_OF) == names.PROFILE
        ]

    @functools.cached_property
    def policies(self) -> list[authorization_policy.AuthorizationPolicy]:
        """The AuthorizationPolicies of every namespace."""
        mesh, found = self.mesh, self.cluster.list(cluster.AUTHORIZATION_POLICY)
        own = (authorization_policy.OWN_TRUST_DOMAIN,)
        return authorization_policy.read_all(found, mesh.trust_domains if mesh else own)

    @functools.cached_property
    def peer_authentications(self) -> list[peer_authentication.PeerAuthentication]:
        """The PeerAuthentications of every namespace."""
        return peer_authentication.read_all(self.cluster.list(cluster.PEER_AUTHENTICATION))

    @property
    def gateway(self) -> gateway.Target | None:
        """The gateway workload that serves the model; None without one."""
        if not self.situation.exposes or self.mesh is None:
            return None
        target = self.parts.ingress.target
        return target if isinstance(target, gateway.Target) else None

    @functools.cached_property
    def gateway_pods(self) -> list[model.Pod]:
        """The pods of the gateway workload that are ready."""
        if self.gateway is None:
            return []
        where, labels = self.gateway.namespace, self.gateway.selector
        found = model.read(self.cluster.list(cluster.POD, where, labels), model.Pod)
        return [each for each in found if each.is_ready]
