"""What related applications ask for, of both generations, as routes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from istio_integrator import texts
from istio_integrator.ingress.routes.plan import Kind, Requested, Route
from istio_integrator.kube import owners
from istio_integrator.relations import ingress_route, kubeflow
from istio_integrator.situation import situation

_PORTS = (80, 443)
"""Both mean the entry: whether there is TLS is up to the gateway, not to a route."""
_LONGEST_TITLE = 40
_HTTP_OR_GRPC = ingress_route.HTTPRoute | ingress_route.GRPCRoute


class _RefusedError(ValueError):
    """A route that can't be served; the message says why."""


def read(
    scope: situation.Situation,
    older: Sequence[kubeflow.Received[kubeflow.IngressRequest]],
    newer: Iterable[ingress_route.Received],
) -> list[Requested]:
    """Read what applications ask for, each kind by the age of relations.

    An application that is served by `ingress` is not served twice, and never displaced.
    """
    served = {one.application for one in older if one.message}
    return [
        *(_read_older(scope, one) for one in older),
        *(_read_newer(scope, one, served) for one in newer),
    ]


def _read_older(
    scope: situation.Situation, one: kubeflow.Received[kubeflow.IngressRequest]
) -> Requested:
    source = f"{kubeflow.INGRESS}:{one.relation} {one.application}"
    request = one.message
    if said := _outside(scope, one.application, request and request.namespace) or one.problem:
        return Requested(source=source, problems=[said])
    if request is None:
        return Requested(source=source)
    rewrite = request.rewrite or ""
    route = Route(
        name=owners.object_name(scope.application, f"{kubeflow.INGRESS}-{one.relation}"),
        source=source,
        application=one.application,
        relation=one.relation,
        kind=Kind.ALL if request.prefix == "/" else Kind.PREFIX,
        path=request.prefix,
        rewrite=rewrite if rewrite != request.prefix else "",
        service=request.service,
        port=request.port,
    )
    return Requested(source=source, routes=[route])


def _read_newer(
    scope: situation.Situation, one: ingress_route.Received, served: set[str]
) -> Requested:
    found: list[Route] = []
    problems = list(filter(None, [_refusal(scope, one, served)]))
    config = None if problems else one.message
    for asked in (*config.http_routes, *config.grpc_routes) if config else ():
        try:
            # All of a route's matches, or none.
            found += list(_routes(scope, one, asked))
        except _RefusedError as error:
            problems.append(f"route {_title(asked)} {error}")
    routes = [dataclasses.replace(each, place=n) for n, each in enumerate(found)]
    return Requested(source=one.reference, routes=routes, problems=problems)


def _refusal(scope: situation.Situation, one: ingress_route.Received, served: set[str]) -> str:
    if one.message is None:
        return one.problem
    if one.application in served:
        return (
            f"{one.application} is served by its relation to {kubeflow.INGRESS}; run: "
            f"juju remove-relation {scope.application}:{one.endpoint} {one.application}"
        )
    return _outside(scope, one.application, one.message.model)


def _outside(scope: situation.Situation, application: str, namespace: str | None) -> str:
    if kubeflow.is_of_another_model(application):
        # Its namespace may have the name of this model, in another cluster.
        return f"is of another model; only Services of {scope.model} get routes"
    if namespace and namespace != scope.model:
        return f"asks for Services of {namespace}; only Services of {scope.model} get routes"
    return ""


def _routes(
    scope: situation.Situation, one: ingress_route.Received, asked: _HTTP_OR_GRPC
) -> Iterator[Route]:
    if unserved := _unserved(asked):
        raise _RefusedError(
            f"asks for {unserved}; served are a path prefix or an exact path, a rewrite of "
            "the path, gRPC methods, one Service, and ports 80 and 443"
        )
    (backend,) = asked.backends
    rewrites = [each.url_rewrite.path for each in asked.filters or () if each.url_rewrite]
    modifier = rewrites[0] if rewrites else None
    for match in asked.matches or (ingress_route.HTTPRouteMatch(),):
        kind, path = _path(match)
        if kind is Kind.ALL and not one.is_asked:
            # Requests for notebooks would match it first, and be rejected.
            raise _RefusedError("asks for / without authentication; ask for a longer path")
        if modifier and (modifier.type == "ReplaceFullPath") != (kind is Kind.EXACT):
            raise _RefusedError(
                "replaces the prefix of an exact path: ask for ReplaceFullPath"
                if kind is Kind.EXACT
                else "replaces the whole path of a prefix: ask for ReplacePrefixMatch"
            )
        yield Route(
            name=owners.object_name(scope.application, f"{one.endpoint}-{one.relation}"),
            source=one.reference,
            application=one.application,
            relation=one.relation,
            title=_title(asked),
            kind=kind,
            path=path,
            rewrite=modifier.value if modifier else "",
            is_parted=True,
            service=backend.service,
            port=backend.port,
            is_asked=one.is_asked,
            is_grpc=isinstance(asked, ingress_route.GRPCRoute),
        )


def _title(asked: _HTTP_OR_GRPC) -> str:
    return texts.plain(asked.name, _LONGEST_TITLE)


def _path(
    match: ingress_route.HTTPRouteMatch | ingress_route.GRPCRouteMatch,
) -> tuple[Kind, str]:
    if isinstance(match, ingress_route.GRPCRouteMatch):
        called = match.method
        if called and called.method:
            return Kind.EXACT, f"/{called.service}/{called.method}"
        path = f"/{called.service}" if called else ""
    elif match.path and match.path.type == "Exact":
        return Kind.EXACT, match.path.value
    else:
        path = match.path.value.rstrip("/") if match.path else ""
    return (Kind.PREFIX, path) if path else (Kind.ALL, "/")


def _unserved(asked: _HTTP_OR_GRPC) -> str:
    filters = asked.filters or ()
    rewrites = [each.url_rewrite for each in filters if each.url_rewrite]
    matches = asked.matches or ()
    paths = [each.path for each in matches if isinstance(each, ingress_route.HTTPRouteMatch)]
    unserved = [name for each in (asked, *matches, *rewrites) for name in each.unserved]
    types = [each.type for each in paths if each and not each.is_served]
    named = {
        **{texts.plain(name, _LONGEST_TITLE): True for name in unserved},
        f"port {asked.listener.port}": asked.listener.port not in _PORTS,
        "no Service": not asked.backends,
        "several Services": len(asked.backends) > 1,
        "several filters": len(filters) > 1,
        "a filter that is no URLRewrite": len(rewrites) < len(filters),
        "a rewrite of gRPC": isinstance(asked, ingress_route.GRPCRoute) and rewrites,
        **{f"a path of type {texts.plain(each, _LONGEST_TITLE)}": True for each in types},
    }
    return next((name for name, is_asked in named.items() if is_asked), "")
