"""Who is asked about each request to the model, and what holds while there is nobody to ask."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import gateway
import relations

FOLDER = "authentication"

_ALWAYS_SHOWN = frozenset(
    {"authorization", "content-length", "host", ":authority", ":method", ":path"}
)
"""Headers that the authorization service gets unasked."""


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
    provider: str = ""
    """The mesh's extension provider that asks; empty: our own filter."""


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
    received: Sequence[relations.Received[relations.AuthRequest]],
    *,
    strict: bool,
    model: str,
    domain: str,
) -> Decision:
    """Decide who is asked.

    Args:
        received: What the applications that are related to `ingress-auth` said.
        strict: Whether nothing passes without an application to ask.
        model: Where the application is, if it doesn't say so.
        domain: The cluster's, which ends the names of Services.
    """
    if not received:
        if not strict:
            return Decision()
        return Decision(
            guard=Guard(),
            blocked="ingress is closed: integrate ingress-auth, or set strict-ingress-auth=false",
        )
    if len(received) > 1:
        names = relations.names(received)
        return Decision(guard=Guard(), blocked=f"ingress is closed: keep one of {names}")
    only = received[0]
    if only.problem:
        return Decision(
            guard=Guard(),
            blocked=f"ingress is closed: ingress-auth of {only.application}: {only.problem}",
        )
    if only.message is None:
        return Decision(
            guard=Guard(),
            waiting=f"ingress is closed: waiting for {only.application} on ingress-auth",
        )
    request = only.message
    service = Service(
        host=f"{request.service}.{request.namespace or model}.svc.{domain}",
        port=request.port,
        request_headers=request.allowed_request_headers,
        response_headers=request.allowed_response_headers,
    )
    return Decision(guard=Guard(service=service))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in authentication."""

    name: str
    namespace: str
    selector: Mapping[str, str]
    everywhere: bool
    """Whether the filters stand before every host of the workload."""
    own_hosts: tuple[str, ...]
    """Virtual hosts before which they stand, where not before all."""
    other_hosts: tuple[str, ...]
    """Virtual hosts of others, before which they don't, where before all."""
    gateway: str
    """Our Gateway, all of whose HTTPS hosts are guarded."""
    service: Service | None
    identity_headers: tuple[str, ...]
    provider: str
    policy_hosts: tuple[str, ...]
    """Hosts that the provider asks about; empty: all."""
    policy_not_hosts: tuple[str, ...]
    """Hosts of others among them."""


def context(
    guard: Guard,
    target: gateway.Target,
    *,
    owner: str,
    gateway: str,
    hosts: Iterable[str],
    only_https: bool = False,
) -> Context:
    """Put a guard into the words of its template.

    Without hosts of our own the gateway is ours alone, and everything on it is guarded, also
    routes that others bind to our Gateway with hosts of their own. The same holds for wildcards:
    routes to hosts within them are in virtual hosts that nobody can name beforehand, except those
    of HTTPS, which are known to be our Gateway's. Otherwise the gateway is shared.

    Args:
        guard: What is to stand before the routes.
        target: The gateway workload.
        owner: Us.
        gateway: Our Gateway, `namespace/name`.
        hosts: Of the model; none: all.
        only_https: Whether nothing but redirects is served without TLS.
    """
    own = tuple(hosts)
    has_wildcard = any(host.startswith("*") for host in own)
    everywhere = not own or (has_wildcard and not (target.neighbours and only_https))
    others = _others(target, own) if everywhere else ()
    return Context(
        name=f"istio-integrator.{owner}".lower(),
        namespace=target.namespace,
        selector=target.selector,
        everywhere=everywhere,
        own_hosts=tuple(f"{host}:{port}" for host in own for port in target.ports),
        other_hosts=others,
        gateway=gateway,
        service=guard.service,
        identity_headers=guard.service.identity_headers if guard.service else (),
        provider=guard.provider,
        policy_hosts=_with_any_port(own),
        policy_not_hosts=_with_any_port({other.rpartition(":")[0] for other in others}),
    )


def _with_any_port(hosts: Iterable[str]) -> tuple[str, ...]:
    """Spell hosts as AuthorizationPolicies do, which compare the whole Host header.

    A wildcard can't have another one after it: with a port, such a host is left to our filter.
    """
    return tuple(
        spelling
        for host in sorted(hosts)
        for spelling in ((host,) if host.startswith("*") else (host, f"{host}:*"))
    )


def _others(target: gateway.Target, own: Iterable[str]) -> tuple[str, ...]:
    """Name the virtual hosts of Gateways that came to the workload after ours."""
    ours = {"*", *own}
    return tuple(
        sorted(
            {
                f"{host}:{port}"
                for neighbour in target.neighbours
                for port in {server.port for server in neighbour.servers}
                for host in neighbour.hosts_at(port)
                if host not in ours
            }
        )
    )
