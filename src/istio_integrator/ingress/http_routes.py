"""The model's routes as HTTPRoutes and GRPCRoutes of the Gateway API, which sorts them by itself.

A prefix ends there where a part of the path does: `/kfp` is `/kfp` and what is below `/kfp/`, and
not `/kfpx`, and `/kfp/` is the same prefix. A method of gRPC is a path like any other, and is
served as such where a hostname can't have routes of both kinds.
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
_CALLED = re.compile(r"/(?P<service>[A-Za-z_][\w.]*)(/(?P<method>[A-Za-z_]\w*))?", re.ASCII)
"""What a GRPCRoute can call a service and a method (GRPCMethodMatch)."""
_BOTH_KINDS_SINCE = (1, 30)
"""The Istio from which a hostname can have routes of both kinds; before it the GRPCRoutes were
lost without a word (istio release notes 1.30.0; issue 57172)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """One HTTPRoute or GRPCRoute with its one rule."""

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
    calls: Sequence[Written] = ()
    """Those that are GRPCRoutes."""

    @classmethod
    def of(
        cls,
        found: Sequence[Route],
        values: Values,
        *,
        application: str,
        model: str,
        domain: str,
        has_calls: bool = False,
    ) -> Context:
        """Put routes into the words of the templates.

        Args:
            found: Those that an HTTPRoute can have.
            values: Those that the EnvoyFilter writes.
            application: Ours.
            model: Where the routes will be.
            domain: The cluster's, which ends the names of Services.
            has_calls: Whether those for gRPC are to be GRPCRoutes, as far as they can.
        """
        suffix = f".{model}.svc.{domain}"
        calls = {one for one in found if has_calls and _is_call(one)}
        written = {
            one: Written(
                name=owners.object_name(application, f"route-{one.relation}-{one.place}"),
                relation=one.source,
                rule="" if one.is_asked else values.free_route,
                match={**(_call(one) if one in calls else _match(one)), **_mark(one, values)},
                filters=_filters(one),
                backends=[_backend(each, suffix) for each in one.backends],
            )
            for one in found
        }
        return cls(
            gateway=gateway.NAME,
            routes=[each for one, each in written.items() if one not in calls],
            calls=[each for one, each in written.items() if one in calls],
        )


def has_calls(version: str) -> bool:
    """Tell whether an Istio serves GRPCRoutes beside HTTPRoutes of the same hostname.

    Args:
        version: Such as `1.31.1`; of one that is not known nothing is expected.
    """
    found = re.match(r"(\d{1,6})\.(\d{1,6})", version)
    return found is not None and (int(found[1]), int(found[2])) >= _BOTH_KINDS_SINCE


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


def _is_call(route: Route) -> bool:
    """Tell whether a GRPCRoute can have a route; it can't have every name."""
    return route.is_grpc and (route.kind is Kind.ALL or bool(_CALLED.fullmatch(route.path)))


def _call(route: Route) -> dict[str, Any]:
    """Match the method that the path of a route means."""
    called = _CALLED.fullmatch(route.path)
    if called is None:
        return {}
    named = {name: value for name, value in called.groupdict().items() if value}
    return {"method": {"type": "Exact", **named}}


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
