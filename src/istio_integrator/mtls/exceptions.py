"""The ports that strict mutual TLS must leave open to plain text, and blocked callers; pure.

A caller without a certificate of the mesh reaches a proxy only at a PERMISSIVE port. Connections
that bypass the proxy need no exception: those to ports that it does not intercept, and a
port-forward, which begins inside of the pod.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence

from istio_integrator.config import config
from istio_integrator.istio.peer_authentication import PeerAuthentication
from istio_integrator.messages import Message, Template
from istio_integrator.mtls.members import Member, PlainClients
from istio_integrator.situation.model import Call, Labels, Service, ServicePort

OPTION = "mtls-exceptions"
MOST_RULES = 50
"""Rules of tenants that a report names at most."""


@dataclasses.dataclass(frozen=True)
class PlainPort:
    """A port that has to stay open to plain text for a caller."""

    workload: str
    """The workload's name, which a Deployment and a StatefulSet may share."""
    port: int
    caller: str
    selector: Labels = frozenset()
    """The selector of its pods."""


@dataclasses.dataclass(frozen=True)
class PortException:
    """The ports of a workload that are open to plain text."""

    workload: str
    selector: Labels
    ports: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Exceptions:
    """The input of the decision, and the ports that have to stay open."""

    members: Sequence[Member]
    services: Collection[Service] = ()
    calls: Collection[Call] = ()
    plain_clients: Collection[PlainClients] = ()
    plain_elsewhere: Sequence[PlainClients] = ()
    """Clients that do not delay strict mode: by a DestinationRule of a tenant, which applies only
    to clients in its namespace (istio pilot/pkg/model/push_context.go, destinationRule), or by a
    Sidecar outside of the model, whose pods may call no Service that it hides."""
    named: Sequence[config.PlainTextPort] = ()
    """The option `mtls-exceptions`."""
    standing: Sequence[PeerAuthentication] = ()
    """The exceptions that exist now."""
    application: str = ""
    """The application that has the option."""

    @functools.cached_property
    def needs(self) -> Sequence[PlainPort]:
        """The ports that have to stay open, with an entry for each caller of a port."""
        found = {
            PlainPort(member.workload, port, caller, member.selector)
            for caller, member, port in self._list_needs()
            # A proxy can't reject a connection that bypasses it.
            if member.intercepts(port)
        }
        return sorted(
            found, key=lambda one: (one.workload, one.port, one.caller, sorted(one.selector))
        )

    @functools.cached_property
    def opened(self) -> Sequence[PortException]:
        """The ports to open, by workload.

        istiod applies only the oldest policy of a pod. If the selectors of two workloads match
        the same pod, each policy therefore has the ports of both.
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
        # Repeat, as a port may spread over a chain of workloads that share pods.
        for _ in shared:
            for group in shared:
                union = set[int]().union(*(ports[each] for each in group))
                ports.update((each, union) for each in group)
        found = [PortException(workloads[each], each, frozenset(ports[each])) for each in ports]
        return sorted(found, key=lambda each: (each.workload, sorted(each.selector)))

    @property
    def unmatched(self) -> list[config.PlainTextPort]:
        """The entries of the option that match no port in the model."""
        return [named for named in self.named if not self._list_option_needs(named)]

    @property
    def victims(self) -> list[Message]:
        """The callers that are known to be blocked, without an exception for their port."""
        unlabelled = (
            Template.PODS_WITHOUT_LABELS(
                caller=each.caller, workload=each.workload, port=each.port
            )
            for each in self.needs
            if not each.selector
        )
        passing = (
            Template.SERVICE_PASSES_GATEWAY(
                service=service.name,
                kind=service.kind,
                port=f"{service.name}:{port.port}",
                application=self.application,
            )
            for service, port in self.closed
            if service.is_reachable_from_outside
        )
        return _drop_duplicates([*unlabelled, *passing, *self._report_clients(self.plain_clients)])

    @property
    def elsewhere(self) -> list[Message]:
        """The objects elsewhere that block their clients, which does not delay strict mode."""
        return _drop_duplicates(self._report_clients(self.plain_elsewhere[:MOST_RULES]))

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
                for member, number in self._find_backends(service, str(port.port))
            )
        ]

    def _list_needs(self) -> Iterator[tuple[str, Member, int]]:
        for member in self.members:
            yield from (("the kubelet's probes", member, port) for port in member.probed)
            yield from (("Prometheus, by annotation", member, port) for port in member.scraped)
        for named in self.named:
            yield from ((OPTION, *pair) for pair in self._list_option_needs(named))
        services = {service.name: service for service in self.services}
        for call in self.calls:
            if service := services.get(call.service):
                behind = self._find_backends(service, str(call.port))
                yield from ((call.caller, *pair) for pair in behind)
        # Some ports are known only from a running pod, such as probes that the injector did not
        # rewrite. Keep them open while the only pod of a workload is being replaced.
        for policy in self.standing:
            for member in self.members:
                if member.selector == frozenset(policy.selector.items()):
                    kept = member.foreseen & policy.ports.keys()
                    yield from (("its next pod", member, port) for port in kept)

    def _report_clients(self, rules: Iterable[PlainClients]) -> Iterable[Message]:
        for rule in rules:
            for service, port in self.closed:
                if rule.service in (service.name, "*") and rule.port in (0, port.port):
                    said = Template.CLIENTS_WITHOUT_CERTIFICATE
                    if rule.is_hidden:
                        said = Template.SERVICE_HIDDEN
                    yield said(
                        rule=rule.reference,
                        port=f"{service.name}:{port.port}",
                        application=self.application,
                    )

    def _list_option_needs(self, named: config.PlainTextPort) -> set[tuple[Member, int]]:
        """Find the ports that an entry of the option means.

        A number is a port of the Service with that name if it has the port, else a pod's port.
        """
        services = [service for service in self.services if service.name == named.name]
        found = {pair for each in services for pair in self._find_backends(each, named.port)}
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

    def _find_backends(self, service: Service, asked: str) -> Iterable[tuple[Member, int]]:
        """Find the pods of a Service and their ports behind one Service port, or behind all.

        `asked` is the port's number or name; empty: all ports.
        """
        selector, ports = service.selector, service.ports
        for member in self.members if selector else ():
            for port in ports if selector <= member.labels else ():
                if asked in ("", str(port.port), port.name):
                    yield from (
                        (member, number) for number in sorted(port.resolve_ports(member.ports))
                    )


def _drop_duplicates(found: Iterable[Message]) -> list[Message]:
    return [each for _, each in sorted({each.text: each for each in found}.items())]
