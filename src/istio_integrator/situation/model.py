"""Typed Services, pods and workloads of the model, with only the fields that the charm reads.

An object that does not fit its type is skipped, and `kube/fences.py` notes it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from integrator_contract import names, pods, selectors
from istio_integrator.kube import cluster

CALLING = (
    cluster.MUTATING_WEBHOOK,
    cluster.VALIDATING_WEBHOOK,
    cluster.CUSTOM_RESOURCE_DEFINITION,
    cluster.API_SERVICE,
)
"""Kinds whose objects make API servers call Services."""
WORKLOADS = (cluster.DEPLOYMENT, cluster.STATEFUL_SET, cluster.DAEMON_SET)
AGENT_PORTS = frozenset({15020, 15021, 15090})
"""Ports of the proxy itself, which are never redirected (injection-template.yaml of istiod)."""
_HTTPS = 443
"""The default port of a webhook or an APIService."""
_PLACEHOLDER = "placeholder"
"""The only port of the Service that Juju creates for an application without open ports."""
_AGENT_PATHS = ("/app-health/", "/app-lifecycle/")
"""Paths of probes that the injector redirected to pilot-agent (istio pilot/cmd/pilot-agent)."""
_HTTP = re.compile(r"(http2?|grpc)(-.*)?|kubernetes\.io/(h2c|ws)", re.IGNORECASE)
"""Names and `appProtocol` of ports that istiod treats as HTTP (istio
pkg/config/kube/conversion.go, ConvertProtocol)."""
_HEALTH = "/grpc.health.v1.Health/Check"
"""The method that the kubelet calls for gRPC probes."""
Labels = frozenset[tuple[str, str]]
"""Labels of a pod, or labels by which Services, workloads and policies select pods."""
NamedPorts = frozenset[tuple[str, int]]
"""Ports of a pod with their names, which may be empty."""
PortNumber = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class _Partial(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Owner(_Partial, frozen=True):
    name: str = ""
    controller: bool = False


class _Metadata(_Partial, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[_Owner] = []
    creation_timestamp: str = ""
    deletion_timestamp: str = ""


class ServicePort(_Partial, frozen=True):
    """A port of a Service, and the port of its pods."""

    port: PortNumber
    target_port: int | str = 0
    """The pods' port: a number, or the name of a container port."""
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""

    @property
    def is_http(self) -> bool:
        """Whether a caller's sidecar routes by the request's Host header.

        Without a declared protocol, the sidecar routes by the address (istio
        pilot/pkg/networking/core/httproute.go, getVirtualHostsForSniffedServicePort). A request
        with an unknown Host goes to the called address in plain text (buildCatchAllVirtualHost).
        """
        return bool(_HTTP.fullmatch(self.app_protocol or self.name))

    def resolve_ports(self, named: Iterable[tuple[str, int]]) -> set[int]:
        """Return the ports at which a pod with these named ports serves it."""
        target = self.target_port or self.port
        if isinstance(target, int):
            return {target}
        return {number for name, number in named if name == target}


class _ServiceSpec(_Partial, frozen=True):
    type: str = "ClusterIP"
    selector: dict[str, str] = {}
    ports: list[ServicePort] = []
    external_ips: list[str] = msgspec.field(name="externalIPs", default_factory=list[str])


class Service(_Partial, frozen=True):
    """A Service."""

    metadata: _Metadata
    spec: _ServiceSpec = _ServiceSpec()

    @property
    def name(self) -> str:  # noqa: D102
        return self.metadata.name

    @property
    def selector(self) -> Labels:
        """The labels that select its pods; empty: it does not select pods."""
        is_alias = self.spec.type == "ExternalName"
        return frozenset() if is_alias else frozenset(self.spec.selector.items())

    @property
    def ports(self) -> list[ServicePort]:
        """The TCP ports that its application opened."""
        listed = self.spec.ports
        return [each for each in listed if each.protocol == "TCP" and each.name != _PLACEHOLDER]

    @property
    def kind(self) -> str:
        """Its type, or `externalIPs` for a ClusterIP Service with external IPs."""
        is_internal = self.spec.type == "ClusterIP"
        return "externalIPs" if is_internal and self.spec.external_ips else self.spec.type

    @property
    def is_reachable_from_outside(self) -> bool:
        """Whether it is reachable from outside of the cluster."""
        return self.kind in ("NodePort", "LoadBalancer", "externalIPs")

    @property
    def application(self) -> str:
        """The Juju application that created it; empty: unknown."""
        labels = self.metadata.labels
        return labels.get(names.CREATED_BY) or labels.get(names.NAME, "")

    @property
    def waypoint(self) -> tuple[str, str] | None:
        """Namespace and name of its waypoint in ambient mode."""
        name = read_waypoint(self.metadata.labels)
        space = self.metadata.labels.get(names.USE_WAYPOINT_NAMESPACE) or self.metadata.namespace
        return (space, name) if name else None

    def belongs_to(self, application: str) -> bool:
        """Tell whether it belongs to an application, by its name, its creator or its selector."""
        return application in (self.name, self.application, self.spec.selector.get(names.NAME))


