"""What of the model is called: Services, ports of pods, and what Kubernetes itself calls.

Objects of others are read into these types, which hold no more of them than is looked at; one that
can't be read costs itself only, and `kube/fences.py` notes it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from integrator_contract import names, pods
from istio_integrator.kube import cluster, fences, snapshot

CALLING = (
    cluster.MUTATING_WEBHOOK,
    cluster.VALIDATING_WEBHOOK,
    cluster.CUSTOM_RESOURCE_DEFINITION,
    cluster.API_SERVICE,
)
"""Kinds whose objects have API servers call Services."""
WORKLOADS = (cluster.DEPLOYMENT, cluster.STATEFUL_SET, cluster.DAEMON_SET)
AGENT_PORTS = frozenset({15020, 15021, 15090})
"""Of the proxy itself; they are never redirected to it (injection-template.yaml of istiod)."""
_HTTPS = 443
"""The port of a webhook or an API that names none."""
_PLACEHOLDER = "placeholder"
"""The one port of a Service that Juju makes for an application which has opened none."""
_AGENT_PATHS = ("/app-health/", "/app-lifecycle/")
"""Where pilot-agent answers what the injector has led there (istio pilot/cmd/pilot-agent)."""
_HTTP = re.compile(r"(http2?|grpc)(-.*)?|kubernetes\.io/(h2c|ws)", re.IGNORECASE)
"""Names and `appProtocol` by which istiod takes a port for HTTP (istio
pkg/config/kube/conversion.go, ConvertProtocol)."""
_HEALTH = "/grpc.health.v1.Health/Check"
"""What the kubelet calls by gRPC."""
Selector = tuple[tuple[str, str], ...]
"""Labels in their order, by which Services and policies choose pods."""
NamedPorts = frozenset[tuple[str, int]]
"""Ports of a pod with their names, which may be empty."""
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class ServicePort:
    """A port of a Service."""

    number: int
    target: int | str
    """Of the pods: a number, or the name that each pod gives it."""
    name: str = ""
    is_http: bool = False
    """Whether a caller's sidecar finds the Service by the Host of the request.

    At a port whose protocol is not declared it goes by the address (istio
    pilot/pkg/networking/core/httproute.go, getVirtualHostsForSniffedServicePort). A Host that it
    does not know goes to the called address in plain text (buildCatchAllVirtualHost).
    """

    def at(self, named: Iterable[tuple[str, int]]) -> set[int]:
        """Find where a pod with these ports listens for it."""
        if isinstance(self.target, int):
            return {self.target}
        return {number for name, number in named if name == self.target}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Service:
    """A Service; one that leads to no pods by their labels has no selector."""

    name: str
    selector: Selector
    ports: tuple[ServicePort, ...] = ()
    kind: str = "ClusterIP"
    """Its type; `externalIPs` where those lead to it."""
    application: str = ""
    """The Juju application that made it, where that is known."""
    waypoint: tuple[str, str] | None = None
    """Namespace and name of the Gateway that it is called through in ambient mode."""

    @property
    def leads_in(self) -> bool:
        """Whether callers from outside of the cluster come by it."""
        return self.kind in ("NodePort", "LoadBalancer", "externalIPs")

    def is_of(self, application: str) -> bool:
        """Tell whether it is an application's: by its name, its maker or the pods it leads to."""
        return application in (self.name, self.application, dict(self.selector).get(names.NAME))


@dataclasses.dataclass(frozen=True)
class Call:
    """A port of a Service that API servers call."""

    caller: str
    """What has them call, such as `ValidatingWebhookConfiguration katib`."""
    service: str
    port: int


@dataclasses.dataclass(frozen=True)
class Probe:
    """A request of the kubelet that comes to the pod's own port, past pilot-agent."""

    port: int
    path: str
    method: str = "GET"


def read_each(
    objects: Iterable[cluster.Object], read: Callable[[cluster.Object], Iterable[_T]]
) -> list[_T]:
    """Read objects, each of which may be none, one or several of what is looked for."""
    found: list[_T] = []
    for obj in objects:
        with fences.around(cluster.reference(obj)):
            found += read(obj)
    return found


def services(objects: Iterable[cluster.Object]) -> list[Service]:
    """Read Services."""
    return read_each(objects, lambda obj: [_service(obj)])


def calls(objects: Iterable[cluster.Object], *, model: str) -> list[Call]:
    """Read whom API servers call in the model."""

    def of(obj: cluster.Object) -> Iterable[Call]:
        for service in _called(obj):
            port = service.get("port") or _HTTPS
            if service.get("namespace") == model and pods.is_port(port):
                yield Call(cluster.reference(obj), str(service.get("name")), port)

    return sorted(
        set(read_each(objects, of)), key=lambda call: (call.caller, call.service, call.port)
    )


