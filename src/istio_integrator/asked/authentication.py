"""The authorization service that authenticates requests, or the rule without one."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping

from integrator_contract import charm_facts
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template
from istio_integrator.relations import kubeflow
from istio_integrator.situation.situation import CLUSTER_DOMAIN, Situation

IDENTITIES = ("kubeflow-userid", "kubeflow-groups")
"""Identity headers of Kubeflow, whichever headers an authorization service declares."""

_ALWAYS_SHOWN = frozenset(
    {"authorization", "content-length", "host", ":authority", ":method", ":path"}
)
"""Headers that Envoy always sends to the authorization service."""
_MOST_DASHES = 4
"""Dashes of a header's name up to which every spelling with underscores is covered: 16 spellings;
`x-goog-authenticated-user-email` has four dashes."""
_MOST_SPELLINGS = 900
"""Envoy refuses routes to which all EnvoyFilters together add more than 1,000 headers."""
_LABEL = kubeflow.DNS_LABEL.pattern
_OF_A_SERVICE = re.compile(
    rf"(?P<name>{_LABEL})\.(?P<namespace>{_LABEL})\.svc(?:\.(?P<domain>.+?))?\.?"
)


_SHOWN = ("accept", "cookie", "x-auth-token", "x-forwarded-for", "x-forwarded-proto")
"""Request headers for an application on `forward-auth`, whose relation does not declare any.

By `accept` it knows browsers, which it redirects. Envoy sets the last two itself.
"""
_DESCRIBING = {
    "x-forwarded-method": "%REQ(:method)%",
    "x-forwarded-host": "%REQ(:authority)%",
    "x-forwarded-uri": "%REQ(:path)%",
}
"""Headers that describe a request to such an application, in Envoy's format strings.

Oathkeeper and oauth2-proxy decide by them. A client that could set them could open every path.
"""


def list_spellings(header: str) -> list[str]:
    """List the spellings of a name that applications may treat as equal (WSGI, CGI)."""
    parts = header.split("-")
    if len(parts) - 1 > _MOST_DASHES:
        return [header, header.replace("-", "_")]
    signs = itertools.product("-_", repeat=len(parts) - 1)
    return ["".join(map("".join, zip(parts, (*each, ""), strict=True))) for each in signs]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuthorizationService:
    """An authorization service."""

    host: str
    """`NAME.NAMESPACE.svc.DOMAIN`."""
    port: int
    path: str = ""
    """A prefix of the request's path in the call to the service."""
    request_headers: tuple[str, ...] = ()
    """Request headers that Envoy sends to the service."""
    describing: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Headers that Envoy adds to the call; values from the client are replaced."""
    response_headers: tuple[str, ...] = ()
    """Headers of its answer that applications get."""

    @property
    def identity_headers(self) -> tuple[str, ...]:
        """Headers that only the service may set; the gateway removes those that clients send.

        A header that the service reads from clients is not among them.
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
        """The name of its cluster in Envoy, as istiod writes it."""
        return f"outbound|{self.port}||{self.host}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Authentication:
    """How requests are authenticated; with neither service nor problem they are not."""

    service: AuthorizationService | None = None
    problem: Message | None = None
    """Why every request is rejected."""

    @property
    def is_closed(self) -> bool:
        """Whether every request is rejected."""
        return self.problem is not None

    @property
    def guard_state(self) -> charm_facts.Guard:
        """The state of the guard, as a value of metrics."""
        if self.is_closed:
            return "closed"
        return "asks" if self.service else "none"


def decide(situation: Situation) -> Authentication:
    """Decide which service authenticates requests.

    The Service must exist. Otherwise any team could take its host by a ServiceEntry, and so
    decide about every request.
    """
    by_name = kubeflow.read_ingress_auth(situation.related)
    by_address = kubeflow.read_forward_auth(situation.related)
    if by_name and by_address:
        first, second = kubeflow.format_senders(by_name), kubeflow.format_senders(by_address)
        command = f"juju remove-relation {situation.application}:{kubeflow.FORWARD_AUTH} {second}"
        problem = Template.TWO_WAYS_TO_AUTHENTICATE(
            first=f"{first} on {kubeflow.INGRESS_AUTH}",
            second=f"{second} on {kubeflow.FORWARD_AUTH}",
            command=command,
        )
        return Authentication(problem=problem)
    received = [*by_name, *by_address]
    if not received:
        closed = Template.NO_AUTHENTICATOR(application=situation.application)
        return Authentication(problem=closed if situation.config.require_authentication else None)
    if len(received) > 1:
        applications = kubeflow.format_senders(received)
        return Authentication(problem=Template.SEVERAL_AUTHENTICATORS(applications=applications))
    (one,) = received
    endpoint = kubeflow.INGRESS_AUTH if by_name else kubeflow.FORWARD_AUTH
    found = one.message and _find_service(situation, one.message)
    if isinstance(found, AuthorizationService):
        count = sum(len(list_spellings(header)) for header in found.identity_headers)
        if count > _MOST_SPELLINGS:
            found = (
                f"its response headers have {count} spellings, and {_MOST_SPELLINGS} are possible"
            )
    if problem := one.problem or (found if isinstance(found, str) else ""):
        invalid = Template.AUTHENTICATOR_INVALID(
            endpoint=endpoint, application=one.application, problem=problem
        )
        return Authentication(problem=invalid)
    if not isinstance(found, AuthorizationService):
        missing = f"{one.application} on {endpoint}"
    elif situation.cluster.get(cluster.SERVICE, *found.host.split(".")[:2]) is None:
        missing = f"Service {found.reference} of {one.application}"
    else:
        return Authentication(service=found)
    return Authentication(problem=Template.AUTHENTICATOR_AWAITED(what=missing))


def _find_service(
    situation: Situation, said: kubeflow.AuthRequest | kubeflow.ForwardAuth
) -> AuthorizationService | str:
    domain = situation.cluster_domain
    if isinstance(said, kubeflow.AuthRequest):
        return AuthorizationService(
            host=f"{said.service}.{said.namespace or situation.model}.svc.{domain}",
            port=said.port,
            request_headers=said.allowed_request_headers,
            response_headers=said.allowed_response_headers,
        )
    address = said.decisions_address
    found = _OF_A_SERVICE.fullmatch(address.host)
    # Charms write `cluster.local` whatever the cluster's domain is.
    if found is None or found["domain"] not in (None, domain, CLUSTER_DOMAIN):
        return (
            f"{kubeflow.ADDRESS} has the host {address.host}, which is no Service of this "
            f"cluster such as oauth2-proxy.kubeflow.svc.{domain}"
        )
    return AuthorizationService(
        host=f"{found['name']}.{found['namespace']}.svc.{domain}",
        port=address.port,
        path=address.path,
        request_headers=_SHOWN,
        describing=_DESCRIBING,
        response_headers=tuple(dict.fromkeys((*said.headers, *IDENTITIES))),
    )
