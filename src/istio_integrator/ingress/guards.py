"""Who is asked about each request to the model, and what holds while there is nobody to ask."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from istio_integrator import parts
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster
from istio_integrator.relations import forward_auth, kubeflow

FOLDER = "authentication"

IDENTITIES = ("kubeflow-userid", "kubeflow-groups")
"""Headers by which Kubeflow knows users, whatever an authorization service says of itself."""

_ALWAYS_SHOWN = frozenset(
    {"authorization", "content-length", "host", ":authority", ":method", ":path"}
)
"""Headers that the authorization service gets unasked."""
MOST_SPARED = 64
"""Gateways of newcomers that a guard spares, the oldest first: each is a patch of half a KB in an
EnvoyFilter that the API server refuses from 1.5 MB on."""
MOST_UNASKED = 64
"""Routes about which nobody is asked, each a patch of half a KB in the same EnvoyFilter."""
_SECRET = re.compile(r"[!-~]{16,253}")
"""A name that nobody guesses. One that is empty would stand for every route of the gateway."""
_MOST_DASHES = 4
"""Dashes of a header's name up to which each may be an underscore in a spelling of its own: 16
spellings; `x-goog-authenticated-user-email` has four."""
_ANSWER = "envoy.filters.http.ext_authz"
"""Where Envoy's filter leaves what the service said, whatever the filter's own name."""
_LABEL = kubeflow.DNS_LABEL.pattern
_OF_A_SERVICE = re.compile(
    rf"(?P<name>{_LABEL})\.(?P<namespace>{_LABEL})\.svc(?:\.(?P<domain>.+?))?\.?"
)


@dataclasses.dataclass(frozen=True)
class Header:
    """A header that the gateway writes."""

    name: str
    value: str
    """As Envoy's substitution format strings write it."""


