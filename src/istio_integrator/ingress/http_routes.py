"""The model's routes as HTTPRoutes of the Gateway API, which sorts them by itself.

A prefix ends there where a part of the path does: `/kfp` is `/kfp` and what is below `/kfp/`, and
not `/kfpx`, and `/kfp/` is the same prefix. A method of gRPC is a path like any other, so that no
hostname has routes of two kinds (GRPCRoute: implementations may refuse the younger one).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from istio_integrator.ingress import gateway, routes
from istio_integrator.ingress.routes import Kind, Route
from istio_integrator.kube import owners

FOLDER = "http-routes"

_TYPES = {
    Kind.EXACT: "Exact",
    Kind.PREFIX: "PathPrefix",
    Kind.REGEX: "RegularExpression",
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
    hostname: str
    """Empty: all of the Gateway's."""
    rule: str
    """The name of the rule; empty where nobody has to know it."""
    match: Mapping[str, Any]
    filters: Sequence[Mapping[str, Any]]
    backends: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in http-routes."""

    gateway: str
    routes: Sequence[Written]

    @classmethod
    def of(cls, found: Sequence[Route], *, application: str, model: str, domain: str) -> Context:
        """Put routes into the words of the template.

        Args:
            found: Those that an HTTPRoute can have.
            application: Ours.
            model: Where the HTTPRoutes will be.
            domain: The cluster's, which ends the names of Services.
        """
        suffix = f".{model}.svc.{domain}"
        return cls(
            gateway=gateway.NAME,
            routes=[
                Written(
                    name=owners.object_name(application, f"route-{one.relation}-{one.place}"),
                    relation=one.source,
                    hostname=one.host,
                    # The guard knows by it what is served without authentication.
                    rule="" if one.is_asked else one.name,
                    match=_match(one),
                    filters=_filters(one),
                    backends=[_backend(each, suffix) for each in one.backends],
                )
                for one in found
            ],
        )


def fit(found: Sequence[Route]) -> tuple[list[Route], list[str]]:
    """Pick the routes that HTTPRoutes can have, and say why the others are none.

    Of two that match the same, as the Gateway API means it, the older relation has it.
    """
    served: dict[str, Route] = {}
    problems: list[str] = []
    for route in sorted(found, key=lambda one: (one.relation, one.place)):
        paths = [route.path] if route.kind is not Kind.REGEX else []
        paths += [entry.path or entry.whole_path for entry in route.entries]
        if not all(is_path(path) for path in paths if path):
            problems.append(f"{route.source}: no HTTPRoute can have the path {route.path}")
            continue
        claim = json.dumps([route.host, _match(route)], sort_keys=True)
        if claim in served:
            owner = served[claim].source
            problems.append(f"{route.source}: prefix {route.path} is that of {owner}")
            continue
        served[claim] = route
    return routes.in_order(served.values()), problems


def is_path(path: str) -> bool:
    """Tell whether the API server takes a path of an HTTPRoute."""
    return bool(_PATH.fullmatch(path)) and path.startswith("/") and not _NEVER.search(path)


def _parts(prefix: str) -> str:
    return prefix.rstrip("/") or "/"


def _match(route: Route) -> dict[str, Any]:
    kind = _TYPES[route.kind]
    path = _parts(route.path) if kind == "PathPrefix" else route.path
    found: dict[str, Any] = {"path": {"type": kind, "value": path}}
    if route.method:
        found["method"] = route.method
    if route.headers:
        found["headers"] = [
            {"type": "Exact", "name": name, "value": value} for name, value in route.headers
        ]
    return found


def _modifier(route: Route) -> dict[str, Any]:
    """Say what becomes of the path; the last entry is the one for what is below a prefix."""
    entry = route.entries[-1]
    if entry.whole_path:
        return {"path": {"type": "ReplaceFullPath", "replaceFullPath": entry.whole_path}}
    if entry.path and _parts(entry.path) != _parts(route.path):
        replaced = _parts(entry.path)
        return {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": replaced}}
    return {}


def _filters(route: Route) -> list[dict[str, Any]]:
    change = _modifier(route)
    redirect = route.redirect
    if redirect is not None:
        named = {
            "scheme": redirect.scheme,
            "hostname": redirect.authority,
            "port": redirect.port,
            "statusCode": redirect.code,
        }
        said = {**{name: value for name, value in named.items() if value}, **change}
        return [{"type": "RequestRedirect", "requestRedirect": said}]
    if route.authority:
        change["hostname"] = route.authority
    return [{"type": "URLRewrite", "urlRewrite": change}] if change else []


def _backend(backend: routes.Backend, suffix: str) -> dict[str, Any]:
    name = backend.host.removesuffix(suffix)
    # Istio's own kind: a Service of another namespace would need a ReferenceGrant there.
    group, kind = ("networking.istio.io", "Hostname") if name == backend.host else ("", "Service")
    return {
        "group": group,
        "kind": kind,
        "name": name,
        "port": backend.port,
        "weight": backend.weight,
    }
