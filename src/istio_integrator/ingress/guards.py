"""Who is asked about each request to the model, and what holds while there is nobody to ask."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from istio_integrator.ingress import gateway
from istio_integrator.relations import kubeflow

FOLDER = "authentication"

_ALWAYS_SHOWN = frozenset(
    {"authorization", "content-length", "host", ":authority", ":method", ":path"}
)
"""Headers that the authorization service gets unasked."""
MOST_SPARED = 64
"""Gateways of newcomers that a guard spares, the oldest first: each is a patch of half a KB in an
EnvoyFilter that the API server refuses from 1.5 MB on."""
_MOST_DASHES = 4
"""Dashes of a header's name up to which each may be an underscore in a spelling of its own: 16
spellings; `x-goog-authenticated-user-email` has four."""
_ANSWER = "envoy.filters.http.ext_authz"
"""Where Envoy's filter leaves what the service said, whatever the filter's own name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Service:
    """The authorization service."""

    host: str
    port: int
    request_headers: tuple[str, ...] = ()
    """What it gets to see."""
    response_headers: tuple[str, ...] = ()
    """What it says about a user, to the applications."""

    @property
    def identity_headers(self) -> tuple[str, ...]:
        """Headers that only the service may set: what clients send in them is taken away.

        A header that the service is shown is one that it reads from clients.
        """
        shown = _ALWAYS_SHOWN | set(self.request_headers)
        return tuple(header for header in self.response_headers if header not in shown)

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
    received: Sequence[kubeflow.Received[kubeflow.AuthRequest]],
    *,
    strict: bool,
    model: str,
    domain: str,
    services: Collection[str],
) -> Decision:
    """Decide who is asked.

    A name that no Service has is anybody's: istiod gives it to whoever writes a ServiceEntry of
    it, and that one would decide about every request.

    Args:
        received: What the applications that are related to `ingress-auth` said.
        strict: Whether nothing passes without an application to ask.
        model: Where the application is, if it doesn't say so.
        domain: The cluster's, which ends the names of Services.
        services: Those that there are, each `namespace/name`.
    """
    if not received:
        if not strict:
            return Decision()
        return Decision(
            guard=Guard(),
            blocked="ingress is closed: integrate ingress-auth, or set strict-ingress-auth=false",
        )
    if len(received) > 1:
        names = kubeflow.names(received)
        return Decision(guard=Guard(), blocked=f"ingress is closed: keep one of {names}")
    return _asked(received[0], model=model, domain=domain, services=services)


def _asked(
    said: kubeflow.Received[kubeflow.AuthRequest],
    *,
    model: str,
    domain: str,
    services: Collection[str],
) -> Decision:
    """Have the one application that is related be asked, once it can be."""
    if said.problem:
        problem = f"ingress-auth of {said.application}: {said.problem}"
        return Decision(guard=Guard(), blocked=f"ingress is closed: {problem}")
    if said.message is None:
        missing = f"{said.application} on ingress-auth"
        return Decision(guard=Guard(), waiting=f"ingress is closed: waiting for {missing}")
    request = said.message
    namespace = request.namespace or model
    if f"{namespace}/{request.service}" not in services:
        missing = f"Service {namespace}/{request.service} of {said.application}"
        return Decision(guard=Guard(), waiting=f"ingress is closed: waiting for {missing}")
    service = Service(
        host=f"{request.service}.{namespace}.svc.{domain}",
        port=request.port,
        request_headers=request.allowed_request_headers,
        response_headers=request.allowed_response_headers,
    )
    return Decision(guard=Guard(service=service))


@dataclasses.dataclass(frozen=True)
class Header:
    """A header as it leaves the gateway."""

    name: str
    value: str
    """As Envoy's substitution format strings write it."""


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
    leaving: tuple[Header, ...]
    """What a request that has an identity leaves with, in every spelling."""


def context(
    guard: Guard, target: gateway.Target, *, owner: str, model: str, domain: str
) -> Context:
    """Put a guard into the words of its template.

    Without hosts of our own the gateway is ours alone, and everything on it is guarded, also
    routes that others bind to our Gateway with hosts of their own. The same holds for wildcards:
    routes to hosts within them are in virtual hosts that nobody can name beforehand, except those
    of HTTPS, which are known to be our Gateway's. Otherwise the gateway is shared, and what is
    guarded is told by the host that a request names: the name of a virtual host is up to whoever
    came first.

    Args:
        guard: What is to stand before the routes.
        target: The gateway workload, and what is served by it.
        owner: Us.
        model: Where our Gateway is, and the Services that an identity is for.
        domain: The cluster's, which ends the names of Services.
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
        leaving=tuple(
            Header(spelling, _as_said(spelling, name, services))
            for header in identity
            for spelling in _spellings(header)
        ),
    )


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