_SHOWN = ("authorization", "cookie", "x-auth-token", "x-forwarded-for", "x-forwarded-proto")
"""What an application on `forward-auth` gets to see, which doesn't say what it wants to.

Envoy writes the last two by itself.
"""
_DESCRIBING = (
    Header("x-forwarded-method", "%REQ(:method)%"),
    Header("x-forwarded-host", "%REQ(:authority)%"),
    Header("x-forwarded-uri", "%REQ(:path)%"),
)
"""What such an application is told of a request.

Oathkeeper and oauth2-proxy decide by it, so a client's own word for it would open every path.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Service:
    """The authorization service."""

    host: str
    """`NAME.NAMESPACE.svc.DOMAIN`."""
    port: int
    path: str = ""
    """What stands before the path of the request that it is asked about."""
    request_headers: tuple[str, ...] = ()
    """What it gets to see."""
    describing: tuple[Header, ...] = ()
    """What it is told beside, whatever the client says of it."""
    response_headers: tuple[str, ...] = ()
    """What it says about a user, to the applications."""

    @property
    def identity_headers(self) -> tuple[str, ...]:
        """Headers that only the service may set: what clients send in them is taken away.

        A header that the service is shown is one that it reads from clients.
        """
        shown = _ALWAYS_SHOWN | set(self.request_headers)
        known = dict.fromkeys((*self.response_headers, *IDENTITIES))
        return tuple(header for header in known if header not in shown)

    @property
    def reference(self) -> str:
        """`namespace/name`."""
        name, namespace, *_ = self.host.split(".")
        return f"{namespace}/{name}"

    @property
    def cluster(self) -> str:
        """How istiod calls it towards Envoy."""
        return f"outbound|{self.port}||{self.host}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guard:
    """What stands before every route of the model."""

    service: Service | None = None
    """Who is asked; None: nobody, so everything is refused."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether requests pass, and what to say about it."""

    guard: Guard | None = None
    """None: everything passes unasked."""
    waiting: str = ""
    blocked: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether nothing passes."""
        return self.guard is not None and self.guard.service is None


def decide(
    ingress_auth: Sequence[kubeflow.Received[kubeflow.AuthRequest]],
    forwarded: Sequence[kubeflow.Received[forward_auth.ForwardAuth]],
    *,
    strict: bool,
    application: str,
    model: str,
    domain: str,
    services: Collection[str],
) -> Decision:
    """Decide who is asked.

    A name that no Service has is anybody's: istiod gives it to whoever writes a ServiceEntry of
    it, and that one would decide about every request.

    Args:
        ingress_auth: What the applications that are related to `ingress-auth` said.
        forwarded: What those said that are related to `forward-auth`.
        strict: Whether nothing passes without an application to ask.
        application: Ours.
        model: Where an application's Service is, if it doesn't say so.
        domain: The cluster's, which ends the names of Services.
        services: Those that there are, each `namespace/name`.
    """
    if ingress_auth and forwarded:
        return _both(kubeflow.names(ingress_auth), kubeflow.names(forwarded), application)
    if len(ingress_auth) > 1 or len(forwarded) > 1:
        return _blocked(f"keep one of {kubeflow.names([*ingress_auth, *forwarded])}")
    for one in ingress_auth:
        asked = one.message and _by_name(one.message, model=model, domain=domain)
        return _asked(one, kubeflow.INGRESS_AUTH, asked, services)
    for one in forwarded:
        asked = one.message and _by_address(one.message, domain=domain)
        return _asked(one, forward_auth.ENDPOINT, asked, services)
    if strict:
        return _blocked("integrate ingress-auth or forward-auth, or set strict-ingress-auth=false")
    return Decision()


def _blocked(why: str) -> Decision:
    return Decision(guard=Guard(), blocked=f"ingress is closed: {why}")


def _both(named: str, forwarded: str, application: str) -> Decision:
    """Ask nobody, since either may be meant."""
    remove = f"juju remove-relation {application}"
    return _blocked(
        f"{named} on {kubeflow.INGRESS_AUTH} and {forwarded} on {forward_auth.ENDPOINT} are both "
        f"to be asked; keep one, by {remove}:{kubeflow.INGRESS_AUTH} {named} or by "
        f"{remove}:{forward_auth.ENDPOINT} {forwarded}"
    )


def _by_name(said: kubeflow.AuthRequest, *, model: str, domain: str) -> Service:
    return Service(
        host=f"{said.service}.{said.namespace or model}.svc.{domain}",
        port=said.port,
        request_headers=said.allowed_request_headers,
        response_headers=said.allowed_response_headers,
    )


def _by_address(said: forward_auth.ForwardAuth, *, domain: str) -> Service | str:
    """Find the Service that an address means, or say why it means none.

    Charms write `cluster.local` whatever the cluster's domain is.
    """
    address = said.decisions_address
    found = _OF_A_SERVICE.fullmatch(address.host)
    if found is None or found["domain"] not in (None, domain, parts.CLUSTER_DOMAIN):
        return (
            f"{forward_auth.ADDRESS} has the host {address.host}, which is no Service of this "
            f"cluster such as oauth2-proxy.kubeflow.svc.{domain}"
        )
    return Service(
        host=f"{found['name']}.{found['namespace']}.svc.{domain}",
        port=address.port,
        path=address.path,
        request_headers=_SHOWN,
        describing=_DESCRIBING,
        response_headers=tuple(dict.fromkeys((*said.headers, *IDENTITIES))),
    )


def _asked(
    said: kubeflow.Received[Any],
    endpoint: str,
    asked: Service | str | None,
    services: Collection[str],
) -> Decision:
    """Have the one application that is related be asked, once it can be.

    Args:
        said: What it said.
        endpoint: Where.
        asked: Its Service, or why it has none; None while it has not said.
        services: Those that there are.
    """
    if problem := said.problem or (asked if isinstance(asked, str) else ""):
        return _blocked(f"{endpoint} of {said.application}: {problem}")
    if not isinstance(asked, Service):
        missing = f"{said.application} on {endpoint}"
    elif asked.reference not in services:
        missing = f"Service {asked.reference} of {said.application}"
    else:
        return Decision(guard=Guard(service=asked))
    return Decision(guard=Guard(), waiting=f"ingress is closed: waiting for {missing}")


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
    own_wildcards: tuple[str, ...]
    """Virtual hosts that only redirect, before which they stand, where not before all."""
    spared: tuple[str, ...]
    """Gateways before whose HTTPS they don't stand, where before all; each `namespace/name`."""
    gateway: str
    """Our Gateway, all of whose HTTPS hosts are guarded."""
    service: Service | None
    identity_headers: tuple[str, ...]
    kept: tuple[str, ...]
    """Those of them that the service says, until the request leaves."""
    leaving: tuple[Header, ...]
    """What a request that has an identity leaves with, in every spelling."""
    unasked: tuple[str, ...]
    """The names of routes about which nobody is asked."""


