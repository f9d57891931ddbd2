"""The model's routes as HTTPRoutes of the Gateway API, which sorts them by itself.

A prefix ends there where a part of the path does: `/kfp` is `/kfp` and what is below `/kfp/`, and
not `/kfpx`, and `/kfp/` is the same prefix. A method of gRPC is a path like any other: before 1.30
Istio ignores GRPCRoutes at a hostname that has HTTPRoutes (istio issue 57172).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from istio_integrator.ingress import gateway, routes
from istio_integrator.ingress.record import Values
from istio_integrator.ingress.routes import Kind, Route
from istio_integrator.kube import owners

FOLDER = "http-routes"

_TYPES = {
    Kind.EXACT: "Exact",
    Kind.PREFIX: "PathPrefix",
    Kind.ALL: "PathPrefix",
}
_PATH = re.compile(r"(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})+")
_NEVER = re.compile(r"//|/\.{1,2}(/|$)|%2[fF]")
"""What no path of an HTTPRoute has: the API server would refuse the object (HTTPPathMatch)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """One HTTPRoute with its one rule."""

    name: str
    relation: str
    """`ingress:3 kfp-ui`, for people."""
    rule: str
    """The name of the rule; empty where the EnvoyFilter need not know it."""
    match: Mapping[str, Any]
    filters: Sequence[Mapping[str, Any]]
    backends: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in http-routes."""

    gateway: str
    routes: Sequence[Written]

    @classmethod
    def of(
        cls,
        found: Sequence[Route],
        values: Values,
        *,
        application: str,
        model: str,
        domain: str,
    ) -> Context:
        """Put routes into the words of the templates.

        Args:
            found: Those that an HTTPRoute can have.
            values: Those that the EnvoyFilter writes.
            application: Ours.
            model: Where the routes will be.
            domain: The cluster's, which ends the names of Services.
        """
        suffix = f".{model}.svc.{domain}"
        written = [
            Written(
                name=owners.object_name(application, f"route-{one.relation}-{one.place}"),
                relation=one.source,
                rule="" if one.is_asked else values.free_route,
                match={**_match(one), **_mark(one, values)},
                filters=_filters(one),
                backends=[_backend(each, suffix) for each in one.backends],
            )
            for one in found
        ]
        return cls(gateway=gateway.NAME, routes=written)


def fit(found: Sequence[Route]) -> tuple[list[Route], list[str]]:
    """Pick the routes that HTTPRoutes can have, and say why the others are none.

    Of two that match the same, as the Gateway API means it, the older relation has it.
    """
    served: dict[str, Route] = {}
    problems: list[str] = []
    for route in sorted(found, key=lambda one: (one.relation, one.place)):
        paths = [route.path, *(entry.path for entry in route.entries)]
        if not all(is_path(path) for path in paths if path):
            problems.append(f"{route.source}: no HTTPRoute can have the path {route.path}")
            continue
        claim = json.dumps(_match(route), sort_keys=True)
        if claim in served:
            owner = served[claim].source
            problems.append(f"{route.source}: prefix {route.path} is that of {owner}")
            continue
        served[claim] = route
    return routes.in_order(served.values()), problems


def is_path(path: str) -> bool:
    """Tell whether the API server takes a path of an HTTPRoute."""
    return bool(_PATH.fullmatch(path)) and path.startswith("/") and not _NEVER.search(path)


def _mark(route: Route, values: Values) -> dict[str, Any]:
    value = values.asked if route.is_asked else values.free
    return {"headers": [{"name": values.header, "value": value}]}


def _parts(prefix: str) -> str:
    return prefix.rstrip("/") or "/"


def _match(route: Route) -> dict[str, Any]:
    kind = _TYPES[route.kind]
    path = _parts(route.path) if kind == "PathPrefix" else route.path
    return {"path": {"type": kind, "value": path}}


def _filters(route: Route) -> list[dict[str, Any]]:
    """Say what becomes of the path; the last entry is the one for what is below a prefix."""
    path = route.entries[-1].path
    if not path or (route.kind is not Kind.EXACT and _parts(path) == _parts(route.path)):
        return []
    if route.kind is Kind.EXACT:
        change = {"type": "ReplaceFullPath", "replaceFullPath": path}
    else:
        change = {"type": "ReplacePrefixMatch", "replacePrefixMatch": _parts(path)}
    return [{"type": "URLRewrite", "urlRewrite": {"path": change}}]


def _backend(backend: routes.Backend, suffix: str) -> dict[str, Any]:
    return {
        "group": "",
        "kind": "Service",
        "name": backend.host.removesuffix(suffix),
        "port": backend.port,
    }
