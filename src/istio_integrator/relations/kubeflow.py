"""The wire formats of Kubeflow's charms: serialized-data-interface and `istio-gateway-info`.

With serialized-data-interface `_supported_versions` is a YAML list and `data` one YAML document,
both in the application's data bag.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Generic, Protocol, Self, TypeVar, cast

import pydantic
import yaml

from integrator_contract import bounded, pods
from istio_integrator import texts
from istio_integrator.relations import endpoints

INGRESS = "ingress"
INGRESS_AUTH = "ingress-auth"
GATEWAY_INFO = "gateway-info"
ISTIO_PILOT = "istio-pilot"
FORWARD_AUTH = "forward-auth"
INGRESS_ROUTE = "istio-ingress-route"
OPEN_INGRESS_ROUTE = "istio-ingress-route-unauthenticated"
INGRESS_ROUTES = (INGRESS_ROUTE, OPEN_INGRESS_ROUTE)
ROUTING = (INGRESS, *INGRESS_ROUTES)
"""Endpoints by which applications ask for routes."""
GATEWAY_METADATA = "gateway-metadata"
EXPOSING = (*ROUTING, INGRESS_AUTH, FORWARD_AUTH, GATEWAY_INFO, GATEWAY_METADATA)
"""Endpoints whose relations want the model to be reached from outside."""

VERSIONS = "_supported_versions"
DATA = "data"

_TRAEFIK = frozenset({"model", "name", "port"})
"""What an application always sends whose interface `ingress` is Traefik's: see
`lib/charms/traefik_k8s/v1` and `v2` in traefik-k8s-operator. Juju knows interfaces by name, and
relates that one too.
"""
_SPEAKS_TRAEFIK = (
    "speaks Traefik's ingress, which is not served here: remove this relation and relate it to "
    "traefik-k8s"
)

_LONGEST_PATH = 256
"""Characters of a path; those of Kubeflow's charms have some twenty."""
_LONGEST_HEADER = 128
"""Characters of a header's name."""
_MOST_HEADERS = 64
"""Headers of a list; Envoy copies each with every request."""
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH = re.compile(r"/[!-~]*")
_OF_ANOTHER_MODEL = re.compile(r"remote-[0-9a-f]{32}$")
"""Juju calls an application so that reaches us by an offer (juju's crossmodelrelations facade)."""


def like(pattern: str, problem: str) -> pydantic.AfterValidator:
    """Refuse text that a regular expression does not match as a whole."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(problem)
        return value

    return pydantic.AfterValidator(check)


def path(value: str) -> str:
    """Check a path of a URL.

    Raises:
        ValueError: It is none, or too long; the message says which.
    """
    if len(value) > _LONGEST_PATH:
        raise ValueError(f"is longer than {_LONGEST_PATH} characters")
    if not _PATH.fullmatch(value) or "?" in value or "#" in value:
        raise ValueError("is not a path such as /pipeline")
    return value


def _headers(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(values) > _MOST_HEADERS:
        raise ValueError(f"has more than {_MOST_HEADERS} headers")
    for value in values:
        if len(value) > _LONGEST_HEADER or not _HEADER.fullmatch(value):
            raise ValueError(f"'{texts.plain(value, 40)}' is not the name of a header")
    return tuple(dict.fromkeys(value.lower() for value in values))


Text = Annotated[str, pydantic.Strict()]
DnsLabel = Annotated[Text, like(DNS_LABEL.pattern, "is not a name such as kfp-ui")]
Path = Annotated[Text, pydantic.AfterValidator(path)]
Port = Annotated[int, pydantic.Strict(), pydantic.Field(ge=1, le=pods.HIGHEST_PORT)]
Headers = Annotated[tuple[str, ...], pydantic.AfterValidator(_headers)]


class _Message(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="ignore",
        # As in all that relations bring: few hooks read any of it.
        defer_build=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class _ServiceRequest(_Message):
    service: DnsLabel
    port: Port
    namespace: DnsLabel | None = None
    """Where the Service is; None: in the model."""


class IngressRequest(_ServiceRequest):
    """One path that an application wants to be reachable by (`ingress` v1)."""

    prefix: Path
    rewrite: Path | None = None
    """What replaces the prefix; None: nothing does."""


class NamespacedIngressRequest(IngressRequest):
    """The same with the namespace always given (`ingress` v2)."""

    @pydantic.model_validator(mode="after")
    def _namespace_is_given(self) -> Self:
        if self.namespace is None:
            raise ValueError("namespace is missing")
        return self


class AuthRequest(_ServiceRequest):
    """Who is to be asked about each request (`ingress-auth` v1)."""

    allowed_request_headers: Headers = ()
    """What the authorization service gets to see, beside Authorization and the request line."""
    allowed_response_headers: Headers = ()
    """What the applications get from it."""


INGRESS_MODELS: Mapping[str, type[IngressRequest]] = {
    "v1": IngressRequest,
    "v2": NamespacedIngressRequest,
}
AUTH_MODELS: Mapping[str, type[AuthRequest]] = {"v1": AuthRequest}

_SUPPORTED = {
    INGRESS: tuple(INGRESS_MODELS),
    INGRESS_AUTH: tuple(AUTH_MODELS),
    ISTIO_PILOT: ("v1",),
}

_Model = TypeVar("_Model", bound=_ServiceRequest)
_Said = TypeVar("_Said")


@dataclasses.dataclass(frozen=True)
class Received(Generic[_Said]):
    """What one related application said."""

    relation: int
    """The relation's id, which is unique in the model."""
    application: str
    message: _Said | None = None
    """None while there is none, or none that can be understood."""
    problem: str = ""
    """What is wrong with it; empty while it only has not come yet."""


