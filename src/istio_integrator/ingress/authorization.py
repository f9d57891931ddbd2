"""Who is asked about each request to the model, and what holds while there is nobody to ask."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from typing import Any

from integrator_contract import charm_facts
from istio_integrator import parts
from istio_integrator.messages import Message, Said
from istio_integrator.relations import kubeflow

IDENTITIES = ("kubeflow-userid", "kubeflow-groups")
"""Headers by which Kubeflow knows users, whatever an authorization service says of itself."""

_ALWAYS_SHOWN = frozenset(
    {"authorization", "content-length", "host", ":authority", ":method", ":path"}
)
"""Headers that the authorization service gets unasked."""
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
    problem: Message | None = None
    """Why nothing passes."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing passes."""
        return self.guard is not None and self.guard.service is None

    @property
    def word(self) -> charm_facts.Guard:
        """What stands before the routes, in the word of the metrics."""
        if self.guard is None:
            return "none"
        return "closed" if self.is_closed else "asks"


def decide(
    ingress_auth: Sequence[kubeflow.Received[kubeflow.AuthRequest]],
    forwarded: Sequence[kubeflow.Received[kubeflow.ForwardAuth]],
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
        applications = kubeflow.names([*ingress_auth, *forwarded])
        return _closed(Said.SEVERAL_AUTHENTICATORS(applications=applications))
    for one in ingress_auth:
        asked = one.message and _by_name(one.message, model=model, domain=domain)
        return _asked(one, kubeflow.INGRESS_AUTH, asked, services)
    for one in forwarded:
        asked = one.message and _by_address(one.message, domain=domain)
        return _asked(one, kubeflow.FORWARD_AUTH, asked, services)
    if strict:
        return _closed(Said.NO_AUTHENTICATOR())
    return Decision()


def _closed(problem: Message) -> Decision:
    return Decision(guard=Guard(), problem=problem)


def _both(named: str, forwarded: str, application: str) -> Decision:
    """Ask nobody, since either may be meant."""
    return _closed(
        Said.TWO_WAYS_TO_AUTHENTICATE(
            first=f"{named} on {kubeflow.INGRESS_AUTH}",
            second=f"{forwarded} on {kubeflow.FORWARD_AUTH}",
            command=f"juju remove-relation {application}:{kubeflow.FORWARD_AUTH} {forwarded}",
        )
    )


def _by_name(said: kubeflow.AuthRequest, *, model: str, domain: str) -> Service:
    return Service(
        host=f"{said.service}.{said.namespace or model}.svc.{domain}",
        port=said.port,
        request_headers=said.allowed_request_headers,
        response_headers=said.allowed_response_headers,
    )


def _by_address(said: kubeflow.ForwardAuth, *, domain: str) -> Service | str:
    """Find the Service that an address means, or say why it means none.

    Charms write `cluster.local` whatever the cluster's domain is.
    """
    address = said.decisions_address
    found = _OF_A_SERVICE.fullmatch(address.host)
    if found is None or found["domain"] not in (None, domain, parts.CLUSTER_DOMAIN):
        return (
            f"{kubeflow.ADDRESS} has the host {address.host}, which is no Service of this "
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
        return _closed(
            Said.AUTHENTICATOR_INVALID(
                endpoint=endpoint, application=said.application, problem=problem
            )
        )
    if not isinstance(asked, Service):
        missing = f"{said.application} on {endpoint}"
    elif asked.reference not in services:
        missing = f"Service {asked.reference} of {said.application}"
    else:
        return Decision(guard=Guard(service=asked))
    return _closed(Said.AUTHENTICATOR_AWAITED(what=missing))
