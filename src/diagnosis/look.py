"""What the checks look at: everything is read once, when the first check asks for it."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import logging
import pathlib
from collections.abc import Callable, Iterable, Mapping

import httpx2
import ops
import yaml

import authentication
import cluster
import component
import errors
import farewell
import gateway
import ingress
import lifecycle
import membership
import mesh
import probe
import relations
import streams

from . import calls, entry, guard, policies

logger = logging.getLogger(__name__)

ROLES = pathlib.Path(__file__).parents[2] / "rbac" / "roles.yaml"

FILTERS = cluster.kind("networking.istio.io/v1alpha3", "EnvoyFilter")
GATEWAYS = cluster.kind("networking.istio.io/v1", "Gateway")
ROUTES = cluster.kind("networking.istio.io/v1", "VirtualService")
ENTRIES = cluster.kind("networking.istio.io/v1", "ServiceEntry")
SIDECARS = cluster.kind("networking.istio.io/v1", "Sidecar")
DAEMON_SETS = cluster.kind("apps/v1", "DaemonSet")
VALIDATING = cluster.kind("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
_POLICIES = cluster.kind("security.istio.io/v1", "AuthorizationPolicy")
_PEERS = cluster.kind("security.istio.io/v1", "PeerAuthentication")

_ENVOY = 15000
"""The port of Envoy's administration, on loopback."""
_PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
_LOG_LINES = 2000