class ContainerPort(_Partial, frozen=True):
    """A port that a container declares."""

    container_port: PortNumber
    name: str = ""


class _HttpGet(_Partial, frozen=True):
    port: int | str
    path: str = ""
    host: str = ""


class _Grpc(_Partial, frozen=True):
    port: int


class _Handler(_Partial, frozen=True):
    http_get: _HttpGet | None = None
    grpc: _Grpc | None = None


class _Lifecycle(_Partial, frozen=True):
    post_start: _Handler = _Handler()
    pre_stop: _Handler = _Handler()


@dataclasses.dataclass(frozen=True)
class Probe:
    """A kubelet request to the pod's own port, not through pilot-agent."""

    port: int
    path: str
    method: str = "GET"


class _Variable(_Partial, frozen=True):
    name: str
    value: str = ""


class _Container(_Partial, frozen=True):
    name: str
    image: str = ""
    args: list[str] = []
    env: list[_Variable] = []
    restart_policy: str = ""
    ports: list[ContainerPort] = []
    liveness_probe: _Handler = _Handler()
    readiness_probe: _Handler = _Handler()
    startup_probe: _Handler = _Handler()
    lifecycle: _Lifecycle = _Lifecycle()

    @property
    def probes(self) -> Iterator[Probe]:
        """The kubelet's requests that the injector has not redirected to pilot-agent.

        TCP probes are left out: a connection to the proxy succeeds under any policy.
        """
        named = {each.name: each.container_port for each in self.ports}
        probed = (self.liveness_probe, self.readiness_probe, self.startup_probe)
        for handler in (*probed, self.lifecycle.post_start, self.lifecycle.pre_stop):
            if handler.grpc and handler.grpc.port not in AGENT_PORTS:
                yield Probe(handler.grpc.port, _HEALTH, "POST")
            if (get := handler.http_get) and not get.host:
                port = named.get(get.port) if isinstance(get.port, str) else get.port
                path = "/" + get.path.partition("?")[0].removeprefix("/")
                if pods.is_port(port) and not (
                    path.startswith(_AGENT_PATHS) or port in AGENT_PORTS
                ):
                    yield Probe(port, path)


class _PodSpec(_Partial, frozen=True):
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    service_account_name: str = "default"
    host_network: bool = False
    os: dict[str, Any] = {}
    node_selector: dict[str, str] = {}
    affinity: dict[str, Any] = {}

    @property
    def may_run_on_linux(self) -> bool:
        """Whether a pod can run where Istio has sidecars."""
        kind = "requiredDuringSchedulingIgnoredDuringExecution"
        required = cluster.at(self.affinity, "nodeAffinity", kind)
        terms = [
            [
                selectors.Requirement(
                    str(one.get("key")), str(one.get("operator")), (*cluster.items(one, "values"),)
                )
                for one in cluster.parts(each, "matchExpressions")
            ]
            for each in cluster.parts(required, "nodeSelectorTerms")
        ]
        name = str(self.os.get("name", ""))
        return selectors.may_run_on_linux(name, self.node_selector, terms)


class _Condition(_Partial, frozen=True):
    type: str
    status: str


class _PodStatus(_Partial, frozen=True):
    phase: str = ""
    conditions: list[_Condition] = []


