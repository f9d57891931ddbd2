"""What related applications ask for, of both generations, as routes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from istio_integrator import texts
from istio_integrator.ingress import patterns
from istio_integrator.ingress.routes import (
    Backend,
    Entry,
    Kind,
    Redirect,
    Requested,
    Route,
    Uri,
)
from istio_integrator.kube import owners
from istio_integrator.relations import ingress_route, kubeflow

_PORTS = (80, 443)
"""Both mean the entry: whether there is TLS is up to the gateway, not to a route."""
MOST_PORTS = 8
"""Others than these of a gateway workload of the model's own: each is a listener of every pod."""
_LOWEST_PORT = 1024
_KEPT_PORTS = frozenset({8080, 8443, *range(15000, 15100)})
"""Where its pods serve 80 and 443, and Istio's own
(istio.io/docs/ops/deployment/application-requirements)."""
_LONGEST_TITLE = 40
_MOST_FOUND = 512
"""Routes of one relation, each match at each host counted."""
Requests = Sequence[kubeflow.Received[kubeflow.IngressRequest]]
_HTTP_OR_GRPC = ingress_route.HTTPRoute | ingress_route.GRPCRoute


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """What requests are read by."""

    model: str
    """Where the Services are of those that don't say so."""
    application: str
    """Ours."""
    domain: str
    """The cluster's, which ends the names of Services."""
    hosts: tuple[str, ...] = ()
    """Of the model; none: all."""
    namespaces: tuple[str, ...] = ()
    """Where the Services may be of applications of other models (`route-namespaces`)."""
    ports: tuple[int, ...] = ()
    """Of the gateway that routes may be for, beside the entry."""
    has_own_gateway: bool = False
    """Whether the gateway workload is the model's own, which may have other ports."""
    token: str = ""
    """What nobody else can know, for the names of what is served without authentication."""
    replaces_prefix: bool = False
    """Whether this Istio can redirect to another prefix."""


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


def ports(
    received: Iterable[ingress_route.Received], older: Requests, terms: Terms
) -> tuple[int, ...]:
    """List the ports that a gateway workload of our own is to have beside 80 and 443.

    Of too many those count that the oldest relations ask for.
    """
    served = {one.application for one in older if one.message}
    asked = [
        route.listener.port
        for one in received
        if one.message and not _refusal(one, served, terms)
        for route in (*one.message.http_routes, *one.message.grpc_routes)
    ]
    possible = dict.fromkeys(port for port in asked if port not in _PORTS and _is_free(port))
    return tuple(sorted([*possible][:MOST_PORTS]))


def _is_free(port: int) -> bool:
    return port >= _LOWEST_PORT and port not in _KEPT_PORTS


def redirects_prefix(received: Iterable[ingress_route.Received]) -> bool:
    """Tell whether anybody asks for a redirect that keeps the rest of the path."""
    return any(
        each.request_redirect
        and each.request_redirect.path
        and each.request_redirect.path.type == "ReplacePrefixMatch"
        for one in received
        if one.message
        for asked in (*one.message.http_routes, *one.message.grpc_routes)
        for each in asked.filters or ()
    )


