"""Routes from the requests of related applications, by both interfaces."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from istio_integrator import texts
from istio_integrator.asked.routes.plan import PathMatch, Route, RouteRequests
from istio_integrator.relations import ingress_route, kubeflow
from istio_integrator.situation.situation import Situation

_PORTS = (80, 443)
"""Both mean the gateway's port; the gateway decides about TLS, not a route."""
_LONGEST_TITLE = 40
Received = kubeflow.Received[kubeflow.IngressRequest] | ingress_route.Received
_HTTP_OR_GRPC = ingress_route.HTTPRoute | ingress_route.GRPCRoute


class _RefusedError(ValueError):
    """A route that can't be served; the message says why."""


def read(situation: Situation, received: Sequence[Received]) -> list[RouteRequests]:
    """Read the applications' requests.

    The routes of an application on `ingress` stay, and its requests on the newer interface are
    rejected.
    """
    older = (one for one in received if isinstance(one.message, kubeflow.IngressRequest))
    served = {one.application for one in older}
    return [_read_requests(situation, one, served) for one in received]


def _read_requests(situation: Situation, one: Received, served: set[str]) -> RouteRequests:
    message = one.message
    if problem := _find_refusal(situation, one, served):
        return RouteRequests(source=one.reference, problems=[problem])
    if isinstance(message, kubeflow.IngressRequest):
        rewrite = message.rewrite or ""
        route = Route(
            request=one,
            kind=PathMatch.ALL if message.prefix == "/" else PathMatch.PREFIX,
            path=message.prefix,
            rewrite=rewrite if rewrite != message.prefix else "",
            service=message.service,
            port=message.port,
        )
        return RouteRequests(source=one.reference, routes=[route])
    found: list[Route] = []
    problems: list[str] = []
    for asked in (*message.http_routes, *message.grpc_routes) if message else ():
        try:
            # A route is served with all of its matches or not at all.
            found += list(_read_routes(one, asked))
        except _RefusedError as error:
            problems.append(f"route {_read_title(asked)} {error}")
    routes = [dataclasses.replace(each, place=n) for n, each in enumerate(found)]
    return RouteRequests(source=one.reference, routes=routes, problems=problems)


def _find_refusal(situation: Situation, one: Received, served: set[str]) -> str:
    message = one.message
    if kubeflow.is_of_another_model(one.application):
        # The other model may be in another cluster and have the name of this model.
        return f"is of another model; only Services of {situation.model} get routes"
    if message is None:
        return one.problem
    is_newer = isinstance(message, ingress_route.IstioIngressRouteConfig)
    if is_newer and one.application in served:
        return (
            f"{one.application} is served by its relation to {kubeflow.INGRESS}; run: "
            f"juju remove-relation {situation.application}:{one.endpoint} {one.application}"
        )
    namespace = message.model if is_newer else message.namespace
    if namespace and namespace != situation.model:
        return f"asks for Services of {namespace}; only Services of {situation.model} get routes"
    return ""


def _read_routes(one: Received, asked: _HTTP_OR_GRPC) -> Iterator[Route]:
    if unserved := _find_unserved_fields(asked):
        raise _RefusedError(
            f"asks for {unserved}; served are a path prefix or an exact path, a rewrite of "
            "the path, gRPC methods, one Service, and ports 80 and 443"
        )
    (backend,) = asked.backends
    rewrites = [each.url_rewrite.path for each in asked.filters or () if each.url_rewrite]
    modifier = rewrites[0] if rewrites else None
    for match in asked.matches or (ingress_route.HTTPRouteMatch(),):
        kind, path = _read_path(match)
        if kind is PathMatch.ALL and not one.is_asked:
            # Requests to notebooks would match this route first and be rejected.
            raise _RefusedError("asks for / without authentication; ask for a longer path")
        if modifier and (modifier.type == "ReplaceFullPath") != (kind is PathMatch.EXACT):
            raise _RefusedError(
                "replaces the prefix of an exact path: ask for ReplaceFullPath"
                if kind is PathMatch.EXACT
                else "replaces the whole path of a prefix: ask for ReplacePrefixMatch"
            )
        yield Route(
            request=one,
            title=_read_title(asked),
            kind=kind,
            path=path,
            rewrite=modifier.value if modifier else "",
            is_parted=True,
            service=backend.service,
            port=backend.port,
            is_grpc=isinstance(asked, ingress_route.GRPCRoute),
        )


def _read_title(asked: _HTTP_OR_GRPC) -> str:
    return texts.escape(asked.name, _LONGEST_TITLE)


def _read_path(
    match: ingress_route.HTTPRouteMatch | ingress_route.GRPCRouteMatch,
) -> tuple[PathMatch, str]:
    if isinstance(match, ingress_route.GRPCRouteMatch):
        called = match.method
        if called and called.method:
            return PathMatch.EXACT, f"/{called.service}/{called.method}"
        path = f"/{called.service}" if called else ""
    elif match.path and match.path.type == "Exact":
        return PathMatch.EXACT, match.path.value
    else:
        path = match.path.value.rstrip("/") if match.path else ""
    return (PathMatch.PREFIX, path) if path else (PathMatch.ALL, "/")


def _find_unserved_fields(asked: _HTTP_OR_GRPC) -> str:
    filters = asked.filters or ()
    rewrites = [each.url_rewrite for each in filters if each.url_rewrite]
    matches = asked.matches or ()
    paths = [each.path for each in matches if isinstance(each, ingress_route.HTTPRouteMatch)]
    unserved = [name for each in (asked, *matches, *rewrites) for name in each.unserved]
    types = [each.type for each in paths if each and not each.is_served]
    named = {
        **{texts.escape(name, _LONGEST_TITLE): True for name in unserved},
        f"port {asked.listener.port}": asked.listener.port not in _PORTS,
        "no Service": not asked.backends,
        "several Services": len(asked.backends) > 1,
        "several filters": len(filters) > 1,
        "a filter that is no URLRewrite": len(rewrites) < len(filters),
        "a rewrite of gRPC": isinstance(asked, ingress_route.GRPCRoute) and rewrites,
        **{f"a path of type {texts.escape(each, _LONGEST_TITLE)}": True for each in types},
    }
    return next((name for name, is_asked in named.items() if is_asked), "")