class Pod(_Partial, frozen=True):
    """A pod or a pod template."""

    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def reference(self) -> str:
        """Kind, namespace and name, for messages."""
        return f"Pod {self.metadata.namespace}/{self.metadata.name}"

    @property
    def labels(self) -> Labels:  # noqa: D102
        return frozenset(self.metadata.labels.items())

    @property
    def workload_labels(self) -> Labels:
        """The labels that all pods of its workload share, before and after injection."""
        return frozenset(
            (key, value)
            for key, value in self.metadata.labels.items()
            if key not in names.OF_ONE_POD and names.OF_ISTIO not in key
        )

    @property
    def display_name(self) -> str:
        """The name of its application, or its own name."""
        return self.metadata.labels.get(names.NAME) or self.metadata.name

    @property
    def is_in_mesh(self) -> bool:
        """Whether its connections go through its own proxy or its node's."""
        # The injector has not filled in a proxy with the image `auto` yet.
        return self.metadata.annotations.get(names.AMBIENT_REDIRECTION) == "enabled" or any(
            each.name == names.PROXY and each.image != names.AUTO_IMAGE
            for each in (*self.spec.containers, *self.spec.init_containers)
        )

    @property
    def is_router(self) -> bool:
        """Whether its proxy, or that of the next pod, is a gateway to other pods."""
        templates = self.metadata.annotations.get(names.TEMPLATES, "").split(",")
        return "gateway" in templates or any(
            each.name == names.PROXY and "router" in each.args for each in self.spec.containers
        )

    @property
    def controller(self) -> str:
        """The name of its workload, such as its Deployment; without a controller its own name."""
        metadata, template = self.metadata, self.metadata.labels.get("pod-template-hash")
        owners = (each.name for each in metadata.owner_references if each.controller)
        return next((each.removesuffix(f"-{template}") for each in owners), metadata.name)

    @property
    def is_ready(self) -> bool:  # noqa: D102
        return _Condition("Ready", "True") in self.status.conditions

    @property
    def has_ended(self) -> bool:  # noqa: D102
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def containers(self) -> list[_Container]:
        """The containers that run as long as the pod, without the proxy."""
        beside = (each for each in self.spec.init_containers if each.restart_policy == "Always")
        return [each for each in (*self.spec.containers, *beside) if each.name != names.PROXY]

    @property
    def ports(self) -> NamedPorts:
        """The ports that its containers declare."""
        listed = (port for each in self.containers for port in each.ports)
        return frozenset((port.name, port.container_port) for port in listed)

    @property
    def probes(self) -> list[Probe]:
        """The probes of its containers, without duplicates."""
        return list(dict.fromkeys(probe for each in self.containers for probe in each.probes))


class _LabelSelector(_Partial, frozen=True):
    match_labels: dict[str, str] = {}


class _ControllerSpec(_Partial, frozen=True):
    selector: _LabelSelector = _LabelSelector()
    template: Pod = Pod()


class PodController(_Partial, frozen=True):
    """A Deployment, a StatefulSet or a DaemonSet."""

    metadata: _Metadata
    spec: _ControllerSpec

    @property
    def name(self) -> str:  # noqa: D102
        return self.metadata.name

    @property
    def selector(self) -> Labels:
        """The labels that select its pods."""
        return frozenset(self.spec.selector.match_labels.items())


