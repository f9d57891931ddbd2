"""The common input of the checks; each fact is read once, on its first use."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable

from integrator_contract import names
from istio_integrator import order
from istio_integrator.asked import gateway
from istio_integrator.istio import authorization_policy, peer_authentication
from istio_integrator.kube import cluster
from istio_integrator.situation import model

_MOST_HOSTS = 32
"""Hosts of one route that are checked; net-istio writes four for each tag, KServe two."""
_MOST_DESTINATIONS = 64
"""Destinations of one route that are checked; Kubeflow's routes have one."""
_EVERY_PROXY = "mesh"
"""Not a Gateway: a route with this name is for sidecars."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VirtualService:
    """The part of a VirtualService that checks compare; tenants write objects of 1.5 MB."""

    namespace: str
    name: str
    """NAMESPACE/NAME."""
    gateways: tuple[str, ...]
    """The Gateways that it names, each as NAMESPACE/NAME."""
    hosts: tuple[str, ...]
    destinations: tuple[tuple[str, int | None], ...]
    """The hosts to which it leads, each with a port of its Service; None: any port."""
    is_ours: bool

    @classmethod
    def of(cls, obj: cluster.Object, *, is_ours: bool) -> VirtualService:
        """Read a VirtualService."""
        namespace, spec = obj["metadata"]["namespace"], cluster.at(obj, "spec")
        hosts, gateways = (
            [str(each) for each in cluster.items(spec, key)[:_MOST_HOSTS]]
            for key in ("hosts", "gateways")
        )
        named = (each for each in gateways if each != _EVERY_PROXY)
        return cls(
            namespace=namespace,
            name=cluster.namespaced_name(obj),
            gateways=tuple(each if "/" in each else f"{namespace}/{each}" for each in named),
            hosts=tuple(map(str.lower, hosts)),
            destinations=tuple(itertools.islice(_destinations(spec), _MOST_DESTINATIONS)),
            is_ours=is_ours,
        )


def _destinations(spec: cluster.Object) -> Iterable[tuple[str, int | None]]:
    for protocol in ("http", "tls", "tcp"):
        for entry in cluster.parts(spec, protocol):
            for target in cluster.parts(entry, "route"):
                destination = cluster.at(target, "destination")
                port = cluster.at(destination, "port").get("number")
                if host := destination.get("host"):
                    yield str(host), port if isinstance(port, int) else None


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

    @functools.cached_property
    def virtual_services(self) -> list[VirtualService]:
        """Those of the model, of its profiles, and those bound to the model's Gateways."""
        namespaces = {self.model, *self.profiles}

        def read(obj: cluster.Object) -> Iterable[VirtualService]:
            route = VirtualService.of(obj, is_ours=self.situation.manifests.is_ours(obj))
            if route.namespace in namespaces or any(
                name.startswith(f"{self.model}/") for name in route.gateways
            ):
                yield route

        return cluster.read_each(self.cluster.each(cluster.VIRTUAL_SERVICE), read)

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
