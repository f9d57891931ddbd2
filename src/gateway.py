"""The gateway workload that the model's routes go through: which one, where, on what ports."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cluster
import labels

_TEMPLATES_ANNOTATION = "inject.istio.io/templates"
_MANAGED_LABEL = "gateway.networking.k8s.io/gateway-name"
"""Istio itself makes such workloads for the Gateway API; their Gateways are not ours to bind."""

SCOPE_SETTING = "PILOT_SCOPE_GATEWAY_TO_NAMESPACE"


@dataclasses.dataclass(frozen=True)
class Workload:
    """A Deployment or DaemonSet."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    """Of its pods."""
    is_gateway: bool
    ready: bool

    @classmethod
    def of(cls, obj: cluster.Object) -> Workload:
        """Read what matters of an object."""
        metadata = cluster.at(obj, "spec", "template", "metadata")
        pod = cluster.at(obj, "spec", "template", "spec")
        templates = str(cluster.at(metadata, "annotations").get(_TEMPLATES_ANNOTATION, ""))
        status = cluster.at(obj, "status")
        return cls(
            namespace=obj["metadata"]["namespace"],
            name=obj["metadata"]["name"],
            labels=cluster.at(metadata, "labels"),
            is_gateway="gateway" in templates.split(",") or _is_router(pod),
            ready=bool(status.get("readyReplicas") or status.get("numberReady")),
        )

    @property
    def reference(self) -> str:
        """How people name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_ingress(self) -> bool:
        """Whether it looks like the way into the mesh."""
        is_egress = "egress" in self.name or "egress" in self.labels.get("istio", "")
        return self.is_gateway and not is_egress and _MANAGED_LABEL not in self.labels


