"""At which hosts are the routes of the model and its profiles served, and is somebody asked there?

KServe and Knative have a host for each model, in the namespaces of their users.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self

from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.diagnosis.report import Finding
from istio_integrator.ingress import gateway, guards, observed
from istio_integrator.kube import cluster, fences

from . import routes

_MOST_HOSTS = 256
"""Hosts of one route that are looked at; net-istio writes four, KServe two."""


@registry.check(
    "hosts",
    place=125,
    question="which routes of the model and its profiles, such as KServe's, have no host that our "
    "Gateway serves, and which does another Gateway serve unasked",
    reads="VirtualServices, Gateways",
)
def hosts(facts: Facts) -> Iterable[Finding]:
    """Look at the hosts of routes."""
    target, guard = facts.gateway, facts.authentication.guard
    if target is None or guard is None:
        return ()
    context = guards.context(
        guard, target, owner=facts.manifests.owner, model=facts.model, domain=facts.domain
    )
    found = routes.relevant(
        facts.objects(cluster.VIRTUAL_SERVICE),
        namespaces=(facts.model, *facts.profiles),
        model=facts.model,
    )
    own = f"{facts.model}/{gateway.NAME}"
    return judge(found, Place.of(target, context, own=own)) if found else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """What is served at the gateway workload, and where somebody is asked."""

    own: str
    """Our Gateway, `namespace/name`."""
    hosts: Collection[str]
    """That it serves."""
    neighbours: Mapping[str, observed.Neighbour]
    """Others' Gateways on the workload, by the same."""
    ports: Collection[int]
    """Of the workload's Service; at others nobody comes from outside."""
    secure: int | None
    """The one for HTTPS."""
    asked: Collection[str] | None
    """Hosts at which somebody is asked whoever serves them; None: all."""
    spared: Collection[str]
    """Gateways at whose HTTPS nobody is, even so."""

    @classmethod
    def of(cls, target: gateway.Target, context: guards.Context, *, own: str) -> Self:
        """Read it from the gateway workload and from its guard."""
        return cls(
            own=own,
            hosts=target.written_hosts,
            neighbours={one.reference: one for one in target.neighbours},
            ports=target.ports,
            secure=target.https_port,
            asked=context.own_hosts,
            spared=context.spared,
        )

    def serves(self, names: Iterable[str]) -> bool:
        """Tell whether our Gateway serves one of these hosts."""
        return any(_meet(name, host) for name in names for host in self.hosts)

    def is_unasked(self, reference: str, namespace: str, names: Sequence[str]) -> bool:
        """Tell whether another Gateway serves one of these hosts, and nobody is asked.

        Args:
            reference: That Gateway.
            namespace: Of the route.
            names: Its hosts.
        """
        return any(
            _meet(name, host)
            for server in self.neighbours[reference].servers
            if server.port in self.ports
            for host in _taken(server, reference, namespace)
            for name in names
            if not self._is_asked(reference, server.port, name if "*" in host else host)
        )

    def _is_asked(self, reference: str, port: int, host: str) -> bool:
        if self.asked is not None:
            return host in self.asked
        return not (port == self.secure and reference in self.spared)


def judge(virtual_services: Iterable[cluster.Object], place: Place) -> Iterable[Finding]:
    """Judge whether routes are served, and whether somebody is asked about each.

    Args:
        virtual_services: Of the model, of its profiles, and those bound to our Gateway.
        place: The gateway workload.
    """
    unserved: dict[str, str] = {}
    unasked: dict[str, list[str]] = {}
    for route in virtual_services:
        with fences.around(cluster.reference(route)):
            name, namespace = observed.reference(route), route["metadata"]["namespace"]
            given = cluster.items(cluster.at(route, "spec"), "hosts")[:_MOST_HOSTS]
            names = [str(each).lower() for each in given]
            bound = set(routes.gateways_of(route))
            if place.own in bound and names and not place.serves(names):
                unserved[name] = names[-1]
            for reference in bound & place.neighbours.keys():
                if place.is_unasked(reference, namespace, names):
                    unasked.setdefault(reference, []).append(name)
    for reference, users in sorted(unasked.items()):
        yield report.doubtful(
            f"nobody is asked about VirtualService {report.listed(users)}, which Gateway "
            f"{reference} serves on our workload: bind it to {place.own}, or name its hosts in "
            "the option hosts",
            _show(users[0]),
        )
    if unserved:
        first = next(iter(unserved))
        yield report.doubtful(
            f"Gateway {place.own} serves no host of VirtualService {report.listed(unserved)}: add "
            f"{report.listed(unserved.values())} to the option hosts, or a wildcard for them",
            _show(first),
        )
    if not (unserved or unasked):
        yield report.fine("every route of the model and its profiles is served behind its guard")


def _taken(server: observed.Server, reference: str, namespace: str) -> Iterable[str]:
    """List the hosts of a server at which it takes routes of a namespace."""
    own = reference.partition("/")[0]
    for each in server.hosts:
        place, _, host = each.rpartition("/")
        if place in ("", "*", namespace) or (place == "." and namespace == own):
            yield host.lower()


def _meet(one: str, other: str) -> bool:
    """Tell whether two hosts have a name in common, each of which may begin with a wildcard."""
    if one.startswith("*") and (other.endswith(one[1:]) or one == "*"):
        return True
    return one == other or (other.startswith("*") and one.endswith(other[1:]))


def _show(name: str) -> str:
    namespace, _, name = name.partition("/")
    return f"kubectl -n {namespace} get virtualservice {name} -o yaml"
