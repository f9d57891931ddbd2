"""What related applications ask for, of both generations, as routes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from istio_integrator import texts
from istio_integrator.ingress.routes import Backend, Entry, Kind, Requested, Route, Uri
from istio_integrator.kube import owners
from istio_integrator.relations import ingress_route, kubeflow

_PORTS = (80, 443)
"""Both mean the entry: whether there is TLS is up to the gateway, not to a route."""
_LONGEST_TITLE = 40
_MOST_FOUND = 512
"""Matches of one relation."""
Requests = Sequence[kubeflow.Received[kubeflow.IngressRequest]]
_HTTP_OR_GRPC = ingress_route.HTTPRoute | ingress_route.GRPCRoute


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """What requests are read by."""

    model: str
    """The namespace of the Services that routes may lead to."""
    application: str
    """Ours."""
    domain: str
    """The cluster's, which ends the names of Services."""


class _RefusedError(ValueError):
    """A route that can't be served; the message says why."""


def by_ingress(received: Requests, terms: Terms) -> list[Requested]:
    """Read what the applications ask for that are related to `ingress`."""
    return [_older(one, terms) for one in received]


def by_ingress_route(
    received: Iterable[ingress_route.Received], older: Requests, terms: Terms
) -> list[Requested]:
    """Read what the applications ask for that are related by `istio_ingress_route`.

    Args:
        received: What they said.
        older: What was said on `ingress`; who is served by that is not served twice.
        terms: What it is read by.
    """
    served = {one.application for one in older if one.message}
    return [_newer(one, served, terms) for one in received]


def _older(one: kubeflow.Received[kubeflow.IngressRequest], terms: Terms) -> Requested:
    source = f"{kubeflow.INGRESS}:{one.relation} {one.application}"
    request = one.message
    problem = _outside(one.application, request and request.namespace, terms) or one.problem
    if request is None or problem:
        said = (f"{source}: {problem}",) if problem else ()
        return Requested(source=source, relation=one.relation, is_older=True, problems=said)
    route = Route(
        name=owners.object_name(terms.application, f"{kubeflow.INGRESS}-{one.relation}"),
        source=source,
        application=one.application,
        relation=one.relation,
        place=0,
        kind=Kind.ALL if request.prefix == "/" else Kind.PREFIX,
        path=request.prefix,
        entries=tuple(_below(request.prefix, request.rewrite or request.prefix)),
        backends=(_backend(request.service, request.port, terms),),
    )
    return Requested(source=source, relation=one.relation, is_older=True, routes=(route,))


def _below(prefix: str, rewrite: str) -> Iterable[Entry]:
    """Match all that begins with a prefix, whether or not a part of the path ends there."""
    if rewrite.endswith("/") and not prefix.endswith("/"):
        # Of /volumes/x, replacing /volumes by / alone would leave //x.
        yield Entry(uris=(Uri("prefix", f"{prefix}/"),), path=rewrite)
    changed = rewrite if rewrite != prefix else ""
    yield Entry(uris=(Uri("prefix", prefix),), path=changed)


def _newer(one: ingress_route.Received, served: set[str], terms: Terms) -> Requested:
    source = one.reference
    refused = _refusal(one, served, terms)
    if one.message is None or refused:
        said = (f"{source}: {refused}",) if refused else ()
        return Requested(source=source, relation=one.relation, problems=said)
    found: list[Route] = []
    problems: list[str] = []
    for asked in (*one.message.http_routes, *one.message.grpc_routes):
        try:
            # All of a route's matches, or none.
            found += list(_routes(one, asked, terms))
        except _RefusedError as error:
            problems.append(f"{source}: route {_title(asked)} {error}")
        if len(found) > _MOST_FOUND:
            said = f"{source}: asks for more than {_MOST_FOUND} matches"
            return Requested(source=source, relation=one.relation, problems=(said,))
    return Requested(
        source=source,
        relation=one.relation,
        routes=tuple(dataclasses.replace(each, place=n) for n, each in enumerate(found)),
        problems=tuple(problems),
    )


def _refusal(one: ingress_route.Received, served: set[str], terms: Terms) -> str:
    if one.message is None:
        return one.problem
    if one.application in served:
        return (
            f"{one.application} is served by its relation to {kubeflow.INGRESS}; run: "
            f"juju remove-relation {terms.application}:{one.endpoint} {one.application}"
        )
    return _outside(one.application, one.message.model, terms)


def _outside(application: str, namespace: str | None, terms: Terms) -> str:
    """Say that an application asks for a Service outside of the model; empty for one inside."""
    if kubeflow.is_of_another_model(application):
        # Its namespace may have the name of this model, in another cluster.
        return f"is of another model; only Services of {terms.model} get routes"
    if namespace and namespace != terms.model:
        return f"asks for Services of {namespace}; only Services of {terms.model} get routes"
    return ""


def _backend(service: str, port: int, terms: Terms) -> Backend:
    return Backend(f"{service}.{terms.model}.svc.{terms.domain}", port)