def read(bag: Mapping[str, str], models: Mapping[str, type[_Model]]) -> tuple[_Model | None, str]:
    """Read one application's data bag.

    Returns:
        The message, or what is wrong; neither where the other side has not written yet.
    """
    if VERSIONS not in bag or DATA not in bag:
        is_traefiks = bag.keys().isdisjoint((VERSIONS, DATA)) and bag.keys() >= _TRAEFIK
        return None, _SPEAKS_TRAEFIK if is_traefiks else ""
    try:
        common = _versions(bounded.read_yaml(bag[VERSIONS])) & models.keys()
        if not common:
            return None, f"speaks none of the versions {', '.join(models)}"
        data = bounded.read_yaml(bag[DATA])
        return (models[max(common)].model_validate(data) if data else None), ""
    except pydantic.ValidationError as error:
        return None, texts.problems(error)
    except bounded.DocumentError as error:
        return None, texts.plain(f"sends a document that {error}", texts.LONGEST_PROBLEM)


def _versions(value: Any) -> set[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    # Integers are allowed beside v1; nobody is known to send them.
    return {f"v{item}" if isinstance(item, int) else str(item) for item in items}


def announce_versions(related: endpoints.Relations) -> None:
    """Tell every SDI relation the versions, without which the other side raises errors."""
    for endpoint, versions in _SUPPORTED.items():
        related.write(endpoint, {VERSIONS: yaml.safe_dump(list(versions))})


def is_of_another_model(application: str) -> bool:
    """Tell whether an application reaches us by an offer."""
    return bool(_OF_ANOTHER_MODEL.match(application))


def ingress(related: endpoints.Relations) -> list[Received[IngressRequest]]:
    """List what every application that is related to `ingress` said."""
    return _received(related, INGRESS, INGRESS_MODELS)


def ingress_auth(related: endpoints.Relations) -> list[Received[AuthRequest]]:
    """List what every application that is related to `ingress-auth` said."""
    return _received(related, INGRESS_AUTH, AUTH_MODELS)


def publish_gateway(related: endpoints.Relations, *, name: str, namespace: str, up: bool) -> None:
    """Tell which Gateway there is (`gateway-info`)."""
    bag = {"gateway_name": name, "gateway_namespace": namespace, "gateway_up": str(up).lower()}
    related.write(GATEWAY_INFO, bag)


def publish_pilot(related: endpoints.Relations, *, service: str, port: int) -> None:
    """Tell where istiod is (`k8s-service`)."""
    data = yaml.safe_dump({"service-name": service, "service-port": str(port)})
    related.write(ISTIO_PILOT, {DATA: data})


class Named(Protocol):
    """What an application said."""

    @property
    def application(self) -> str:
        """Who said it."""
        ...


def names(received: Iterable[Named]) -> str:
    """Name applications for a message."""
    return ", ".join(sorted({one.application for one in received}))


def _received(
    related: endpoints.Relations, endpoint: str, models: Mapping[str, type[_Model]]
) -> list[Received[_Model]]:
    found: list[Received[_Model]] = []
    for bag in related.bags(endpoint):
        message, problem = read(bag.content, models)
        is_foreign = is_of_another_model(bag.application)
        if message and message.namespace is None and is_foreign:
            message, problem = None, "sends no namespace, which another model's has to"
        found.append(Received(bag.relation, bag.application, message, problem))
    return sorted(found, key=lambda received: received.relation)
