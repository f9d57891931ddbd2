"""The EnvoyFilter that authenticates requests before routes match.

A route of the gateway's Envoy matches only requests with a mark: a value in the dynamic metadata,
and, for the routes of the model, a header. A request without the mark matches one of the entries
that this EnvoyFilter adds, which have no backend. Such an entry enables filters that call the
authorization service and write the mark. Then Envoy selects the route again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from integrator_contract import names
from istio_integrator.asked import authentication, gateway
from istio_integrator.asked.routes.plan import PathMatch, Route
from istio_integrator.ingress.record import RandomValues
from istio_integrator.situation.situation import Situation

FOLDER = "authentication"

_ANSWER = "envoy.filters.http.ext_authz"
"""The metadata namespace of ext_authz, whatever the filter's name."""


class RouteEntry(NamedTuple):
    """A route entry without a backend, which enables the filters."""

    match: Mapping[str, str]
    script: Literal["ask", "pass"]
    """Whether the request is authenticated or passes to a route without authentication."""


def apply(
    situation: Situation,
    decision: authentication.Authentication,
    target: gateway.Target,
    values: RandomValues,
    routes: Sequence[Route],
) -> list[str]:
    """Apply the EnvoyFilter, and return the names of its HTTP filters, first that with the digest.

    On the model's own gateway, it guards every virtual host, also those of other teams' routes.
    On a named gateway, it guards all virtual hosts of this charm's HTTPS servers. In plain HTTP,
    where all Gateways share the port, it guards the virtual hosts of the model's hosts by name.
    """
    service = decision.service
    identity = service.identity_headers if service else authentication.IDENTITIES
    places = list(_list_places(target, situation.model))
    variables = {
        "owner": situation.manifests.owner.lower(),
        "namespace": target.namespace,
        "selector": target.selector,
        "annotations": {} if target.is_own else {names.HOSTS: ",".join(target.hosts)},
        "values": values,
        # Matches of a routeConfiguration; the empty one matches every virtual host.
        "places": places,
        # Part of the name of a filter, which Envoy shows in its configuration. It tells the
        # workload that the patches of a new host have arrived, before the Gateway has the host.
        "digest": hashlib.sha256(repr(places).encode()).hexdigest()[:8],
        "entries": [*_list_exceptions(routes), RouteEntry({"prefix": "/"}, "ask")],
        "is_closed": decision.is_closed,
        "service": service,
        "identity_headers": identity,
        # Identity headers that the service sets, kept until the request leaves the gateway.
        "kept": [each for each in identity if service and each in service.response_headers],
        # Identity headers of a request that leaves the gateway, in every spelling.
        "leaving": {
            spelling: _render_leaving_value(spelling, values.metadata, f".{situation.domain}")
            for header in identity
            for spelling in authentication.list_spellings(header)
        },
    }
    written = situation.manifests.apply(FOLDER, variables)
    patches = [each for obj in written for each in obj["spec"]["configPatches"]]
    filters = [each["patch"]["value"] for each in patches if each["applyTo"] == "HTTP_FILTER"]
    found = [str(each["name"]) for each in filters]
    return sorted(found, key=lambda name: not name.endswith(".guard"))


def list_access(
    decision: authentication.Authentication, target: gateway.Target, routes: Iterable[Route]
) -> set[str]:
    """List the granted access as texts, none if the ingress is closed.

    A text that disappears means that the access narrows.
    """
    if decision.is_closed:
        return set()
    granted = ((one.request.is_asked, one.kind, one.path, one.service, one.port) for one in routes)
    where = (target.namespace, sorted(target.selector.items()))
    return {repr(each) for each in (decision.service, where, *target.written_hosts, *granted)}


def name_authentication_entry(owner: str) -> str:
    """Return the name of the entry that authenticates requests of a guarded virtual host."""
    return f"{owner.lower()}.ask"


def _list_places(target: gateway.Target, model: str) -> Iterable[Mapping[str, Any]]:
    if target.is_own:
        yield {}
        return
    if target.https_port:
        yield {"gateway": f"{model}/{gateway.NAME}"}
    for host in target.written_hosts if target.http_port else ():
        yield {"vhost": {"name": f"{host}:{target.http_port}"}}


def _list_exceptions(routes: Sequence[Route]) -> Iterable[RouteEntry]:
    """List entries for routes without authentication, and for other routes in their prefixes."""
    free = [one for one in routes if not one.request.is_asked]
    prefixes = tuple(f"{one.path}/" for one in free if one.kind is PathMatch.PREFIX)
    for route in routes:
        if not route.request.is_asked:
            yield RouteEntry(_render_match(route), "pass")
        elif f"{route.path}/".startswith(prefixes):
            yield RouteEntry(_render_match(route), "ask")


def _render_match(route: Route) -> Mapping[str, str]:
    if route.kind is PathMatch.EXACT:
        return {"path": route.path}
    return {"path_separated_prefix" if route.is_parted else "prefix": route.path}


def _render_leaving_value(header: str, marks: str, services: str) -> str:
    """Render the value that replaces a header after all changes by the route.

    In a request with the mark, it is the value from the authorization service. In other requests
    it is empty to a Service of the model, and unchanged to other Services. A value that can't be
    evaluated is empty.
    """
    key = _quote_cel(header)
    said = f"metadata.filter_metadata[{_quote_cel(_ANSWER)}][{key}]"
    marked = f"{_quote_cel(marks)} in metadata.filter_metadata"
    leads_here = f"xds.cluster_name.endsWith({_quote_cel(services)})"
    return f"%CEL({marked} ? {said} : {leads_here} ? '' : request.headers[{key}])%"


def _quote_cel(text: str) -> str:
    """Render a string literal of CEL, with every special character escaped."""
    return "'" + re.sub(r"[^a-z0-9._-]", lambda match: f"\\x{ord(match[0]):02x}", text) + "'"