@dataclasses.dataclass(frozen=True, order=True)
class Call:
    """A port of a Service that API servers call."""

    caller: str
    """The object that configures the call, such as `ValidatingWebhookConfiguration katib`."""
    service: str
    port: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """The model's objects."""

    name: str
    """The name of the model and of its namespace."""
    services: Sequence[Service] = ()
    pods: Sequence[Pod] = ()
    workloads: Sequence[PodController] = ()
    """Controllers of pods, including those without a pod at the moment."""

    @functools.cached_property
    def pods_to_come(self) -> Sequence[Pod]:
        """The pods, and the templates of the workloads' next pods."""
        return [*self.pods, *(each.spec.template for each in self.workloads)]

    def find_service(self, name: str) -> Service | None:
        """Find a Service that selects pods."""
        found = (each for each in self.services if each.name == name and each.selector)
        return next(found, None)

    def find_pod_ports(
        self, service: Service, wanted: Collection[int] = ()
    ) -> tuple[list[int], str]:
        """Return the pods' ports of a Service, and a message about unknown ports."""
        known = {each.port: each for each in service.ports}
        named = {port for pod in self._select_pods(service.selector) for port in pod.ports}
        missing: list[int] = []
        found: set[int] = set()
        for number in wanted or known:
            numbers = known[number].resolve_ports(named) if number in known else set[int]()
            if not numbers:
                missing.append(number)
            found |= numbers
        if missing or not found:
            shown = ", ".join(map(str, missing)) or "any"
            return sorted(found), f"waiting for port {shown} of Service {service.name}"
        return sorted(found), ""

    def find_overlapping(self, key: Labels, others: Iterable[Labels]) -> Iterator[Labels]:
        """Find the selectors in `others` that share a pod with `key`, or may share one."""
        own = self._find_indexes(key)
        for other in others:
            theirs = self._find_indexes(other)
            # The pods of a narrower selector are also the wider one's.
            if own & theirs if own and theirs else key <= other or other <= key:
                yield other

    def is_service_of(self, service: Service, application: str) -> bool:
        """Tell whether a Service belongs to an application and selects only its pods."""
        return service.belongs_to(application) and all(
            pod.metadata.labels.get(names.NAME) in (None, application)
            or pod.metadata.labels.get(names.CREATED_BY) == application
            for pod in self._select_pods(service.selector)
        )

    def find_workload(self, pod: Pod) -> tuple[Labels, str]:
        """Return a pod's narrowest workload selector, and the workload's name.

        Without a workload, these are the pod's own labels and name.
        """
        selecting = [each for each in self.workloads if each.selector]
        found = [each for each in selecting if each.selector <= pod.labels]
        if not found:
            return pod.workload_labels, pod.metadata.name
        nearest = max(found, key=lambda each: (len(each.selector), sorted(each.selector)))
        return nearest.selector, nearest.name

    def list_callers(self, application: str) -> Iterator[Pod]:
        """List pods that may call mesh members: not Juju's modeloperator or this charm's."""
        for pod in self.pods:
            labels = pod.metadata.labels
            # The owner's label is also on pods of the model's own gateway.
            if not (names.is_machinery(labels, application) or names.OWNER in labels):
                yield pod

    def _select_pods(self, by: Labels) -> list[Pod]:
        return [self.pods_to_come[number] for number in sorted(self._find_indexes(by))]

    @functools.cached_property
    def _find_indexes(self) -> Callable[[Labels], frozenset[int]]:
        """Finds the indexes of a selector's pods, cached by selector."""
        labels = [pod.labels for pod in self.pods_to_come]

        @functools.cache
        def found(by: Labels) -> frozenset[int]:
            return frozenset(number for number, own in enumerate(labels) if by and by <= own)

        return found


def read_waypoint(labels: Mapping[str, str]) -> str:
    """Return the name of the waypoint of a Service or namespace with such labels; empty: none."""
    name = labels.get(names.USE_WAYPOINT, "")
    return "" if name == "none" else name


def list_pods(api: cluster.Cluster, namespace: str) -> list[Pod]:
    """Read the pods of a namespace that have not ended, which neither call nor are called."""
    return [pod for pod in api.decode(api.list(cluster.POD, namespace), Pod) if not pod.has_ended]


def list_calls(objects: Iterable[cluster.Object], *, model: str) -> list[Call]:
    """List the ports of the model's Services that API servers call."""

    def read_calls(obj: cluster.Object) -> Iterable[Call]:
        for service in _read_services(obj):
            port = service.get("port") or _HTTPS
            if service.get("namespace") == model and pods.is_port(port):
                yield Call(cluster.reference(obj), str(service.get("name")), port)

    return sorted(set(cluster.read_each(objects, read_calls)))


def _read_services(obj: cluster.Object) -> Iterable[cluster.Object]:
    """Find the Service references of an object that makes API servers call Services."""
    for hook in cluster.parts(obj, "webhooks"):
        yield cluster.at(hook, "clientConfig", "service")
    spec = cluster.at(obj, "spec")
    if obj.get("kind") == cluster.API_SERVICE.name:
        yield cluster.at(spec, "service")
    conversion = cluster.at(spec, "conversion")
    if conversion.get("strategy") == "Webhook":
        yield cluster.at(conversion, "webhook", "clientConfig", "service")
