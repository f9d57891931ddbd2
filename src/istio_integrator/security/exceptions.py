"""Which ports have to stay open to plain text under strict mutual TLS, and who is cut off; pure.

A caller without a certificate of the mesh reaches a proxy only where the port is PERMISSIVE.
Connections that never come to the proxy need nothing: those to ports that it leaves alone, and a
port-forward, which begins within the pod.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from istio_integrator.config import plain_ports
from istio_integrator.security import called
from istio_integrator.security.called import Call, NamedPorts, Service

Labels = frozenset[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Member:
    """A pod in the mesh, or what the next pod of a workload will be."""

    workload: str
    """The name of what it is a pod of."""
    selector: Labels
    """What chooses the workload's pods; empty: nothing does."""
    labels: Labels
    """The pod's, which Services and policies choose by."""
    ports: NamedPorts = frozenset()
    """Those of its containers, by their names, which may be empty."""
    probed: frozenset[int] = frozenset()
    """What the kubelet calls by itself, for the injector did not rewrite it."""
    scraped: frozenset[int] = frozenset()
    """What its annotations have Prometheus call, where the proxy does not serve it itself."""
    foreseen: frozenset[int] = frozenset()
    """Of a pod to come: what the kubelet or Prometheus would call, were it not rewritten."""
    untouched: frozenset[int] = frozenset()
    """Ports that its annotations keep from the proxy."""
    touched: frozenset[int] | None = None
    """The only ports that reach the proxy, where its annotations say so."""

    def intercepts(self, port: int) -> bool:
        """Tell whether the proxy gets the connections to a port."""
        if port in self.untouched or port in called.AGENT_PORTS:
            return False
        return self.touched is None or port in self.touched


@dataclasses.dataclass(frozen=True)
class PlainClients:
    """A DestinationRule by which clients in the mesh call a Service without its certificates."""

    reference: str
    service: str
    """Its name; `*` for all."""
    port: int = 0
    """Of the Service; 0: all."""


@dataclasses.dataclass(frozen=True)
class Scene:
    """What is there in the model."""

    members: Collection[Member]
    services: Collection[Service] = ()
    calls: Collection[Call] = ()
    plain_clients: Collection[PlainClients] = ()
    plain_tenants: Collection[PlainClients] = ()
    """By rules of tenants' namespaces, which hold for clients there alone (istio
    pilot/pkg/model/push_context.go, destinationRule): they decide nothing about the model."""
    named: Sequence[plain_ports.Named] = ()
    """The option `mtls-exceptions`."""


@dataclasses.dataclass(frozen=True)
class Need:
    """A port that has to stay open, and for whom."""

    workload: str
    """Its name, which a Deployment and a StatefulSet may share."""
    port: int
    caller: str
    selector: Labels = frozenset()
    """What chooses its pods."""


@dataclasses.dataclass(frozen=True, order=True)
class Victim:
    """Somebody who is cut off, as far as objects say it."""

    seen: str
    remedy: str


@dataclasses.dataclass(frozen=True)
class Opened:
    """The ports of a workload that are open to plain text."""

    workload: str
    """Its name; empty where only the policy is known."""
    selector: Labels
    ports: frozenset[int]


OPTION = "mtls-exceptions"
MOST_RULES = 50
"""Rules of tenants that are told of, however many they write."""


def how_to_except(application: str, what: str) -> str:
    """Return what to do for a port to stay open."""
    return f"add {what} to juju config {application} {OPTION}"


def needs(scene: Scene) -> list[Need]:
    """List the ports that have to stay open, the same one for each of its callers."""
    found: set[Need] = set()
    services = {service.name: service for service in scene.services}
    for call in scene.calls:
        service = services.get(call.service)
        for member, port in _behind(service, scene.members, str(call.port)) if service else ():
            found.add(_need(member, port, call.caller))
    for member in scene.members:
        found |= {_need(member, port, "the kubelet's probes") for port in member.probed}
        found |= {_need(member, port, "Prometheus, by annotation") for port in member.scraped}
    for named in scene.named:
        found |= {_need(member, port, OPTION) for member, port in _of_option(named, scene)}
    # By port, not by name: a proxy that does not get a connection can't refuse it.
    touched = {
        (member.selector, port)
        for member in scene.members
        for port in {each.port for each in found}
        if member.intercepts(port)
    }
    return sorted(
        (each for each in found if (each.selector, each.port) in touched),
        key=lambda each: (each.workload, each.port, each.caller, sorted(each.selector)),
    )


def unmatched(scene: Scene) -> list[plain_ports.Named]:
    """List what the option names and nothing in the model is, or has a known port for."""
    return [named for named in scene.named if not _of_option(named, scene)]


def opened(needed: Iterable[Need], members: Iterable[Member]) -> list[Opened]:
    """Say which ports of which workloads are to be open.

    istiod goes by the oldest policy for a pod alone. Where two workloads' labels choose the same
    pod, each policy therefore has the ports of both.
    """
    ports: dict[Labels, set[int]] = {}
    workloads: dict[Labels, str] = {}
    for need in needed:
        if need.selector:
            ports.setdefault(need.selector, set()).add(need.port)
            workloads.setdefault(need.selector, need.workload)
    choosing = {
        frozenset(selector for selector in ports if selector <= labels)
        for labels in {member.labels for member in members}
    }
    shared = [group for group in choosing if len(group) > 1]
    # A port may have to go from workload to workload, each time over a pod of both.
    for _ in shared:
        for group in shared:
            union = set[int]().union(*(ports[each] for each in group))
            ports.update((each, union) for each in group)
    found = [Opened(workloads[each], each, frozenset(ports[each])) for each in ports]
    return sorted(found, key=lambda each: (each.workload, sorted(each.selector)))


