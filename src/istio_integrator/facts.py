"""What one hook knows of the cluster, the relations and the workload."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import TypeVar

from integrator_contract import answers, names, namespaces, pods, schema, seen
from istio_integrator import error_messages
from istio_integrator.asked import authentication, gateway, membership
from istio_integrator.asked.gateways import managed, named, own
from istio_integrator.asked.routes import plan, requested
from istio_integrator.istio import (
    authorization_policy,
    discovery,
    meshconfig,
    peer_authentication,
)
from istio_integrator.kube import cluster, errors, fences
from istio_integrator.messages import Message, Template
from istio_integrator.relations import ingress_route, kubeflow
from istio_integrator.situation import model
from istio_integrator.situation.situation import Exposure, Situation
from istio_integrator.situation.workload import CONTAINER, WorkloadClient

_T = TypeVar("_T")

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
    def from_object(cls, obj: cluster.Object, *, is_ours: bool) -> VirtualService:
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
            destinations=tuple(itertools.islice(_read_destinations(spec), _MOST_DESTINATIONS)),
            is_ours=is_ours,
        )


def _read_destinations(spec: cluster.Object) -> Iterable[tuple[str, int | None]]:
    for protocol in ("http", "tls", "tcp"):
        for entry in cluster.parts(spec, protocol):
            for target in cluster.parts(entry, "route"):
                destination = cluster.at(target, "destination")
                port = cluster.at(destination, "port").get("number")
                if host := destination.get("host"):
                    yield str(host), port if isinstance(port, int) else None


class Facts:
    """The Situation, and facts that are read once, on their first use.

    Reading a fact may raise a CharmError. A fact about objects that this charm writes is either
    a property that is not kept, or read only by checks, which follow all writes of a hook.
    """

    def __init__(
        self, situation: Situation, discovered: discovery.Discovery | None = None
    ) -> None:
        self.situation = situation
        self.discovered = discovered
        """The search for an Istio; None if there was no search or it failed."""
        self.mesh = discovered.mesh if discovered else None
        """The Istio to join; None if none exists or none can be chosen."""

    @functools.cached_property
    def data_plane(self) -> pods.DataPlane:
        """How the model's pods are in the mesh after this hook."""
        situation = self.situation
        if (namespace := situation.cluster.get(cluster.NAMESPACE, situation.model)) is None:
            return "sidecar"
        return membership.decide(situation, self.mesh, namespace).data_plane

    @property
    def member_pod_labels(self) -> Mapping[str, str] | None:
        """The label that makes one pod a mesh member; None without an Istio."""
        if self.mesh is None:
            return None
        return names.AMBIENT if self.data_plane == "ambient" else self.mesh.pod_labels

    @property
    def served(self) -> namespaces.Served:
        """The kinds of namespaces that this application serves."""
        situation = self.situation
        return namespaces.Served(
            model=situation.model,
            mesh_namespace=self.mesh.injector.installed_in if self.mesh else "",
            owner=situation.manifests.owner,
            kinds=situation.config.served_namespaces,
        )

    @functools.cached_property
    def served_namespaces(self) -> list[str]:
        """The namespaces in which this application stops proxies, the model's first.

        Without the right to list namespaces it is only the model's, as in the workload.
        """
        found: list[str] = []
        api, model_name = self.situation.cluster, self.situation.model
        present = api.list_if_allowed(cluster.NAMESPACE) or [
            api.get(cluster.NAMESPACE, model_name)
        ]
        for namespace in filter(None, present):
            with fences.isolate(cluster.reference(namespace)):
                name = namespace["metadata"]["name"]
                is_going = name != model_name and "deletionTimestamp" in namespace["metadata"]
                labels = cluster.at(namespace, "metadata", "labels")
                if not is_going and self.served.find_kind(name, labels):
                    found.append(name)
        return sorted(found, key=lambda name: (name != model_name, name))

    @property
    def services(self) -> list[model.Service]:
        """The Services of the model."""
        return self._read_objects(model.Service, cluster.SERVICE)

    @property
    def pods(self) -> list[model.Pod]:
        """The pods of the model that have not ended."""
        return model.list_pods(self.situation.cluster, self.situation.model)

    @property
    def model(self) -> model.Model:
        """The Services, pods and workloads of the model."""
        return model.Model(
            name=self.situation.model,
            services=self.services,
            pods=self.pods,
            workloads=self._read_objects(model.PodController, *model.WORKLOADS),
        )

    def _read_objects(self, into: type[_T], *kinds: cluster.Kind) -> list[_T]:
        # The charm writes such objects. The client keeps its lists until then.
        api = self.situation.cluster
        return [
            each
            for kind in kinds
            for each in api.decode(api.list(kind, self.situation.model), into)
        ]

    @functools.cached_property
    def contract_mismatch(self) -> Message | None:
        """The message if this charm and the workload's image cannot work together yet.

        The charm neither starts nor stops a service whose image has another contract.
        """
        client, application = self.situation.workload, self.situation.application
        if not client.container.can_connect():
            return Template.CONTAINER_STARTING()
        try:
            contract = client.read_contract()
        except errors.LifecycleError as error:
            return error_messages.explain_error(error, application=application)
        if contract == schema.SCHEMA:
            return None
        contracts = f"contract {contract or 'none'}, here {schema.SCHEMA}"
        return Template.IMAGE_DOES_NOT_FIT(application=application, contracts=contracts)

    @property
    def workload(self) -> WorkloadClient:
        """The client of the workload; raises LifecycleError if the contract differs."""
        if self.contract_mismatch:
            raise errors.LifecycleError(self.contract_mismatch.text)
        return self.situation.workload

    @property
    def image(self) -> str:
        """The workload's image for other pods; empty until its contract matches."""
        if self.contract_mismatch:
            return ""
        situation = self.situation
        pod = situation.cluster.get(cluster.POD, situation.pod_name, situation.model)
        containers = cluster.parts(cluster.at(pod, "spec"), "containers")
        found = (each for each in containers if each.get("name") == CONTAINER)
        return str(next(found, cluster.Object()).get("image", ""))

    @functools.cached_property
    def uninjected(self) -> answers.Listing:
        """The pods that lack their sidecar, and the model's progress."""
        return self.workload.list_uninjected()

    @functools.cached_property
    def envoy_state(self) -> seen.EnvoyState | None:
        """The configuration of the gateway's Envoys; None without an answer."""
        return self.situation.workload.read_envoy_state()

    @functools.cached_property
    def gateway_target(self) -> gateway.Target | Message:
        """The gateway that serves the model, or a message for the operator; nothing is written.

        If routing=gateway-api is impossible, it is the gateway that serves the model now.
        """
        situation = self.situation
        why: Message | None = None
        found: gateway.Target | Message | None = None
        if situation.config.routing == "gateway-api":
            opened = situation.manifests.find_own(cluster.GATEWAY, gateway.NAME)
            why = managed.find_obstacle(situation, self.mesh, opened)
            if why is None or managed.find_gateway(situation) is not None:
                found = managed.read_target(situation)
            elif opened is None:
                return why
        if found is None and situation.config.gateway_service:
            found = named.find_gateway(situation, self.mesh)
        found = found or own.read_target(situation)
        if why and isinstance(found, gateway.Target):
            return dataclasses.replace(found, messages=(why, *found.messages))
        return found

    @property
    def gateway(self) -> gateway.Target | None:
        """The gateway workload that serves the model; None without one."""
        if not self.situation.is_exposed or self.mesh is None:
            return None
        return self.gateway_target if isinstance(self.gateway_target, gateway.Target) else None

    @functools.cached_property
    def authentication(self) -> authentication.Authentication:
        """How requests are authenticated."""
        return authentication.decide(self.situation)

    @functools.cached_property
    def route_requests(self) -> list[requested.Received]:
        """The relations' requests for routes, those of the older interface first, then by age."""
        related = self.situation.related
        return [*kubeflow.read_ingress(related), *ingress_route.read_requests(related)]

    @functools.cached_property
    def route_plan(self) -> plan.RoutePlan:
        """The routes that related applications request."""
        return plan.plan_routes(requested.read(self.situation, self.route_requests))

    @functools.cached_property
    def exposure(self) -> Exposure:
        """The gateway's calls to Services of the model; empty without requests for ingress."""
        if not self.situation.is_exposed:
            return Exposure()
        target = self.gateway_target if isinstance(self.gateway_target, gateway.Target) else None
        service = self.authentication.service
        namespace, _, guard = service.reference.partition("/") if service else ("", "", "")
        is_here = namespace == self.situation.model
        return Exposure(
            # The backends are known before the gateway exists.
            gateways=tuple(target.principals) if target else (),
            gateway_pods=(frozenset(target.selector.items()),) if target and target.is_own else (),
            routed=frozenset((route.service, route.port) for route in self.route_plan.routes),
            guards=frozenset([(guard, service.port)] if service and is_here else ()),
        )

    # The following facts are read by checks.

    @functools.cached_property
    def gateway_pods(self) -> list[model.Pod]:
        """The pods of the gateway workload that are ready."""
        if self.gateway is None:
            return []
        api, where, labels = self.situation.cluster, self.gateway.namespace, self.gateway.selector
        found = api.decode(api.list(cluster.POD, where, labels), model.Pod)
        return [each for each in found if each.is_ready]

    @functools.cached_property
    def profiles(self) -> list[str]:
        """The profile namespaces."""
        return [
            each["metadata"]["name"]
            for each in self.situation.cluster.list(cluster.NAMESPACE)
            if cluster.at(each, "metadata", "labels").get(names.PART_OF) == names.PROFILE
        ]

    @functools.cached_property
    def policies(self) -> list[authorization_policy.AuthorizationPolicy]:
        """The AuthorizationPolicies of every namespace."""
        found = self.situation.cluster.list(cluster.AUTHORIZATION_POLICY)
        known = self.mesh.settings if self.mesh else meshconfig.IstiodSettings()
        return authorization_policy.read_all(found, known.trust_domains)

    @functools.cached_property
    def peer_authentications(self) -> list[peer_authentication.PeerAuthentication]:
        """The PeerAuthentications of every namespace."""
        found = self.situation.cluster.list(cluster.PEER_AUTHENTICATION)
        return peer_authentication.read_all(found)

    @functools.cached_property
    def virtual_services(self) -> list[VirtualService]:
        """Those of the model, of its profiles, and those bound to the model's Gateways."""
        situation = self.situation
        namespaces = {situation.model, *self.profiles}

        def read(obj: cluster.Object) -> Iterable[VirtualService]:
            route = VirtualService.from_object(obj, is_ours=situation.manifests.is_ours(obj))
            if route.namespace in namespaces or any(
                name.startswith(f"{situation.model}/") for name in route.gateways
            ):
                yield route

        return cluster.read_each(situation.cluster.stream(cluster.VIRTUAL_SERVICE), read)