def context(
    guard: Guard,
    target: gateway.Target,
    *,
    owner: str,
    model: str,
    domain: str,
    unasked: Iterable[str] = (),
) -> Context:
    """Put a guard into the words of its template.

    Without hosts of our own the gateway is ours alone, and everything on it is guarded, also
    routes that others bind to our Gateway with hosts of their own. The same holds for wildcards:
    routes to hosts within them are in virtual hosts that nobody can name beforehand, except those
    of HTTPS, which are known to be our Gateway's. Otherwise the gateway is shared, and what is
    guarded is told by the host that a request names: the name of a virtual host is up to whoever
    came first.

    A route about which nobody is asked is told by its name alone (istio
    pilot/pkg/networking/core/envoyfilter, rc_patch.go), which whoever may bind routes to our
    Gateway could use, too, if it could be guessed. A closed guard makes no exception.

    Args:
        guard: What is to stand before the routes.
        target: The gateway workload, and what is served by it.
        owner: Us.
        model: Where our Gateway is, and the Services that an identity is for.
        domain: The cluster's, which ends the names of Services.
        unasked: The names of routes (`spec.http[].name`) about which nobody is asked, with random
            bits in each; the first `MOST_UNASKED` that nobody can guess count.
    """
    hosts, own = target.hosts, target.is_own
    name = f"istio-integrator.{owner}".lower()
    services = f".{model}.svc.{domain}"
    wildcards = [host for host in hosts if host.startswith("*")]
    is_shared = bool(target.neighbours) and not own
    everywhere = not hosts or (bool(wildcards) and not (is_shared and target.only_https))
    identity = guard.service.identity_headers if guard.service else ()
    return Context(
        name=name,
        namespace=target.namespace,
        selector=target.selector,
        everywhere=everywhere,
        own_hosts=(
            None if own or everywhere else tuple(host for host in hosts if host not in wildcards)
        ),
        own_wildcards=tuple(f"{host}:{port}" for host in wildcards for port in target.ports),
        spared=() if own or not everywhere else tuple(_sparable(target))[:MOST_SPARED],
        gateway=f"{model}/{gateway.NAME}",
        service=guard.service,
        identity_headers=identity,
        kept=tuple(
            header
            for header in identity
            if guard.service and header in guard.service.response_headers
        ),
        leaving=tuple(
            Header(spelling, _as_said(spelling, name, services))
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


def guarded_too(context: Context, target: gateway.Target) -> list[str]:
    """Name the Gateways of others all of whose hosts are guarded with ours."""
    if context.own_hosts is not None:
        return []
    references = [neighbour.reference for neighbour in target.neighbours]
    return [reference for reference in references if reference not in context.spared]


def _sparable(target: gateway.Target) -> Iterable[str]:
    """Name the Gateways whose HTTPS istiod tells from that of others, the oldest first.

    It reads the Gateway from the name of a route configuration, which has no dots to spare (istio
    pilot/pkg/model, ParseGatewayRDSRouteName). Plain HTTP is one route configuration for all
    Gateways of a port.
    """
    oldest_first = sorted(target.neighbours, key=lambda one: (one.created, one.reference))
    return (one.reference for one in oldest_first if "." not in one.reference)


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
    """
    key = _quoted(header)
    said = f"metadata.filter_metadata[{_quoted(_ANSWER)}][{key}]"
    asked = f"{_quoted(name)} in metadata.filter_metadata"
    leads_here = f"xds.cluster_name.endsWith({_quoted(services)})"
    return f"%CEL({asked} ? {said} : {leads_here} ? '' : request.headers[{key}])%"


def _quoted(text: str) -> str:
    """Write a string of CEL that nothing in it can end."""
    return "'" + re.sub(r"[^a-z0-9._-]", lambda match: f"\\x{ord(match[0]):02x}", text) + "'"
