"""Which ports have to stay open to plain text under strict mutual TLS, and who is cut off; pure.

A caller without a certificate of the mesh reaches a proxy only where the port is PERMISSIVE.
Connections that never come to the proxy need nothing: those to ports that it leaves alone, and a
port-forward, which begins within the pod.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence

from istio_integrator.config import config
from istio_integrator.istio.peer_authentication import PeerAuthentication
from istio_integrator.messages import Message, Said
from istio_integrator.mtls.members import Member, PlainClients
from istio_integrator.situation.model import Call, Labels, Service, ServicePort

OPTION = "mtls-exceptions"
MOST_RULES = 50
"""Rules of tenants that are told of, however many they write."""


@dataclasses.dataclass(frozen=True)
class PlainPort:
    """A port that has to stay open to plain text, and for whom."""

    workload: str
    """Its name, which a Deployment and a StatefulSet may share."""
    port: int
    caller: str
    selector: Labels = frozenset()
    """What chooses its pods."""


@dataclasses.dataclass(frozen=True)
class Opened:
    """The ports of a workload that are open to plain text."""

    workload: str
    selector: Labels
    ports: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Exceptions:
    """What is there in the model, and what follows from it."""

    members: Sequence[Member]
    services: Collection[Service] = ()
    calls: Collection[Call] = ()
    plain_clients: Collection[PlainClients] = ()
    plain_tenants: Sequence[PlainClients] = ()
    """By rules of tenants' namespaces, which hold for clients there alone (istio
    pilot/pkg/model/push_context.go, destinationRule): they decide nothing about the model."""
    named: Sequence[config.PlainTextPort] = ()
    """The option `mtls-exceptions`."""
    standing: Sequence[PeerAuthentication] = ()
    """The exceptions that are there."""
    application: str = ""
    """Whose option it is."""

    @functools.cached_property
    def needs(self) -> Sequence[PlainPort]:
        """The ports that have to stay open, the same one for each of its callers."""
        found = {
            PlainPort(member.workload, port, caller, member.selector)
            for caller, member, port in self._asked()
            # A proxy that does not get a connection can't refuse it.
            if member.intercepts(port)
        }
        return sorted(
            found, key=lambda one: (one.workload, one.port, one.caller, sorted(one.selector))
        )

    @functools.cached_property
    def opened(self) -> Sequence[Opened]:
        """Which ports of which workloads are to be open.

        istiod goes by the oldest policy for a pod alone. Where two workloads' labels choose the
        same pod, each policy therefore has the ports of both.
        """
        ports: dict[Labels, set[int]] = {}
        workloads: dict[Labels, str] = {}
        for need in self.needs:
            if need.selector:
                ports.setdefault(need.selector, set()).add(need.port)
                workloads.setdefault(need.selector, need.workload)
        choosing = {
            frozenset(selector for selector in ports if selector <= labels)
            for labels in {member.labels for member in self.members}
        }
        shared = [group for group in choosing if len(group) > 1]
        # A port may have to go from workload to workload, each time over a pod of both.
        for _ in shared:
            for group in shared:
                union = set[int]().union(*(ports[each] for each in group))
                ports.update((each, union) for each in group)
        found = [Opened(workloads[each], each, frozenset(ports[each])) for each in ports]
        return sorted(found, key=lambda each: (each.workload, sorted(each.selector)))

    @property
    def unmatched(self) -> list[config.PlainTextPort]:
        """What the option names and nothing in the model is, or has a known port for."""
        return [named for named in self.named if not self._of_option(named)]

    @property
    def victims(self) -> list[Message]:
        """Who is known to be cut off and has nothing that keeps the port open."""
        unlabelled = (
            Said.PODS_WITHOUT_LABELS(caller=each.caller, workload=each.workload, port=each.port)
            for each in self.needs
            if not each.selector
        )
        passing = (
            Said.SERVICE_PASSES_GATEWAY(
                service=service.name,
                kind=service.kind,
                port=f"{service.name}:{port.port}",
                application=self.application,
            )
            for service, port in self.closed
            if service.leads_in
        )
        return _unique([*unlabelled, *passing, *self._by_rules(self.plain_clients)])

    @property
    def tenants(self) -> list[Message]:
        """Which tenants cut off themselves, which keeps nobody else from being strict."""
        return _unique(self._by_rules(self.plain_tenants[:MOST_RULES]))

    @functools.cached_property
    def closed(self) -> Sequence[tuple[Service, ServicePort]]:
        """The ports of Services that would be closed to plain text."""
        opened = {(need.selector, need.port) for need in self.needs if need.selector}
        return [
            (service, port)
            for service in self.services
            for port in service.ports
            if any(
                member.intercepts(number) and (member.selector, number) not in opened
                for member, number in self._behind(service, str(port.port))
            )
        ]

    def _asked(self) -> Iterator[tuple[str, Member, int]]:
        for member in self.members:
            yield from (("the kubelet's probes", member, port) for port in member.probed)
            yield from (("Prometheus, by annotation", member, port) for port in member.scraped)
        for named in self.named:
            yield from ((OPTION, *pair) for pair in self._of_option(named))
        for call in self.calls:
            called = (each for each in self.services if each.name == call.service)
            behind = (self._behind(each, str(call.port)) for each in called)
            yield from ((call.caller, *pair) for pairs in behind for pair in pairs)
        # What only pods say, such as that the injector left their probes alone, would else be
        # closed while the only pod of a workload is being replaced.
        for policy in self.standing:
            for member in self.members:
                if member.selector == frozenset(policy.selector.items()):
                    kept = member.foreseen & policy.ports.keys()
                    yield from (("its next pod", member, port) for port in kept)

    def _by_rules(self, rules: Iterable[PlainClients]) -> Iterable[Message]:
        for rule in rules:
            for service, port in self.closed:
                if rule.service in (service.name, "*") and rule.port in (0, port.port):
                    yield Said.CLIENTS_WITHOUT_CERTIFICATE(
                        rule=rule.reference,
                        port=f"{service.name}:{port.port}",
                        application=self.application,
                    )

    def _of_option(self, named: config.PlainTextPort) -> set[tuple[Member, int]]:
        """Find what an entry of the option means.

        A number is a Service's port where there is a Service of that name with it, else a pod's.
        """
        services = [service for service in self.services if service.name == named.name]
        found = {pair for each in services for pair in self._behind(each, named.port)}
        if found and named.port:
            return found
        for member in self.members:
            is_behind = any(one.selector and one.selector <= member.labels for one in services)
            if not is_behind and member.workload != named.name:
                continue
            if named.port.isdecimal():
                found.add((member, int(named.port)))
            else:
                found |= {
                    (member, port) for name, port in member.ports if named.port in ("", name)
                }
        return found

    def _behind(self, service: Service, asked: str) -> Iterable[tuple[Member, int]]:
        """Find the pods of a Service, and their ports for one by number or name, or for all."""
        selector, ports = service.selector, service.ports
        for member in self.members if selector else ():
            for port in ports if selector <= member.labels else ():
                if asked in ("", str(port.port), port.name):
                    yield from ((member, number) for number in sorted(port.at(member.ports)))


def _unique(found: Iterable[Message]) -> list[Message]:
    return [each for _, each in sorted({each.text: each for each in found}.items())]