def _older(one: kubeflow.Received[kubeflow.IngressRequest], terms: Terms) -> Requested:
    source = f"{kubeflow.INGRESS}:{one.relation} {one.application}"
    request = one.message
    if request is None:
        said = (f"{source}: {one.problem}",) if one.problem else ()
        return Requested(source=source, relation=one.relation, is_older=True, problems=said)
    namespace = request.namespace or terms.model
    route = Route(
        name=owners.object_name(terms.application, f"{kubeflow.INGRESS}-{one.relation}"),
        source=source,
        application=one.application,
        relation=one.relation,
        place=0,
        kind=Kind.ALL if request.prefix == "/" else Kind.PREFIX,
        path=request.prefix,
        entries=tuple(_below(request.prefix, request.rewrite or request.prefix)),
        backends=(Backend(f"{request.service}.{namespace}.svc.{terms.domain}", request.port),),
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
            found += list(_routes(one, asked, one.message.model, terms))
        except _RefusedError as error:
            problems.append(f"{source}: route {_title(asked)} {error}")
        if len(found) > _MOST_FOUND:
            said = f"{source}: asks for more than {_MOST_FOUND} matches at hosts"
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
    asked = one.message.model
    if one.is_of_another_model:
        if asked not in terms.namespaces:
            return (
                f"is of another model and asks for Services of namespace {asked}: add it to the "
                "option route-namespaces if they are meant"
            )
        if one.message.grpc_routes and asked != terms.model:
            # Only their own namespace can tell the gateway to speak HTTP/2 with them.
            return f"asks for grpc_routes to namespace {asked}: gRPC has to be in {terms.model}"
    elif asked != terms.model:
        return f"asks for Services of {asked}: applications of {terms.model} have only those of it"
    return ""


def _routes(
    one: ingress_route.Received, asked: _HTTP_OR_GRPC, namespace: str, terms: Terms
) -> Iterable[Route]:
    port = asked.listener.port
    if port not in (*_PORTS, *terms.ports):
        raise _RefusedError(f"asks for port {port}: {_why_not(port, terms)}")
    rewrite, redirect = _filters(asked)
    if redirect is None and not asked.backends:
        raise _RefusedError("names no Service")
    is_asked = one.is_asked or not terms.token
    name = owners.object_name(terms.application, f"{one.endpoint}-{one.relation}")
    base = Route(
        name=name if is_asked else f"{name}-{terms.token}",
        source=one.reference,
        application=one.application,
        relation=one.relation,
        place=0,
        title=_title(asked),
        port=None if port in _PORTS else port,
        kind=Kind.ALL,
        path="/",
        entries=(),
        backends=() if redirect else tuple(_backends(asked, namespace, terms)),
        authority=(rewrite.hostname if rewrite else None) or "",
        redirect=_redirect(redirect) if redirect else None,
        is_asked=is_asked,
        is_grpc=isinstance(asked, ingress_route.GRPCRoute),
    )
    modifier = rewrite.path if rewrite else redirect.path if redirect else None
    replaces = modifier is not None and modifier.type == "ReplacePrefixMatch"
    if redirect and replaces and not terms.replaces_prefix:
        raise _RefusedError("redirects to another prefix, which this Istio can't: ReplaceFullPath")
    for host in _hosts(asked.hostnames, terms.hosts):
        for match in _matches(asked):
            is_http = isinstance(match, ingress_route.HTTPRouteMatch)
            found = dataclasses.replace(
                base,
                host=host,
                method=(match.method if is_http else None) or "",
                headers=tuple(sorted((match.headers or {}).items())),
            )
            yield _changed(_matched(found, match), modifier)


def _title(asked: _HTTP_OR_GRPC) -> str:
    return texts.plain(asked.name, _LONGEST_TITLE)


def _why_not(port: int, terms: Terms) -> str:
    if not terms.has_own_gateway:
        return "80 and 443 are served, others by gateway-workload=true only"
    if port in _KEPT_PORTS:
        return "the gateway's pods have it for themselves"
    if port < _LOWEST_PORT:
        return f"80, 443 and ports from {_LOWEST_PORT} on are served"
    return f"no more than {MOST_PORTS} are served beside 80 and 443"


def _filters(
    asked: _HTTP_OR_GRPC,
) -> tuple[ingress_route.URLRewriteSpec | None, ingress_route.RequestRedirectSpec | None]:
    filters = asked.filters or ()
    rewrites = [each.url_rewrite for each in filters if each.url_rewrite]
    redirects = [each.request_redirect for each in filters if each.request_redirect]
    if len(filters) > 1:
        raise _RefusedError("has more than one filter")
    if rewrites and isinstance(asked, ingress_route.GRPCRoute):
        raise _RefusedError("has a URLRewrite, which gRPC has not")
    return next(iter(rewrites), None), next(iter(redirects), None)


def _redirect(asked: ingress_route.RequestRedirectSpec) -> Redirect:
    return Redirect(
        scheme=asked.scheme or "",
        authority=asked.hostname or "",
        port=asked.port,
        code=asked.status_code,
    )


def _hosts(asked: Sequence[str] | None, ours: tuple[str, ...]) -> Iterable[str]:
    """List the hosts that a route is for; an empty one is all of ours."""
    if not asked:
        return ("",)
    for host in asked:
        if ours and not any(_covers(one, host) for one in ours):
            raise _RefusedError(f"is for {host}, which is not among hosts")
    if ours and all(any(_covers(host, one) for host in asked) for one in ours):
        return ("",)
    return dict.fromkeys(asked)


def _covers(outer: str, inner: str) -> bool:
    return outer == inner or (outer.startswith("*.") and inner.endswith(outer[1:]))


def _matches(
    asked: _HTTP_OR_GRPC,
) -> Sequence[ingress_route.HTTPRouteMatch | ingress_route.GRPCRouteMatch]:
    return asked.matches or (ingress_route.HTTPRouteMatch(),)


def _backends(asked: _HTTP_OR_GRPC, namespace: str, terms: Terms) -> Iterable[Backend]:
    for each in asked.backends:
        host = f"{each.service}.{namespace}.svc.{terms.domain}"
        yield Backend(host, each.port, each.weight or 1)


def _matched(
    route: Route, match: ingress_route.HTTPRouteMatch | ingress_route.GRPCRouteMatch
) -> Route:
    """Add what a match says about the path."""
    if isinstance(match, ingress_route.GRPCRouteMatch):
        return _called(route, match.method)
    path = match.path
    if path is None or path.type == "PathPrefix":
        return _prefix(route, path.value if path else "/")
    if path.type == "Exact":
        return _exact(route, path.value)
    if said := patterns.problem(path.value):
        raise _RefusedError(said)
    entry = Entry(uris=(Uri("regex", path.value),))
    return dataclasses.replace(route, kind=Kind.REGEX, path=path.value, entries=(entry,))


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
        if route.method or route.headers or route.host:
            # Istio would look at it before the routes of others that are younger than ours.
            raise _RefusedError(
                "has the path / with a method, headers or hostnames: name a longer path"
            )
        entry = Entry(uris=(Uri("prefix", "/"),))
        return dataclasses.replace(route, kind=Kind.ALL, path="/", entries=(entry,))
    entry = Entry(uris=(Uri("exact", path), Uri("prefix", f"{path}/")))
    return dataclasses.replace(
        route, kind=Kind.PREFIX, path=path, is_parted=True, entries=(entry,)
    )


def _changed(route: Route, modifier: ingress_route.PathModifier | None) -> Route:
    """Have what matched be replaced."""
    if modifier is None:
        return route
    if modifier.type == "ReplaceFullPath":
        entries = [dataclasses.replace(each, whole_path=modifier.value) for each in route.entries]
        return dataclasses.replace(route, entries=tuple(entries))
    if route.kind not in (Kind.PREFIX, Kind.ALL):
        raise _RefusedError("replaces a prefix without matching one")
    below = Entry(
        uris=(Uri("prefix", f"{route.path.rstrip('/')}/"),),
        path=f"{modifier.value.rstrip('/')}/",
    )
    if route.kind is Kind.ALL:
        return dataclasses.replace(route, entries=(below,))
    at = Entry(uris=(Uri("exact", route.path),), path=modifier.value)
    return dataclasses.replace(route, entries=(at, below))