def workloads(seen: snapshot.Snapshot, model: str) -> list[cluster.Object]:
    """List what makes pods in the model."""
    return [obj for kind in WORKLOADS for obj in seen.objects(kind, model)]


def containers(pod: cluster.Object) -> list[cluster.Object]:
    """List the containers that run as long as a pod, or the template of one, but the proxy."""
    spec = cluster.at(pod, "spec")
    beside = (
        container
        for container in cluster.parts(spec, "initContainers")
        if container.get("restartPolicy") == "Always"
    )
    running = (*cluster.parts(spec, "containers"), *beside)
    return [container for container in running if container.get("name") != names.PROXY]


def ports(listed: Iterable[cluster.Object]) -> NamedPorts:
    """Read the ports of containers."""
    return frozenset(
        (str(entry.get("name") or ""), entry["containerPort"])
        for container in listed
        for entry in cluster.parts(container, "ports")
        if pods.is_port(entry.get("containerPort"))
    )


def probes(listed: Iterable[cluster.Object]) -> list[Probe]:
    """List the kubelet's requests of containers that the injector has not led to pilot-agent.

    A bare connection succeeds at the proxy whatever its policies say.
    """
    return list(dict.fromkeys(probe for container in listed for probe in _probes(container)))


def labels(obj: cluster.Object) -> dict[str, str]:
    """Read an object's labels."""
    return texts(cluster.at(obj, "metadata", "labels"))


def texts(found: Mapping[str, object]) -> dict[str, str]:
    """Read labels, or what chooses by them."""
    return {key: value for key, value in found.items() if isinstance(value, str)}


def selector(marks: Mapping[str, str]) -> Selector:
    """Put labels in their order."""
    return tuple(sorted(marks.items()))


def _service(obj: cluster.Object) -> Service:
    spec, marks = cluster.at(obj, "spec"), cluster.at(obj, "metadata", "labels")
    kind = str(spec.get("type") or "ClusterIP")
    if kind == "ClusterIP" and cluster.items(spec, "externalIPs"):
        kind = "externalIPs"
    chosen = {} if kind == "ExternalName" else texts(cluster.at(spec, "selector"))
    return Service(
        name=str(obj["metadata"]["name"]),
        selector=selector(chosen),
        ports=tuple(_service_ports(cluster.parts(spec, "ports"))),
        kind=kind,
        application=marks.get(names.CREATED_BY) or marks.get(names.NAME) or "",
        waypoint=_waypoint(obj["metadata"], texts(marks)),
    )


def _waypoint(metadata: cluster.Object, marks: Mapping[str, str]) -> tuple[str, str] | None:
    name = marks.get(names.USE_WAYPOINT, "none")
    space = marks.get(names.USE_WAYPOINT_NAMESPACE) or str(metadata.get("namespace"))
    return None if name in ("", "none") else (space, name)


def _service_ports(entries: Iterable[cluster.Object]) -> Iterable[ServicePort]:
    for entry in entries:
        number, name = entry.get("port"), str(entry.get("name") or "")
        is_opened = entry.get("protocol", "TCP") == "TCP" and name != _PLACEHOLDER
        target: Any = entry.get("targetPort") or number
        if is_opened and pods.is_port(number) and (pods.is_port(target) or type(target) is str):
            declared = str(entry.get("appProtocol") or name)
            yield ServicePort(number, target, name, is_http=bool(_HTTP.fullmatch(declared)))


def _called(obj: cluster.Object) -> Iterable[cluster.Object]:
    """Find the references to Services in an object by which API servers call them."""
    for hook in cluster.parts(obj, "webhooks"):
        yield cluster.at(hook, "clientConfig", "service")
    spec = cluster.at(obj, "spec")
    if obj.get("kind") == cluster.API_SERVICE.name:
        yield cluster.at(spec, "service")
    conversion = cluster.at(spec, "conversion")
    if conversion.get("strategy") == "Webhook":
        yield cluster.at(conversion, "webhook", "clientConfig", "service")


def _probes(container: cluster.Object) -> Iterable[Probe]:
    named = {
        entry.get("name"): entry.get("containerPort")
        for entry in cluster.parts(container, "ports")
    }
    probed = ("livenessProbe", "readinessProbe", "startupProbe")
    handlers = [cluster.at(container, kind) for kind in probed]
    handlers += [cluster.at(container, "lifecycle", kind) for kind in ("postStart", "preStop")]
    for handler in handlers:
        for how in ("httpGet", "grpc"):
            asked = cluster.at(handler, how)
            port = named.get(asked.get("port"), asked.get("port"))
            path = "/" + str(asked.get("path") or "").partition("?")[0].removeprefix("/")
            is_led = path.startswith(_AGENT_PATHS) or port in AGENT_PORTS
            if pods.is_port(port) and not is_led and not asked.get("host"):
                yield Probe(port, path) if how == "httpGet" else Probe(port, _HEALTH, "POST")
