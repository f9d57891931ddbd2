"""At which hosts are the routes of the model and its profiles served, and is somebody asked there?

KServe and Knative have a host for each model, in the namespaces of their users.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import gateway, guards, observed
from istio_integrator.kube import cluster, fences

from . import routes

_MOST_HOSTS = 32
"""Hosts of one route that are looked at; net-istio writes four for each tag, KServe two."""


@registry.check(
    "hosts",
    place=125,
    question="which routes of the model and its profiles, such as KServe's, have no host that the "
    "model's Gateway serves, and which does another Gateway serve without authentication",
    reads="VirtualServices, Gateways",
    symptoms=("404-at-the-gateway",),
)
def hosts(facts: Facts) -> Iterable[Finding]:
    """Look at the hosts of routes."""
    target, guard = facts.gateway, facts.authentication.guard
    if target is None or guard is None:
        return ()
    context = guards.context(
        guard,
        target,
        owner=facts.manifests.owner,
        model=facts.model,
        domain=facts.domain,
        redirects=target.only_https,
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
    asked_endings: tuple[str, ...]
    """What hosts end with at which somebody is asked without TLS whoever serves them."""
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
            asked_endings=() if context.redirects else context.own_endings,
            spared=context.spared,
        )

    def serves(self, names: Iterable[str]) -> bool:
        """Tell whether our Gateway serves one of these hosts."""
        return any(_meet(name, host) for name in names for host in self.hosts)

    def unasked(self, reference: str, namespace: str) -> tuple[_Hosts, ...]:
        """List the hosts at which another Gateway may serve a namespace's routes unasked."""
        own = reference.partition("/")[0]
        plain: set[str] = set()
        secure: set[str] = set()
        for server in self.neighbours[reference].servers:
            if server.port in self.ports and self._spares(reference, server.port):
                for each in server.hosts:
                    place, _, host = each.rpartition("/")
                    if place in ("", "*", namespace) or (place == "." and namespace == own):
                        (secure if server.port == self.secure else plain).add(host.lower())
        asked = self.asked or ()
        return (_Hosts.of(plain, asked, self.asked_endings), _Hosts.of(secure, asked))

    def _spares(self, reference: str, port: int) -> bool:
        """Tell whether anybody may pass unasked at a port of a Gateway."""
        return self.asked is not None or (port == self.secure and reference in self.spared)


@dataclasses.dataclass(frozen=True)
class _Hosts:
    """Hosts of a Gateway, so arranged that many routes are soon compared with many of them."""

    exact: frozenset[str]
    endings: tuple[str, ...]
    """Of those that begin with a wildcard."""
    asked: frozenset[str]
    """Of which somebody is asked all the same."""
    asked_endings: tuple[str, ...] = ()
    """And of those that end so."""

    @classmethod
    def of(
        cls, names: Collection[str], asked: Collection[str], asked_endings: tuple[str, ...] = ()
    ) -> Self:
        """Arrange them."""
        known = frozenset(asked)
        endings = tuple(name[1:] for name in names if name.startswith("*"))
        exact = frozenset(name for name in names if not name.startswith("*"))
        return cls(exact - known, endings, known, asked_endings)

    def meet(self, name: str) -> bool:
        """Tell whether a host of a route, which may begin with a wildcard, is one of them."""
        if name.endswith(self.asked_endings):
            return False
        if not name.startswith("*"):
            return name not in self.asked and (name in self.exact or name.endswith(self.endings))
        wildcards = (f"*{ending}" for ending in self.endings)
        return any(_meet(name, host) for host in itertools.chain(self.exact, wildcards))


def judge(virtual_services: Iterable[cluster.Object], place: Place) -> Iterable[Finding]:
    """Judge whether routes are served, and whether somebody is asked about each.

    Args:
        virtual_services: Of the model, of its profiles, and those bound to our Gateway.
        place: The gateway workload.
    """
    unserved: dict[str, str] = {}
    unasked: dict[str, list[str]] = {}
    # The Gateways of a tenant may have thousands of hosts, and the tenant thousands of routes.
    known: dict[tuple[str, str], tuple[_Hosts, ...]] = {}
    for route in virtual_services:
        with fences.around(cluster.reference(route)):
            name, namespace = observed.reference(route), route["metadata"]["namespace"]
            listed = cluster.items(cluster.at(route, "spec"), "hosts")[:_MOST_HOSTS]
            names = [str(each).lower() for each in listed]
            bound = set(routes.gateways_of(route))
            if place.own in bound and names and not place.serves(names):
                unserved[name] = _outward(names, namespace)
            for reference in bound & place.neighbours.keys():
                key = (reference, namespace)
                if key not in known:
                    known[key] = place.unasked(*key)
                if any(each.meet(given) for each in known[key] for given in names):
                    unasked.setdefault(reference, []).append(name)
    for reference, users in sorted(unasked.items()):
        yield findings.doubtful(
            f"requests to VirtualService {report.listed(users)} are not authenticated: Gateway "
            f"{reference} serves it on the same gateway workload; bind it to {place.own}, or name "
            "its hosts in the option hosts",
            _show(users[0]),
        )
    if unserved:
        first = next(iter(unserved))
        yield findings.doubtful(
            f"Gateway {place.own} serves no host of VirtualService {report.listed(unserved)}: add "
            f"{report.listed(unserved.values())} to the option hosts, or a wildcard for them",
            _show(first),
        )
    if not (unserved or unasked):
        yield findings.fine("every route of the model and its profiles is served behind its guard")


def _outward(names: Sequence[str], namespace: str) -> str:
    """Choose the host that is meant for people outside, among those for pods."""
    inward = (f".{namespace}", ".svc")
    meant = (name for name in names if not name.endswith(inward) and ".svc." not in name)
    return next(meant, names[0])


def _meet(one: str, other: str) -> bool:
    """Tell whether two hosts have a name in common, each of which may begin with a wildcard."""
    if one.startswith("*") and (other.endswith(one[1:]) or one == "*"):
        return True
    return one == other or (other.startswith("*") and one.endswith(other[1:]))


def _show(name: str) -> str:
    namespace, _, name = name.partition("/")
    return f"kubectl -n {namespace} get virtualservice {name} -o yaml"
