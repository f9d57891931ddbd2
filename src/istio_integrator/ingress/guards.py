"""The guard before the routes of the model, in the words of its EnvoyFilter."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping

from istio_integrator.ingress import authorization, gateway
from istio_integrator.kube import cluster

FOLDER = "authentication"

MOST_UNASKED = 64
"""Routes about which nobody is asked, each a patch of half a KB in the same EnvoyFilter."""
_SECRET = re.compile(r"[!-~]{16,253}")
"""A name that nobody guesses. One that is empty would stand for every route of the gateway."""
_MOST_DASHES = 4
"""Dashes of a header's name up to which each may be an underscore in a spelling of its own: 16
spellings; `x-goog-authenticated-user-email` has four."""
_ANSWER = "envoy.filters.http.ext_authz"
"""Where Envoy's filter leaves what the service said, whatever the filter's own name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in authentication."""

    name: str
    namespace: str
    selector: Mapping[str, str]
    everywhere: bool
    """Whether the filters stand before every host of the workload whatever its routes say."""
    own_hosts: tuple[str, ...] | None
    """Hosts before which routes have them stand; None: all."""
    own_endings: tuple[str, ...]
    """What hosts within our wildcards end with; before those they stand in plain HTTP."""
    redirects: bool
    """Whether our Gateway answers plain HTTP with nothing but redirects."""
    gateway: str
    """Our Gateway, all of whose HTTPS hosts are guarded."""
    service: authorization.Service | None
    identity_headers: tuple[str, ...]
    kept: tuple[str, ...]
    """Those of them that the service says, until the request leaves."""
    leaving: tuple[authorization.Header, ...]
    """What a request that has an identity leaves with, in every spelling."""
    unasked: tuple[str, ...]
    """The names of routes about which nobody is asked."""


def context(
    guard: authorization.Guard,
    target: gateway.Target,
    *,
    owner: str,
    model: str,
    domain: str,
    redirects: bool = False,
    unasked: Iterable[str] = (),
) -> Context:
    """Put a guard into the words of its template.

    Without hosts of our own the gateway is ours alone, and everything on it is guarded, also
    routes that others bind to our Gateway with hosts of their own. Otherwise the gateway is
    shared, and what is guarded is told by the host that a request names: the name of a virtual
    host is up to whoever came first. HTTPS is known to be our Gateway's or not.

    A host within a wildcard of ours may be in a Gateway of others, too, and in plain HTTP its
    routes and those that are bound to our Gateway are in one virtual host. Somebody is asked about
    all of them, unless our Gateway only redirects, and with it whatever is in that virtual host.
    Envoy takes the word of a proxy before it for whether a request came by TLS, where it is told
    that there is one; such a request is not redirected.

    A route about which nobody is asked is told by its name alone (istio
    pilot/pkg/networking/core/envoyfilter, rc_patch.go), which whoever may bind routes to our
    Gateway could use, too, if it could be guessed. A closed guard makes no exception.

    Args:
        guard: What is to stand before the routes.
        target: The gateway workload, and what is served by it.
        owner: Us.
        model: Where our Gateway is, and the Services that an identity is for.
        domain: The cluster's, which ends the names of Services.
        redirects: Whether nothing but redirects is served without TLS, by the Gateway that stands.
        unasked: The names of routes (`spec.http[].name`) about which nobody is asked, with random
            bits in each; the first `MOST_UNASKED` that nobody can guess count.
    """
    hosts, own = target.hosts, target.is_own
    name = f"istio-integrator.{owner}".lower()
    services = f".{model}.svc.{domain}"
    wildcards = [host for host in hosts if host.startswith("*")]
    everywhere = not hosts
    identity = guard.service.identity_headers if guard.service else ()
    return Context(
        name=name,
        namespace=target.namespace,
        selector=target.selector,
        everywhere=everywhere,
        own_hosts=(
            None if own or everywhere else tuple(host for host in hosts if host not in wildcards)
        ),
        own_endings=tuple(host[1:] for host in wildcards),
        redirects=redirects and target.only_https,
        gateway=f"{model}/{gateway.NAME}",
        service=guard.service,
        identity_headers=identity,
        kept=tuple(
            header
            for header in identity
            if guard.service and header in guard.service.response_headers
        ),
        leaving=tuple(
            authorization.Header(spelling, _as_said(spelling, name, services))
            for header in identity
            for spelling in _spellings(header)
        ),
        unasked=_exempt(unasked) if guard.service else (),
    )


def _exempt(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(_SECRET.fullmatch, names)))[:MOST_UNASKED]


def too_many(left: int) -> str:
    """Say that about some routes somebody is asked though nobody is to be."""
    return (
        f"{left} more than {MOST_UNASKED} routes without authentication: these need a login; "
        "remove relations to istio-ingress-route-unauthenticated"
    )


def exempted(guard: cluster.Object) -> tuple[str, ...]:
    """Read from our EnvoyFilter the names of routes about which nobody is asked."""
    found = (
        cluster.at(patch, "match", "routeConfiguration", "vhost", "route").get("name")
        for patch in cluster.parts(cluster.at(guard, "spec"), "configPatches")
        if patch.get("applyTo") == "HTTP_ROUTE"
    )
    return tuple(name for name in found if isinstance(name, str) and name)


def _spellings(header: str) -> Iterable[str]:
    """Spell a name in each way that an application may read as the same (WSGI, CGI)."""
    parts = header.split("-")
    if len(parts) - 1 > _MOST_DASHES:
        return dict.fromkeys((header, header.replace("-", "_")))
    signs = itertools.product("-_", repeat=len(parts) - 1)
    return ["".join(map("".join, zip(parts, (*each, ""), strict=True))) for each in signs]


def _as_said(header: str, name: str, services: str) -> str:
    """Write what a header is replaced by after everything that a route may do to it.

    Where we asked, it is what the service said. Elsewhere it is nothing on the way to a Service
    of the model, and stays as it is on the way to others. What can't be told is nothing.

    Args:
        header: Its name in one spelling.
        name: The metadata by which it is known that we asked.
        services: The end of the names of the model's Services.
    """
    key = _quoted(header)
    said = f"metadata.filter_metadata[{_quoted(_ANSWER)}][{key}]"
    asked = f"{_quoted(name)} in metadata.filter_metadata"
    leads_here = f"xds.cluster_name.endsWith({_quoted(services)})"
    return f"%CEL({asked} ? {said} : {leads_here} ? '' : request.headers[{key}])%"


def _quoted(text: str) -> str:
    """Write a string of CEL that nothing in it can end."""
    return "'" + re.sub(r"[^a-z0-9._-]", lambda match: f"\\x{ord(match[0]):02x}", text) + "'"