@dataclasses.dataclass(frozen=True)
class Server:
    """One port of a Gateway, with the hosts that it serves there."""

    port: int
    hosts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """Somebody else's Gateway on the same workload."""

    reference: str
    servers: tuple[Server, ...]

    def hosts_at(self, port: int) -> set[str]:
        """List the hosts that it serves at a port, without the namespaces it takes routes from."""
        return {
            host.rpartition("/")[2].lower()
            for server in self.servers
            if server.port == port
            for host in server.hosts
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The gateway workload to use."""

    namespace: str
    selector: Mapping[str, str]
    service: str
    http_port: int | None
    https_port: int | None
    neighbours: tuple[Neighbour, ...] = ()
    ready: bool = False
    workload: str = ""

    @property
    def reference(self) -> str:
        """How people name it."""
        return f"{self.namespace}/{self.workload or self.service}"

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of the Service, as a Gateway names them."""
        return tuple(port for port in (self.http_port, self.https_port) if port)


@dataclasses.dataclass(frozen=True)
class Missing:
    """There is no gateway yet."""

    message: str


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The operator has to say something."""

    message: str
    target: Target | None = None
    """Where the model is served as long as the operator says nothing, if it was before."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the options say about the gateway."""

    model: str
    name: str
    """Of our Gateway."""
    gateway: str = ""
    """`namespace/name` of a Gateway to copy the selector from."""
    selector: str = ""
    service: str = ""
    """`namespace/name` of the gateway's Service."""
    hosts: tuple[str, ...] = ()
    only_https: bool = False
    """Whether nothing but redirects is served without TLS."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What the cluster has."""

    workloads: Sequence[Workload] = ()
    services: Sequence[cluster.Object] = ()
    gateways: Sequence[cluster.Object] = ()
    scoped: bool = False
    """Whether istiod binds Gateways only to workloads of their own namespace."""


def resolve(wishes: Wishes, found: Found) -> Target | Missing | Refusal:
    """Decide which workload serves the model's routes, or what the operator has to say."""
    chosen = _choose(wishes, found)
    if not isinstance(chosen, _Choice):
        return chosen
    workload = chosen.workload
    if found.scoped and workload.namespace != wishes.model:
        return Refusal(
            f"istiod has {SCOPE_SETTING}, so gateway {workload.reference} does not see this "
            "model: unset it, or set gateway-workload=true"
        )
    services = _services(wishes, found, workload)
    if isinstance(services, Missing | Refusal):
        return services
    service = services[0]
    target = Target(
        namespace=workload.namespace,
        selector=chosen.selector,
        service=service["metadata"]["name"],
        http_port=_port(service, 80, "http"),
        https_port=_port(service, 443, "https"),
        neighbours=_neighbours(wishes, found, workload),
        ready=workload.ready,
        workload=workload.name,
    )
    if not target.ports:
        return Refusal(
            f"Service {target.namespace}/{target.service} has neither an http nor an https port"
        )
    return _checked(wishes, target)


def matches(selector: Mapping[str, str], marks: Mapping[str, str]) -> bool:
    """Tell whether labels have all that a selector wants; an empty one selects nothing."""
    return bool(selector) and selector.items() <= marks.items()


@dataclasses.dataclass(frozen=True)
class _Choice:
    selector: Mapping[str, str]
    workload: Workload


def _choose(wishes: Wishes, found: Found) -> _Choice | Missing | Refusal:
    if wishes.selector:
        return _selected(wishes, found, labels.equality(wishes.selector), "gateway-selector")
    if wishes.gateway:
        for obj in found.gateways:
            if _reference(obj) == wishes.gateway:
                selector = cluster.at(obj, "spec", "selector")
                return _selected(wishes, found, selector, f"gateway={wishes.gateway}")
        return Missing(f"waiting for Gateway {wishes.gateway}")
    candidates = [one for one in found.workloads if one.is_ingress]
    if wishes.service:
        candidates = [
            one
            for one in candidates
            for service in found.services
            if _reference(service) == wishes.service and _serves(service, one)
        ]
    if not candidates:
        return Missing(
            f"waiting for Service {wishes.service} with the pods of an ingress gateway"
            if wishes.service
            else "waiting for an ingress gateway: install one, name it in gateway-selector, or "
            "set gateway-workload=true"
        )
    if len(candidates) > 1:
        names = ", ".join(sorted(one.reference for one in candidates))
        return Refusal(
            f"several ingress gateways ({names}): set gateway-service or gateway-selector"
        )
    return _selected(wishes, found, _selector_of(candidates[0]), "its labels")


def _selected(
    wishes: Wishes, found: Found, selector: Mapping[str, str], why: str
) -> _Choice | Missing | Refusal:
    workloads = [one for one in found.workloads if matches(selector, one.labels)]
    if found.scoped and any(one.namespace == wishes.model for one in workloads):
        workloads = [one for one in workloads if one.namespace == wishes.model]
    if not workloads:
        return Missing(f"waiting for a gateway workload: none matches {why}")
    namespaces = {one.namespace for one in workloads}
    if len(namespaces) > 1:
        names = ", ".join(sorted(one.reference for one in workloads))
        return Refusal(f"{why} matches {names}: set a gateway-selector that matches one")
    return _Choice(selector, max(workloads, key=lambda one: (one.ready, one.name)))


def _selector_of(workload: Workload) -> dict[str, str]:
    for keys in (("istio",), ("app",), ("app.kubernetes.io/name",)):
        if all(key in workload.labels for key in keys):
            return {key: workload.labels[key] for key in keys}
    return dict(workload.labels)


def _services(
    wishes: Wishes, found: Found, workload: Workload
) -> list[cluster.Object] | Missing | Refusal:
    services = [one for one in found.services if _serves(one, workload)]
    if wishes.service:
        services = [one for one in services if _reference(one) == wishes.service]
        if not services:
            return Missing(
                f"waiting for Service {wishes.service} with the pods of {workload.reference}"
            )
    services = [one for one in services if _port(one, 80, "http") or _port(one, 443, "https")]
    if not services:
        return Missing(
            f"waiting for a Service with an http or https port for {workload.reference}"
        )
    if len(services) > 1:
        names = ", ".join(sorted(map(_reference, services)))
        return Refusal(f"several Services for {workload.reference} ({names}): set gateway-service")
    return services


def _serves(service: cluster.Object, workload: Workload) -> bool:
    same_namespace = service["metadata"]["namespace"] == workload.namespace
    return same_namespace and matches(cluster.at(service, "spec", "selector"), workload.labels)


def _port(service: cluster.Object, usual: int, protocol: str) -> int | None:
    """Find the usual port, else one whose name says the protocol as Istio has it."""
    ports: list[Any] = cluster.items(cluster.at(service, "spec"), "ports")
    if any(entry["port"] == usual for entry in ports):
        return usual
    words = {protocol, "http2"} if protocol == "http" else {protocol}
    for entry in ports:
        if str(entry.get("name", "")).partition("-")[0] in words:
            return int(entry["port"])
    return None


def _neighbours(wishes: Wishes, found: Found, workload: Workload) -> tuple[Neighbour, ...]:
    ours = f"{wishes.model}/{wishes.name}"
    return tuple(
        Neighbour(_reference(obj), tuple(_servers(obj)))
        for obj in sorted(found.gateways, key=_reference)
        if _reference(obj) != ours
        and matches(cluster.at(obj, "spec", "selector"), workload.labels)
    )


def _servers(obj: cluster.Object) -> Iterable[Server]:
    for server in cluster.items(cluster.at(obj, "spec"), "servers"):
        yield Server(int(server["port"]["number"]), tuple(map(str, server.get("hosts") or ())))


def _checked(wishes: Wishes, target: Target) -> Target | Refusal:
    if target.neighbours and not wishes.hosts:
        name = target.neighbours[0].reference
        return Refusal(
            f"Gateway {name} is on the same workload {target.reference}: set hosts to the names "
            "that this model is reached by",
            target,
        )
    wildcards = [host for host in wishes.hosts if host.startswith("*")]
    if target.neighbours and wildcards and target.http_port and not wishes.only_https:
        # Routes to a host within the wildcard would be in a virtual host that we can't name.
        return Refusal(
            f"hosts: '{wildcards[0]}' on a shared gateway needs TLS and https-redirect=true, or "
            "name each host",
            target,
        )
    for neighbour in target.neighbours:
        for port in target.ports:
            if taken := neighbour.hosts_at(port) & set(wishes.hosts):
                return Refusal(
                    f"Gateway {neighbour.reference} serves host {min(taken)} too: change hosts"
                )
    return target


def _reference(obj: cluster.Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def look(api: cluster.Cluster, *, istiod_namespace: str, istiod: str) -> Found:
    """Read from the cluster what `resolve` decides by."""
    workloads = [
        Workload.of(obj)
        for kind in (cluster.DEPLOYMENT, cluster.kind("apps/v1", "DaemonSet"))
        for obj in api.list(kind)
    ]
    return Found(
        workloads=workloads,
        services=api.list(cluster.SERVICE),
        gateways=api.list(cluster.kind("networking.istio.io/v1", "Gateway")),
        scoped=is_scoped(api.get(cluster.DEPLOYMENT, istiod, istiod_namespace))
        if istiod_namespace
        else False,
    )


def is_scoped(istiod: cluster.Object | None) -> bool:
    """Tell whether istiod binds Gateways only to workloads of their own namespace."""
    containers: list[Any] = cluster.items(
        cluster.at(istiod, "spec", "template", "spec"), "containers"
    )
    return any(
        entry.get("name") == SCOPE_SETTING and str(entry.get("value", "")).lower() == "true"
        for container in containers
        for entry in container.get("env") or ()
    )


def _is_router(pod: cluster.Object) -> bool:
    return any(
        container.get("name") == "istio-proxy" and "router" in (container.get("args") or ())
        for container in cluster.items(pod, "containers")
    )
