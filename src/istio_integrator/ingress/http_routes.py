"""The model's routes as HTTPRoutes and GRPCRoutes of the Gateway API, which sorts them by itself.

A prefix ends there where a part of the path does: `/kfp` is `/kfp` and what is below `/kfp/`, and
not `/kfpx`, and `/kfp/` is the same prefix. A method of gRPC is a path like any other, and is
served as such where a hostname can't have routes of both kinds.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping, Sequence
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
_CALLED = re.compile(r"/(?P<service>[A-Za-z_][\w.]*)(/(?P<method>[A-Za-z_]\w*))?", re.ASCII)
"""What a GRPCRoute can call a service and a method (GRPCMethodMatch)."""
_EVERYTHING = {"path": {"type": "RegularExpression", "value": ".*"}}
"""The path `/` beside expressions: istiod sorts those behind every prefix, and writes nothing that
comes behind a prefix `/` (sortHTTPRoutes, BuildHTTPRoutesForVirtualService in istio)."""
_BOTH_KINDS_SINCE = (1, 30)
"""The Istio from which a hostname can have routes of both kinds; before it the GRPCRoutes were
lost without a word (istio release notes 1.30.0; issue 57172)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """One HTTPRoute or GRPCRoute with its one rule."""

    name: str
    relation: str
    """`ingress:3 kfp-ui`, for people."""
    hostnames: Sequence[str]
    """None: all of the Gateway's."""
    rule: str
    """The name of the rule; empty where nobody has to know it."""
    match: Mapping[str, Any]
    """Empty: every request."""
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
        *,
        application: str,
        model: str,
        domain: str,
        has_calls: bool = False,
    ) -> Context:
        """Put routes into the words of the templates.

        Args:
            found: Those that an HTTPRoute can have.
            application: Ours.
            model: Where the routes will be.
            domain: The cluster's, which ends the names of Services.
            has_calls: Whether those for gRPC are to be GRPCRoutes, as far as they can.
        """
        suffix = f".{model}.svc.{domain}"
        calls = {one for one in found if has_calls and _is_call(one)}
        expressed = {one.host for one in found if one.kind is Kind.REGEX}
        written = {
            one: Written(
                name=owners.object_name(application, f"route-{one.relation}-{one.place}"),
                relation=one.source,
                hostnames=(one.host,) if one.host else (),
                # The guard knows by it what is served without authentication.
                rule="" if one.is_asked else one.name,
                match=_call(one) if one in calls else _match(one, expressed),
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
    moved = {one.host: one.source for one in found if one.kind is Kind.ALL and _is_moved(one)}
    for route in sorted(found, key=lambda one: (one.relation, one.place)):
        paths = [route.path] if route.kind is not Kind.REGEX else []
        paths += [entry.path or entry.whole_path for entry in route.entries]
        if not all(is_path(path) for path in paths if path):
            problems.append(f"{route.source}: no HTTPRoute can have the path {route.path}")
            continue
        if route.kind is Kind.REGEX and route.host in moved:
            problems.append(
                f"{route.source}: no HTTPRoute can have the expression {route.path} beside the "
                f"prefix / of {moved[route.host]}, which is replaced; ask for a prefix"
            )
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


def _is_call(route: Route) -> bool:
    """Tell whether a GRPCRoute can have a route; it has no redirects, and not every name."""
    is_named = route.kind is Kind.ALL or _CALLED.fullmatch(route.path)
    return route.is_grpc and route.redirect is None and bool(is_named)


def _call(route: Route) -> dict[str, Any]:
    """Match the method that the path of a route means."""
    found: dict[str, Any] = {}
    if called := _CALLED.fullmatch(route.path):
        named = {name: value for name, value in called.groupdict().items() if value}
        found["method"] = {"type": "Exact", **named}
    if route.headers:
        found["headers"] = _headers(route)
    return found


def _parts(prefix: str) -> str:
    return prefix.rstrip("/") or "/"


def _is_moved(route: Route) -> bool:
    return "replacePrefixMatch" in _modifier(route).get("path", {})


def _match(route: Route, expressed: Collection[str] = ()) -> dict[str, Any]:
    if route.kind is Kind.ALL and route.host in expressed:
        return _EVERYTHING
    kind = _TYPES[route.kind]
    path = _parts(route.path) if kind == "PathPrefix" else route.path
    found: dict[str, Any] = {"path": {"type": kind, "value": path}}
    if route.method:
        found["method"] = route.method
    if route.headers:
        found["headers"] = _headers(route)
    return found


def _headers(route: Route) -> list[dict[str, Any]]:
    return [{"type": "Exact", "name": name, "value": value} for name, value in route.headers]


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