class Look:
    """The cluster, as the checks see it. Reading may raise any CharmError.

    Args:
        scope: What components use; the mesh in it is looked for anew.
        related: The application's relations.
        container: Of the workload.
        discovery: The search for an Istio, where it was just made.
        reach: The way into pods.
        now: The clock.
    """

    def __init__(
        self,
        scope: component.Scope,
        related: relations.Relations,
        container: ops.Container,
        *,
        discovery: mesh.Discovery | None = None,
        reach: streams.Streams | None = None,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self.given = scope
        self._related = related
        self._container = container
        self._discovered = discovery
        self._lists: dict[tuple[cluster.Kind, str], list[cluster.Object]] = {}
        self.reach = reach or streams.Streams(scope.cluster)
        self.now = now

    @property
    def application(self) -> str:
        """Ours."""
        return self.given.application

    @property
    def model(self) -> str:
        """The model's name, which is its namespace."""
        return self.given.model

    def objects(self, kind: cluster.Kind, namespace: str = "") -> list[cluster.Object]:
        """List a kind, in one namespace or everywhere."""
        key = (kind, namespace)
        if key not in self._lists:
            self._lists[key] = self.given.cluster.list(kind, namespace=namespace or None)
        return self._lists[key]

    @functools.cached_property
    def discovery(self) -> mesh.Discovery:
        """The search for an Istio."""
        if self._discovered is not None:
            return self._discovered
        found = mesh.Discovery(
            self.given.cluster,
            self.given.config,
            model=self.model,
            application=self.application,
            hint=self._related.istio_root_namespace(),
        )
        found.reconcile()
        return found

    @functools.cached_property
    def scope(self) -> component.Scope:
        """What components use."""
        return dataclasses.replace(self.given, mesh=self.discovery.mesh)

    @functools.cached_property
    def namespace(self) -> cluster.Object | None:
        """The model's."""
        return self.given.cluster.get(cluster.NAMESPACE, self.model)

    @functools.cached_property
    def membership(self) -> membership.Decision:
        """What would be done with the model's namespace now."""
        if self.namespace is None:
            return membership.Decision()
        return membership.Membership(self.scope).decided(self.namespace)

    @functools.cached_property
    def workload(self) -> lifecycle.Lifecycle:
        """Whom to ask about pods."""
        joined = lifecycle.Joined.of(self.scope, joined=self.membership.joined)
        return lifecycle.Lifecycle(self.scope, self._container, joined)

    @functools.cached_property
    def uninjected(self) -> lifecycle.Answer:
        """The workload's answer about the model's pods."""
        return self.workload.uninjected()

    @functools.cached_property
    def pods(self) -> list[cluster.Object]:
        """The model's."""
        return self.objects(cluster.POD, self.model)

    @functools.cached_property
    def nodes(self) -> list[cluster.Object]:
        """All of them."""
        return self.objects(cluster.NODE)

    @functools.cached_property
    def profiles(self) -> list[str]:
        """The namespaces of Kubeflow's users."""
        return [
            each["metadata"]["name"]
            for each in self.objects(cluster.NAMESPACE)
            if _PROFILE.items() <= cluster.at(each, "metadata", "labels").items()
        ]

    @functools.cached_property
    def finishing(self) -> list[cluster.Object]:
        """Injected pods that run to completion, wherever proxies are stopped."""
        return farewell.candidates(self.scope.cluster, farewell.namespaces(self.scope))

    @functools.cached_property
    def resolved(self) -> gateway.Target | gateway.Missing | gateway.Refusal:
        """The gateway workload."""
        return ingress.Ingress(self.scope, self._related).resolved()

    @property
    def target(self) -> gateway.Target | None:
        """The gateway workload, where the model has one."""
        if not self.given.exposes or self.scope.mesh is None:
            return None
        return self.resolved if isinstance(self.resolved, gateway.Target) else None

    @functools.cached_property
    def gateway_service(self) -> cluster.Object | None:
        """The gateway's."""
        target = self.target
        if target is None:
            return None
        return self.service(target.service, target.namespace)

    @functools.cached_property
    def gateway_pods(self) -> list[cluster.Object]:
        """Of the gateway, those that are ready."""
        target = self.target
        if target is None:
            return []
        found = self.given.cluster.list(
            cluster.POD, namespace=target.namespace, labels=target.selector
        )
        return [pod for pod in found if calls.is_ready(pod)]

    @functools.cached_property
    def opened(self) -> cluster.Object | None:
        """Our Gateway."""
        return self.given.cluster.get(GATEWAYS, ingress.GATEWAY_NAME, self.model)

    def envoy(self, pod: cluster.Object, path: str) -> str:
        """Ask the administration of a pod's Envoy."""
        metadata = pod["metadata"]
        answer = self.reach.get(metadata["namespace"], metadata["name"], _ENVOY, path)
        if answer.status != 200:
            raise errors.UnreachableError(f"Envoy of {metadata['name']} answers {answer.status}")
        return answer.text

    def listening(self, pod: cluster.Object) -> set[int]:
        """List the ports at which a pod's Envoy has a listener."""
        found = json.loads(self.envoy(pod, "/listeners?format=json"))
        return {
            int(cluster.at(each, "local_address", "socket_address").get("port_value", 0))
            for each in cluster.items(found, "listener_statuses")
        }

    def virtual_hosts(self, pod: cluster.Object) -> list[guard.VirtualHost]:
        """Read what a gateway's Envoy serves, and whom it asks before."""
        return guard.virtual_hosts(
            self.envoy(pod, "/config_dump?resource=dynamic_listeners"),
            self.envoy(pod, "/config_dump?resource=dynamic_route_configs"),
        )

    @functools.cached_property
    def authentication(self) -> authentication.Decision:
        """Who should be asked about requests."""
        return authentication.decide(
            self._related.ingress_auth(),
            strict=self.given.config.strict_ingress_auth,
            model=self.model,
            domain=self.given.cluster_domain,
        )

    @functools.cached_property
    def policies(self) -> list[cluster.Object]:
        """AuthorizationPolicies and PeerAuthentications, of any namespace."""
        return [*self.objects(_POLICIES), *self.objects(_PEERS)]

    def backends(self, kind: cluster.Kind) -> list[policies.Backend]:
        """List the pods in the model that API servers call, by a kind of webhook configuration."""
        found = [
            backend
            for configuration in self.objects(kind)
            for hook in cluster.items(configuration, "webhooks")
            for backend in self._behind(configuration, hook)
        ]
        return list({(id(each.pod), each.port): each for each in found}.values())

    def _behind(
        self, configuration: cluster.Object, hook: cluster.Object
    ) -> Iterable[policies.Backend]:
        asked = cluster.at(hook, "clientConfig", "service")
        if asked.get("namespace") != self.model:
            return
        for service in self.objects(cluster.SERVICE, self.model):
            selector = cluster.at(service, "spec", "selector")
            if service["metadata"]["name"] != asked.get("name") or not selector:
                continue
            for pod in self.pods:
                if selector.items() <= cluster.at(pod, "metadata", "labels").items():
                    port = entry.target_port(service, pod, int(asked.get("port") or 443))
                    yield policies.Backend(configuration["metadata"]["name"], pod, port)

    def pods_of(self, name: str, namespace: str) -> list[cluster.Object]:
        """List the pods behind a Service, the ready ones first."""
        marks = {"kubernetes.io/service-name": name}
        found: list[cluster.Object] = []
        for part in self.given.cluster.list(cluster.ENDPOINT_SLICE, namespace, marks):
            for endpoint in cluster.items(part, "endpoints"):
                who = cluster.at(endpoint, "targetRef")
                if who.get("kind") == "Pod":
                    pod = self.given.cluster.get(cluster.POD, str(who["name"]), namespace)
                    found += [pod] if pod else []
        return sorted(found, key=lambda pod: not calls.is_ready(pod))

    def service(self, name: str, namespace: str) -> cluster.Object | None:
        """Find a Service; the charm may list those of others, not get one."""
        for each in self.objects(cluster.SERVICE):
            metadata = each["metadata"]
            if (metadata["name"], metadata["namespace"]) == (name, namespace):
                return each
        return None

    def allowed(self, review: cluster.Object) -> bool:
        """Ask whether the charm has a right."""
        answer = self.given.cluster.create(review)
        return cluster.at(answer, "status").get("allowed") is True

    def roles(self) -> list[cluster.Object]:
        """Read the roles that are shipped."""
        return list(yaml.safe_load_all(ROLES.read_text()))

    def server_time(self) -> datetime.datetime | None:
        """Ask the API server for its time, which it writes on a pod that it does not keep."""
        label = {"sidecar.istio.io/inject": "false"}
        asked = probe.pod(self.model, label, native=None)
        try:
            created = self.given.cluster.create(asked, dry_run=True)
        except errors.ApiError as error:
            logger.debug("The API server's time is not known: %s", error)
            return None
        told = created["metadata"].get("creationTimestamp")
        return datetime.datetime.fromisoformat(told) if told else None

    def heartbeats(self) -> Mapping[str, datetime.datetime]:
        """Read when each node last wrote its own state."""
        found: dict[str, datetime.datetime] = {}
        for node in self.nodes:
            for condition in cluster.items(cluster.at(node, "status"), "conditions"):
                if beat := condition.get("lastHeartbeatTime"):
                    moment = datetime.datetime.fromisoformat(beat)
                    name = node["metadata"]["name"]
                    found[name] = max(moment, found.get(name, moment))
        return found

    def lease(self) -> cluster.Object | None:
        """Read the Lease of the unit that acts."""
        return self.given.cluster.get(cluster.LEASE, f"{self.application}-lifecycle", self.model)

    def log(self, namespace: str, pod: str, container: str, seconds: int) -> list[str]:
        """Read the last of a log."""
        return self.reach.log(namespace, pod, container, since=seconds, most=_LOG_LINES)

    def fetch(self, url: str) -> streams.Response | str:
        """Ask for a URL from here, outside of the mesh; or say why there is no answer."""
        try:
            answer = httpx2.get(url, timeout=calls.SECONDS, follow_redirects=False)
        except httpx2.HTTPError as error:
            return str(error) or type(error).__name__
        headers = {key.lower(): value for key, value in answer.headers.items()}
        return streams.Response(answer.status_code, headers, answer.text)