def _routes(one: ingress_route.Received, asked: _HTTP_OR_GRPC, terms: Terms) -> Iterable[Route]:
    if unserved := _unserved(asked):
        raise _RefusedError(
            f"asks for {unserved}; served are a path prefix or an exact path, a rewrite of the "
            "path, gRPC methods, one Service, and ports 80 and 443"
        )
    (backend,) = asked.backends
    base = Route(
        name=owners.object_name(terms.application, f"{one.endpoint}-{one.relation}"),
        source=one.reference,
        application=one.application,
        relation=one.relation,
        place=0,
        title=_title(asked),
        kind=Kind.ALL,
        path="/",
        entries=(),
        backends=(_backend(backend.service, backend.port, terms),),
        is_asked=one.is_asked,
        is_grpc=isinstance(asked, ingress_route.GRPCRoute),
    )
    rewrites = [each.url_rewrite for each in asked.filters or () if each.url_rewrite]
    modifier = rewrites[0].path if rewrites else None
    for match in asked.matches or (ingress_route.HTTPRouteMatch(),):
        route = _matched(base, match)
        if route.is_root and not route.is_asked:
            # Requests for notebooks would match it first, and be rejected.
            raise _RefusedError("asks for / without authentication; ask for a longer path")
        yield _changed(route, modifier)


def _title(asked: _HTTP_OR_GRPC) -> str:
    return texts.plain(asked.name, _LONGEST_TITLE)


def _unserved(asked: _HTTP_OR_GRPC) -> str:
    """Name what a route asks for that no route is served with; empty for nothing."""
    filters = asked.filters or ()
    rewrites = [each.url_rewrite for each in filters if each.url_rewrite]
    is_grpc = isinstance(asked, ingress_route.GRPCRoute)
    matches = asked.matches or ()
    of_http = [each for each in matches if isinstance(each, ingress_route.HTTPRouteMatch)]
    paths = [each.path for each in of_http if each.path]
    unknown = [name for each in (asked, *matches, *rewrites) for name in each.unknown]
    named = {
        **{texts.plain(name, _LONGEST_TITLE): True for name in unknown[:1]},
        f"port {asked.listener.port}": asked.listener.port not in _PORTS,
        "hostnames": asked.hostnames,
        "no Service": not asked.backends,
        "several Services": len(asked.backends) > 1,
        "several filters": len(filters) > 1,
        "a filter that is no URLRewrite": len(rewrites) < len(filters),
        "a rewrite of gRPC": is_grpc and rewrites,
        "a rewrite of the host name": any(each.hostname for each in rewrites),
        "HTTP methods": any(each.method for each in of_http),
        "headers": any(each.headers for each in matches),
        **{f"a path of type {texts.plain(each.type, 40)}": not each.is_served for each in paths},
    }
    return next((name for name, is_asked in named.items() if is_asked), "")


def _matched(
    route: Route, match: ingress_route.HTTPRouteMatch | ingress_route.GRPCRouteMatch
) -> Route:
    """Add what a match says about the path."""
    if isinstance(match, ingress_route.GRPCRouteMatch):
        return _called(route, match.method)
    path = match.path
    if path is None or path.type == "PathPrefix":
        return _prefix(route, path.value if path else "/")
    return _exact(route, path.value)


def _called(route: Route, method: ingress_route.GRPCMethodMatch | None) -> Route:
    """Match the path that gRPC makes of a method."""
    if method is None:
        return _prefix(route, "/")
    if method.method is None:
        return _prefix(route, f"/{method.service}")
    return _exact(route, f"/{method.service}/{method.method}")


def _exact(route: Route, path: str) -> Route:
    entry = Entry(uris=(Uri("exact", path),))
    return dataclasses.replace(route, kind=Kind.EXACT, path=path, entries=(entry,))


def _prefix(route: Route, asked: str) -> Route:
    path = asked.rstrip("/")
    if not path:
        entry = Entry(uris=(Uri("prefix", "/"),))
        return dataclasses.replace(route, kind=Kind.ALL, path="/", entries=(entry,))
    entry = Entry(uris=(Uri("exact", path), Uri("prefix", f"{path}/")))
    return dataclasses.replace(
        route, kind=Kind.PREFIX, path=path, is_parted=True, entries=(entry,)
    )


def _changed(route: Route, modifier: ingress_route.PathModifier | None) -> Route:
    """Have what matched be replaced: an exact path as a whole, or the prefix."""
    if modifier is None:
        return route
    is_whole = modifier.type == "ReplaceFullPath"
    if is_whole != (route.kind is Kind.EXACT):
        raise _RefusedError(
            "replaces the whole path of a prefix: ask for ReplacePrefixMatch"
            if is_whole
            else "replaces the prefix of an exact path: ask for ReplaceFullPath"
        )
    at = Entry(uris=(Uri("exact", route.path),), path=modifier.value)
    if is_whole:
        return dataclasses.replace(route, entries=(at,))
    below = Entry(
        uris=(Uri("prefix", f"{route.path.rstrip('/')}/"),),
        path=f"{modifier.value.rstrip('/')}/",
    )
    entries = (below,) if route.kind is Kind.ALL else (at, below)
    return dataclasses.replace(route, entries=entries)
