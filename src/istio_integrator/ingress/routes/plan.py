"""The routes of the model, in the order in which the gateway selects one.

It is the order of the Gateway API (HTTPRouteRule): the exact path, the longer prefix, the older
relation.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from istio_integrator.relations import kubeflow

_MOST_PROBLEMS = 4
"""Problems of one relation in the log, of which each line is a process."""
MOST_OF_ONE = 128 * 1024
"""Characters of what one relation may have in the VirtualService, for some hundred routes."""
MOST_OF_ALL = 1_000_000
"""Characters of all; the API server takes no object of more than 1.5 MB."""


class PathMatch(enum.IntEnum):
    """How a route matches paths, in the order of precedence."""

    EXACT = 0
    PREFIX = 1
    ALL = 2
    """Every request. Istio looks at it last, after the routes of others too (SortVHostRoutes)."""


class Uri(NamedTuple):
    """A match of a path in a VirtualService."""

    how: Literal["exact", "prefix"]
    value: str


class VirtualServiceEntry(NamedTuple):
    """One entry of `spec.http`: matches of a route that have the path changed alike."""

    uris: tuple[Uri, ...]
    path: str = ""
    """What replaces what matched; empty: nothing does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Route:
    """One way to a Service."""

    request: kubeflow.Received[Any] = dataclasses.field(repr=False)
    """The message that asks for it."""
    place: int = 0
    """Among the routes of the same relation."""
    title: str = ""
    kind: PathMatch
    path: str
    rewrite: str = ""
    is_parted: bool = False
    """Whether a prefix matches whole parts of a path only: `/a` does not match `/ab`."""
    service: str
    """In the model."""
    port: int
    is_grpc: bool = False

    @property
    def entries(self) -> list[VirtualServiceEntry]:
        """Its entries in a VirtualService, of which the first that matches serves a request."""
        exact, below = Uri("exact", self.path), Uri("prefix", f"{self.path.rstrip('/')}/")
        if self.kind is PathMatch.EXACT:
            return [VirtualServiceEntry((exact,), self.rewrite)]
        if not self.is_parted:
            whole = VirtualServiceEntry((Uri("prefix", self.path),), self.rewrite)
            # Of /volumes/x, replacing /volumes by / alone would leave //x.
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
        """What only one application can have; slashes at the end of a prefix do not count."""
        is_exact = self.kind is PathMatch.EXACT
        return is_exact, self.path if is_exact else self.path.rstrip("/")

    @property
    def precedence(self) -> tuple[object, ...]:
        """What routes are sorted by, so that the first that matches serves a request."""
        # A slash at the end does not make a prefix longer: `/foo/` is below `/foo` all the same.
        length = -len(self.path.rstrip("/"))
        return self.kind, length, -len(self.path), self.request.relation, self.place

    @property
    def size(self) -> int:
        """Characters of it in the VirtualService, or more."""
        return len(repr((self, self.request.reference, self.entries))) * len(self.entries)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requested:
    """What one relation asks for, as far as it can be served."""

    source: str
    routes: Sequence[Route] = ()
    problems: Sequence[str] = ()
    """What it asks for that can't be served, and why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoutePlan:
    """What is served, in its order, and what is not."""

    routes: tuple[Route, ...] = ()
    problems: tuple[str, ...] = ()


def plan(requested: Iterable[Requested]) -> RoutePlan:
    """Decide which routes are served; of several that match the same, the first has it."""
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
