"""Gateways, Services and workloads in the cluster, as far as the ingress looks at them.

Objects of others are read into these types, which hold no more of them than is looked at.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping

from integrator_contract import names, pods
from istio_integrator.kube import cluster
from istio_integrator.mesh import plaintext

SCOPE_SETTING = "PILOT_SCOPE_GATEWAY_TO_NAMESPACE"
"""The environment variable by which istiod binds Gateways only to workloads beside them."""
MOST_SERVERS = 32
"""Servers that count of a Gateway of others: ports are few, and each costs the guard an entry."""
MOST_HOSTS = 256
"""Hosts that count of one such server, so that the guard stays far below etcd's 1.5 MB."""
MOST_LABELS = 8
"""Labels of a selector that is made of a workload's own; fewer select it as well."""
MOST_NEIGHBOURS = 100
"""Gateways of others that count; more than a workload of a platform has."""

MOST_SELECTED = 64
"""Labels of a selector that somebody wrote; nobody needs more."""
_MOST_NAMES = 4
"""Names in one message to people; a status is one line."""

_ADDRESS = re.compile(r"[0-9A-Za-z.:_-]{1,253}")
_MANAGED_LABEL = "gateway.networking.k8s.io/gateway-name"
"""Istio itself makes such workloads for the Gateway API; their Gateways are not ours to bind."""


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
        templates = _text(cluster.at(metadata, "annotations").get(names.TEMPLATES))
        status = cluster.at(obj, "status")
        return cls(
            namespace=_named(obj, "namespace"),
            name=_named(obj, "name"),
            labels=_texts(metadata, "labels"),
            is_gateway="gateway" in templates.split(",")
            or plaintext.is_router(cluster.at(obj, "spec", "template")),
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
class Service:
    """A Service, with the ports that a Gateway can name."""

    namespace: str
    name: str
    selector: Mapping[str, str]
    http_port: int | None = None
    https_port: int | None = None
    address: str = ""
    """Where its load balancer is reached; empty while it has none."""

    @classmethod
    def of(cls, obj: cluster.Object) -> Service:
        """Read what matters of an object."""
        return cls(
            namespace=_named(obj, "namespace"),
            name=_named(obj, "name"),
            selector=_texts(cluster.at(obj, "spec"), "selector"),
            http_port=_port(obj, 80, "http"),
            https_port=_port(obj, 443, "https"),
            address=_address(obj),
        )

    @property
    def reference(self) -> str:
        """How people name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_web(self) -> bool:
        """Whether a Gateway has a port of it to name."""
        return bool(self.http_port or self.https_port)

    def serves(self, workload: Workload) -> bool:
        """Tell whether it leads to a workload's pods."""
        return self.namespace == workload.namespace and matches(self.selector, workload.labels)


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
    created: str = ""
    """As Kubernetes writes it; of two, the older one was there first."""

    @classmethod
    def of(cls, obj: cluster.Object, ours: Collection[str] = ()) -> Neighbour:
        """Read what counts of an object, of many hosts at least those that are ours, too."""
        servers = cluster.parts(cluster.at(obj, "spec"), "servers")[:MOST_SERVERS]
        return cls(
            reference(obj),
            tuple(
                Server(port, _hosts(entry, ours))
                for entry in servers
                if (port := _number(cluster.at(entry, "port").get("number")))
            ),
            _named(obj, "creationTimestamp"),
        )

    def hosts_at(self, port: int) -> set[str]:
        """List the hosts that it serves at a port, without the namespaces it takes routes from."""
        return {
            _bare(host) for server in self.servers if server.port == port for host in server.hosts
        }


def matches(selector: Mapping[str, str], marks: Mapping[str, str]) -> bool:
    """Tell whether labels have all that a selector wants; an empty one selects nothing."""
    return bool(selector) and selector.items() <= marks.items()


def reference(obj: cluster.Object) -> str:
    """Name an object as the options do: `namespace/name`."""
    return f"{_named(obj, 'namespace')}/{_named(obj, 'name')}"


def selector_of(obj: cluster.Object) -> dict[str, str]:
    """Read the labels by which a Gateway selects its workloads; none of too many."""
    found = _texts(cluster.at(obj, "spec"), "selector")
    return found if len(found) <= MOST_SELECTED else {}


def is_scoped(istiod: cluster.Object | None) -> bool:
    """Tell whether istiod binds Gateways only to workloads of their own namespace."""
    return any(
        entry.get("name") == SCOPE_SETTING and _text(entry.get("value")).lower() == "true"
        for container in cluster.parts(
            cluster.at(istiod, "spec", "template", "spec"), "containers"
        )
        for entry in cluster.parts(container, "env")
    )


def _port(service: cluster.Object, usual: int, protocol: str) -> int | None:
    """Find the usual port, else one whose name says the protocol as Istio has it."""
    ports = [
        (number, _text(entry.get("name")))
        for entry in cluster.parts(cluster.at(service, "spec"), "ports")
        if (number := _number(entry.get("port")))
    ]
    if any(number == usual for number, _ in ports):
        return usual
    words = {protocol, "http2"} if protocol == "http" else {protocol}
    return next((number for number, name in ports if name.partition("-")[0] in words), None)


def _address(service: cluster.Object) -> str:
    """Read the first name or address of a load balancer."""
    balancers = cluster.parts(cluster.at(service, "status", "loadBalancer"), "ingress")
    found = (_text(one.get(key)) for one in balancers[:1] for key in ("hostname", "ip"))
    return next((each for each in found if _ADDRESS.fullmatch(each)), "")


def _hosts(server: cluster.Object, ours: Collection[str]) -> tuple[str, ...]:
    hosts = [host for host in cluster.items(server, "hosts") if isinstance(host, str)]
    return tuple(sorted(hosts, key=lambda host: _bare(host) not in ours)[:MOST_HOSTS])


def _bare(host: str) -> str:
    return host.rpartition("/")[2].lower()


def _named(obj: cluster.Object, field: str) -> str:
    return _text(cluster.at(obj, "metadata").get(field))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(obj: cluster.Object, key: str) -> dict[str, str]:
    found = cluster.at(obj, key)
    return {mark: value for mark, value in found.items() if isinstance(value, str)}


def _number(value: object) -> int:
    """Read a port; anything that is none is 0."""
    return value if pods.is_port(value) else 0


def listed(names: Iterable[str]) -> str:
    """Name things for people, not more than they read."""
    found = sorted(set(names))
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more