def kept(standing: Iterable[Opened], members: Iterable[Member]) -> list[Need]:
    """List what stays open of workloads that are there and have no pod just now.

    What only pods say, such as that the injector left their probes alone, would else be closed
    while the only pod of a workload is being replaced.
    """
    return sorted(
        {
            Need(member.workload, port, "its next pod", member.selector)
            for each in standing
            for member in members
            if member.selector == each.selector
            for port in each.ports & member.foreseen
        },
        key=lambda need: (need.workload, need.port),
    )


def victims(scene: Scene, needed: Iterable[Need], *, application: str) -> list[Victim]:
    """List who is known to be cut off and has nothing that keeps the port open."""
    is_open = _open(needed)
    found: set[Victim] = set()
    for need in needed:
        if not need.selector:
            found.add(
                Victim(
                    f"{need.caller} calls {need.workload}:{need.port}, whose pods have no labels "
                    "by which an exception could choose them",
                    f"give the pods of {need.workload} a label",
                )
            )
    for service in scene.services:
        if not service.leads_in:
            continue
        for name in _closed(service, scene.members, is_open):
            found.add(
                Victim(
                    f"Service {service.name} ({service.kind}) leads to {name} past the gateway, "
                    "and whoever comes by it has no certificate",
                    f"make it a ClusterIP, or {how_to_except(application, name)}",
                )
            )
    found |= set(_by_rules(scene.plain_clients, scene, is_open, application))
    return sorted(found)


def tenants(scene: Scene, needed: Iterable[Need], *, application: str) -> list[Victim]:
    """List which tenants cut off themselves, which keeps nobody else from being strict."""
    rules = list(scene.plain_tenants)[:MOST_RULES]
    return sorted(set(_by_rules(rules, scene, _open(needed), application)))


def by_host(scene: Scene, needed: Iterable[Need]) -> list[tuple[str, str]]:
    """List the Services that refuse a call with an unknown Host, each with `NAME:PORT`."""
    is_open = _open(needed)
    return [
        (service.name, name)
        for service in scene.services
        for port in service.ports
        if port.is_http
        for name in _closed(service, scene.members, is_open, port.number)
    ]


def _open(needed: Iterable[Need]) -> set[tuple[Labels, int]]:
    return {(need.selector, need.port) for need in needed if need.selector}


def _by_rules(
    rules: Iterable[PlainClients],
    scene: Scene,
    is_open: Collection[tuple[Labels, int]],
    application: str,
) -> Iterable[Victim]:
    closed: dict[tuple[str, int], list[str]] = {}
    for rule in rules:
        key = rule.service, rule.port
        if key not in closed:
            closed[key] = [
                name
                for each in scene.services
                if rule.service in (each.name, "*")
                for name in _closed(each, scene.members, is_open, rule.port)
            ]
        for name in closed[key]:
            yield Victim(
                f"{rule.reference} has clients call {name} without the mesh's certificates",
                f"take its tls mode out, or {how_to_except(application, name)}",
            )


def _closed(
    service: Service,
    members: Iterable[Member],
    is_open: Collection[tuple[Labels, int]],
    only: int = 0,
) -> list[str]:
    """List the ports of a Service, `NAME:PORT`, that would be closed to plain text."""
    found: dict[str, None] = {}
    for port in service.ports:
        for member, number in _behind(service, members, str(port.number)):
            is_asked = only in (0, port.number)
            if is_asked and member.intercepts(number) and (member.selector, number) not in is_open:
                found[f"{service.name}:{port.number}"] = None
    return list(found)


def _need(member: Member, port: int, caller: str) -> Need:
    return Need(member.workload, port, caller, member.selector)


def _of_option(named: plain_ports.Named, scene: Scene) -> set[tuple[Member, int]]:
    """Find what an entry of the option means.

    A number is a Service's port where there is a Service of that name with it, else a pod's.
    """
    services = [service for service in scene.services if service.name == named.name]
    found = {pair for each in services for pair in _behind(each, scene.members, named.port)}
    if found and named.port:
        return found
    choosing = [frozenset(service.selector) for service in services]
    for member in scene.members:
        is_behind = any(selector and selector <= member.labels for selector in choosing)
        if not is_behind and member.workload != named.name:
            continue
        if named.port.isdecimal():
            found.add((member, int(named.port)))
        else:
            found |= {(member, port) for name, port in member.ports if named.port in ("", name)}
    return found


def _behind(
    service: Service, members: Iterable[Member], asked: str
) -> Iterable[tuple[Member, int]]:
    """Find the pods behind a Service and their ports for one of its own.

    Args:
        service: Chooses the pods.
        members: The pods in the mesh.
        asked: A port of the Service, by number or by name; empty: all.
    """
    if not service.selector:
        return
    for member in members:
        if not member.labels.issuperset(service.selector):
            continue
        for port in service.ports:
            if asked not in ("", str(port.number), port.name):
                continue
            yield from ((member, number) for number in sorted(port.at(member.ports)))
