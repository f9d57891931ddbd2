"""The routes of the model, in the one order in which a gateway is to look at them.

It is the order of the Gateway API (HTTPRouteRule): the exact path, the longer prefix, the older
relation.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Iterable, Sequence
from typing import Literal

from istio_integrator.ingress import gateway
from istio_integrator.ingress.record import Values
from istio_integrator.kube import owners

FOLDER = "routes"

_MOST_PROBLEMS = 4
"""Of one relation that are told; the others come when these are mended."""
MOST_OF_ONE = 128 * 1024
"""Characters of what one relation may have in the VirtualService, for some hundred routes."""
MOST_OF_ALL = 1_000_000
"""Characters of all; the API server takes no object of more than 1.5 MB."""


class Kind(enum.IntEnum):
    """How a route matches paths, in the order of precedence."""

    EXACT = 0
    PREFIX = 1
    ALL = 2
    """Every request. Istio looks at it last, after the routes of others too (SortVHostRoutes)."""


@dataclasses.dataclass(frozen=True)
class Uri:
    """One match of a path, as a VirtualService has it."""

    how: Literal["exact", "prefix"]
    value: str


@dataclasses.dataclass(frozen=True)
class Backend:
    """A Service, by its name in the cluster."""

    host: str
    port: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of `spec.http`: matches of a route that have the path changed alike."""

    uris: tuple[Uri, ...]
    path: str = ""
    """What replaces what matched; empty: nothing does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Route:
    """One way to a Service."""

    name: str
    """Of its entries in the VirtualService."""
    source: str
    """The relation that asks for it, for people: `ingress:3 kfp-ui`."""
    application: str
    relation: int
    place: int
    """Among the routes of the same relation."""
    title: str = ""
    """How its application calls it."""
    kind: Kind
    path: str
    """What it matches by, as it was asked for."""
    is_parted: bool = False
    """Whether a prefix ends where a part of a path does, as the Gateway API means it."""
    entries: tuple[Entry, ...]
    backends: tuple[Backend, ...] = ()
    is_asked: bool = True
    """Whether authentication comes before it."""
    is_grpc: bool = False

    @property
    def is_root(self) -> bool:
        """Whether it matches every request."""
        return self.kind is Kind.ALL

    @property
    def claims(self) -> frozenset[tuple[object, ...]]:
        """What only one application can have; a prefix has its own path with and without `/`."""
        paths = {self.path}
        if self.is_parted and self.kind is Kind.PREFIX:
            paths = {self.path, f"{self.path}/"}
        return frozenset((self.kind, path) for path in paths)

    @property
    def size(self) -> int:
        """Characters of it in the VirtualService, or more."""
        return len(repr(self)) * len(self.entries)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in routes."""

    name: str
    sources: str
    """The relations that are served, for people."""
    routes: Sequence[Route]
    values: Values
    gateway: str
    hosts: Sequence[str]
    export_to: Sequence[str]

    @classmethod
    def of(
        cls,
        routes: Sequence[Route],
        target: gateway.Target,
        values: Values,
        *,
        model: str,
        application: str,
    ) -> Context:
        """Put routes into the words of the template.

        Args:
            routes: Those that are served.
            target: The gateway workload that is to serve them.
            values: Those that the EnvoyFilter writes.
            model: Where our Gateway is.
            application: Ours.
        """
        return cls(
            name=owners.object_name(application, FOLDER),
            sources=sources(routes),
            routes=in_order(routes),
            values=values,
            gateway=f"{model}/{gateway.NAME}",
            hosts=target.written_hosts,
            export_to=target.seen_from(model),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requested:
    """What one relation asks for, as far as it can be served."""

    source: str
    relation: int
    is_older: bool = False
    """Whether it asks by the older interface."""
    routes: tuple[Route, ...] = ()
    problems: tuple[str, ...] = ()
    """What it asks for that can't be served, and why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What is served, in its order, and what is not."""

    routes: tuple[Route, ...] = ()
    problems: tuple[str, ...] = ()


def plan(requested: Iterable[Requested]) -> Plan:
    """Decide which routes are served, in which order.

    Of several that match the same, the oldest relation has it, but those by the older interface
    are never displaced.
    """
    problems: list[str] = []
    taken: dict[tuple[object, ...], Route] = {}
    served: list[Route] = []
    size = 0
    for one in sorted(requested, key=lambda one: (not one.is_older, one.relation)):
        found, said = _unclaimed(one, taken)
        problems += _few([*one.problems, *said], one.source)
        weight = sum(route.size for route in found)
        if weight > MOST_OF_ONE or size + weight > MOST_OF_ALL:
            problems.append(f"{one.source}: asks for more routes than there is room for")
            continue
        size += weight
        served += found
        taken.update({claim: route for route in found for claim in route.claims})
    return Plan(routes=tuple(in_order(served)), problems=tuple(problems))


def in_order(routes: Iterable[Route]) -> list[Route]:
    """Sort routes so that the first that matches a request is the one to serve it."""
    return sorted(routes, key=_precedence)


def sources(routes: Iterable[Route]) -> str:
    """Name the relations of routes, the oldest first."""
    found = {(route.relation, route.source) for route in routes}
    return ", ".join(source for _, source in sorted(found))


def _unclaimed(
    one: Requested, taken: dict[tuple[object, ...], Route]
) -> tuple[list[Route], list[str]]:
    """Pick the routes of a relation that are not an older one's, each once."""
    found: list[Route] = []
    problems: list[str] = []
    own: collections.Counter[tuple[object, ...]] = collections.Counter()
    for route in one.routes:
        owner = next((taken[claim] for claim in route.claims if claim in taken), None)
        if owner is not None:
            named = f"route {route.title}: " if route.title else "prefix "
            problems.append(f"{one.source}: {named}{route.path} belongs to {owner.application}")
        elif not any(own[claim] for claim in route.claims):
            own.update(route.claims)
            found.append(route)
    return found, problems


def _few(problems: list[str], source: str) -> list[str]:
    """Leave of many problems some: each is a line of the log, which is a process."""
    if len(problems) <= _MOST_PROBLEMS:
        return problems
    more = len(problems) - _MOST_PROBLEMS + 1
    return [*problems[: _MOST_PROBLEMS - 1], f"{source}: {more} more routes can't be served"]


def _precedence(route: Route) -> tuple[object, ...]:
    return (
        route.kind,
        # A slash at the end does not make a prefix longer: `/foo/` is below `/foo` all the same.
        -len(route.path.rstrip("/")),
        -len(route.path),
        route.relation,
        route.place,
    )
