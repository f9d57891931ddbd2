"""The routes of the model, in their order of precedence.

It is the order of the Gateway API (HTTPRouteRule): exact paths, then longer prefixes, then older
relations.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from istio_integrator.relations import kubeflow

_MOST_PROBLEMS = 4
"""Problems of one relation in the log, where each line takes a process."""
MOST_OF_ONE = 128 * 1024
"""Characters of one relation's routes in the VirtualService, for some hundred routes."""
MOST_OF_ALL = 1_000_000
"""Characters of all routes; the API server rejects objects of more than 1.5 MB."""


class PathMatch(enum.IntEnum):
    """How a route matches paths, in the order of precedence."""

    EXACT = 0
    PREFIX = 1
    ALL = 2
    """Every request. Istio sorts it last, also behind other teams' routes (SortVHostRoutes)."""


class Uri(NamedTuple):
    """A path match of a VirtualService."""

    how: Literal["exact", "prefix"]
    value: str


class VirtualServiceEntry(NamedTuple):
    """One entry of `spec.http`: matches of a route with the same rewrite."""

    uris: tuple[Uri, ...]
    path: str = ""
    """Replaces the matched part of the path; empty: no rewrite."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Route:
    """A route to a Service."""

    request: kubeflow.Received[Any] = dataclasses.field(repr=False)
    """The message that requests it."""
    place: int = 0
    """Its position among the routes of the same relation."""
    title: str = ""
    kind: PathMatch
    path: str
    rewrite: str = ""
    is_parted: bool = False
    """Whether a prefix matches only whole path segments: `/a` does not match `/ab`."""
    service: str
    """A Service of the model."""
    port: int
    is_grpc: bool = False

    @property
    def entries(self) -> list[VirtualServiceEntry]:
        """Its entries in a VirtualService; the first match serves a request."""
        exact, below = Uri("exact", self.path), Uri("prefix", f"{self.path.rstrip('/')}/")
        if self.kind is PathMatch.EXACT:
            return [VirtualServiceEntry((exact,), self.rewrite)]
        if not self.is_parted:
            whole = VirtualServiceEntry((Uri("prefix", self.path),), self.rewrite)
            # In /volumes/x, replacing only /volumes by / would result in //x.
            is_doubled = self.rewrite.endswith("/") and not self.path.endswith("/")
            return [VirtualServiceEntry((below,), self.rewrite), whole] if is_doubled else [whole]
        inner = self.rewrite and f"{self.rewrite.rstrip('/')}/"
        if self.kind is PathMatch.ALL:
            return [VirtualServiceEntry((below,), inner)]
        if not self.rewrite:
            return [VirtualServiceEntry((exact, below))]
        return [VirtualServiceEntry((exact,), self.rewrite), VirtualServiceEntry((below,), inner)]

    @property
    def claim(self) -> tuple[bool, str]:
        """The match that only one application can have, without trailing slashes of a prefix."""
        is_exact = self.kind is PathMatch.EXACT
        return is_exact, self.path if is_exact else self.path.rstrip("/")

    @property
    def precedence(self) -> tuple[object, ...]:
        """The sort key of routes; the first route that matches serves a request."""
        # A trailing slash does not make a prefix longer: `/foo/` is a subpath of `/foo`.
        length = -len(self.path.rstrip("/"))
        return self.kind, length, -len(self.path), self.request.relation, self.place

    @property
    def size(self) -> int:
        """An upper bound of its characters in the VirtualService."""
        return len(repr((self, self.request.reference, self.entries))) * len(self.entries)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RouteRequests:
    """The valid route requests of one relation."""

    source: str
    routes: Sequence[Route] = ()
    problems: Sequence[str] = ()
    """Requests that can't be served, with the reason of each."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoutePlan:
    """The routes to serve, in order of precedence, and the problems of the rejected ones."""

    routes: tuple[Route, ...] = ()
    problems: tuple[str, ...] = ()


def plan_routes(requested: Iterable[RouteRequests]) -> RoutePlan:
    """Decide which routes are served; the first of several with the same match wins."""
    problems: list[str] = []
    taken: dict[tuple[bool, str], Route] = {}
    size = 0
    for one in requested:
        said = list(one.problems)
        own: dict[tuple[bool, str], Route] = {}
        for route in one.routes:
            if owner := taken.get(route.claim):
                named = f"route {route.title}:" if route.title else "prefix"
                said.append(f"{named} {route.path} belongs to {owner.request.application}")
            else:
                own.setdefault(route.claim, route)
        if len(said) > _MOST_PROBLEMS:
            more = len(said) - _MOST_PROBLEMS + 1
            said[_MOST_PROBLEMS - 1 :] = [f"{more} more routes can't be served"]
        weight = sum(route.size for route in own.values())
        if weight > MOST_OF_ONE or size + weight > MOST_OF_ALL:
            said.append("asks for more routes than there is room for")
        else:
            size += weight
            taken |= own
        problems += [f"{one.source}: {each}" for each in said]
    served = sorted(taken.values(), key=lambda route: route.precedence)
    return RoutePlan(routes=tuple(served), problems=tuple(problems))
