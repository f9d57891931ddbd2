"""The interfaces of Kubeflow's charms: routes, authentication, the gateway and istiod.

With serialized-data-interface (SDI) `_supported_versions` is a YAML list and `data` one YAML
document, both in the application's data bag. `forward_auth` follows the library
charmlibs.interfaces.forward_auth 1.0, which is not used because it raises on wrong data and
imports jsonschema.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, TypeVar, cast

import pydantic
import yaml
from charmlibs.interfaces.gateway_metadata import GatewayMetadata

from integrator_contract import bounded, pods
from istio_integrator import texts
from istio_integrator.relations import endpoints

logger = logging.getLogger(__name__)

INGRESS = "ingress"
INGRESS_AUTH = "ingress-auth"
GATEWAY_INFO = "gateway-info"
ISTIO_PILOT = "istio-pilot"
ISTIO_METADATA = "istio-metadata"
FORWARD_AUTH = "forward-auth"
INGRESS_ROUTE = "istio-ingress-route"
OPEN_INGRESS_ROUTE = "istio-ingress-route-unauthenticated"
INGRESS_ROUTES = (INGRESS_ROUTE, OPEN_INGRESS_ROUTE)
ROUTING = (INGRESS, *INGRESS_ROUTES)
"""Endpoints by which applications request routes."""
GATEWAY_METADATA = "gateway-metadata"
EXPOSING = (*ROUTING, INGRESS_AUTH, FORWARD_AUTH, GATEWAY_INFO, GATEWAY_METADATA)
"""Endpoints whose relations request ingress of the model."""

# Keys of data bags: those of serialized-data-interface, of forward_auth, and of gateway_metadata.
VERSIONS = "_supported_versions"
DATA = "data"
ADDRESS = "decisions_address"
ROUTED = "ingress_app_names"
METADATA = "metadata"

_TRAEFIK = frozenset({"model", "name", "port"})
"""Keys that an application always sends if its interface `ingress` is Traefik's. Juju relates it
as well, because the name of the interface is the same. See `lib/charms/traefik_k8s/v1` and `v2` in
traefik-k8s-operator.
"""
_SPEAKS_TRAEFIK = (
    "speaks Traefik's ingress, which is not served here: remove this relation and relate it to "
    "traefik-k8s"
)

_LONGEST_PATH = 256
_LONGEST_HEADER = 128
_MOST_HEADERS = 64
"""Headers of one list; Envoy copies each header in every request."""
_LONGEST_ADDRESS = 512
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH = re.compile(r"/[!-~]*")
_URL = re.compile(r"[!-~]+")
_OF_ANOTHER_MODEL = re.compile(r"remote-[0-9a-f]{32}$")
"""Juju's name for an application that relates by an offer (its crossmodelrelations facade)."""

_Message = TypeVar("_Message")


def require_pattern(pattern: str, problem: str) -> pydantic.AfterValidator:
    """Return a validator that rejects text which a regular expression does not fully match."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(problem)
        return value

    return pydantic.AfterValidator(check)


def validate_path(value: str) -> str:
    """Return a valid path of a URL, or raise a ValueError with the problem."""
    if len(value) > _LONGEST_PATH:
        raise ValueError(f"is longer than {_LONGEST_PATH} characters")
    if not _PATH.fullmatch(value) or "?" in value or "#" in value:
        raise ValueError("is not a path such as /pipeline")
    return value


def _validate_headers(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(values) > _MOST_HEADERS:
        raise ValueError(f"has more than {_MOST_HEADERS} headers")
    for value in values:
        if len(value) > _LONGEST_HEADER or not _HEADER.fullmatch(value):
            raise ValueError(f"'{texts.escape(value, 40)}' is not the name of a header")
    return tuple(dict.fromkeys(value.lower() for value in values))


@dataclasses.dataclass(frozen=True)
class Address:
    """The HTTP address of an authorization service."""

    host: str
    port: int
    path: str
    """Prefix for the path of a request; empty: no prefix."""


def _read_address(value: object) -> Address:
    if not isinstance(value, str) or not _URL.fullmatch(value):
        raise ValueError("is not a URL such as http://oauth2-proxy.kubeflow.svc:4180")
    if len(value) > _LONGEST_ADDRESS:
        raise ValueError(f"is longer than {_LONGEST_ADDRESS} characters")
    parts = urllib.parse.urlsplit(value)
    if parts.scheme != "http":
        raise ValueError("does not begin with http://, by which alone the gateway asks")
    if parts.query or parts.fragment or "?" in value or "#" in value or "@" in parts.netloc:
        raise ValueError("has more than a host, a port and a path")
    # Reading the port raises a ValueError if it is not valid.
    port = 80 if parts.port is None else parts.port
    if not parts.hostname or not port:
        raise ValueError("has no host, or the port 0")
    return Address(parts.hostname, port, parts.path.rstrip("/"))


Text = Annotated[str, pydantic.Strict()]
Name = Annotated[Text, pydantic.StringConstraints(max_length=253)]
DnsLabel = Annotated[Text, require_pattern(DNS_LABEL.pattern, "is not a name such as kfp-ui")]
Path = Annotated[Text, pydantic.AfterValidator(validate_path)]
Port = Annotated[int, pydantic.Strict(), pydantic.Field(ge=1, le=pods.HIGHEST_PORT)]
Headers = Annotated[tuple[str, ...], pydantic.AfterValidator(_validate_headers)]


class Wire(pydantic.BaseModel):
    """A message of a relation, whose unknown fields are ignored."""

    # Few hooks read messages, so the validators are built on first use.
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", defer_build=True)


class _ServiceRequest(Wire):
    model_config = pydantic.ConfigDict(
        alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True
    )

    service: DnsLabel
    port: Port
    namespace: DnsLabel | None = None
    """The Service's namespace; None: the model."""


class IngressRequest(_ServiceRequest):
    """A request for a route with one path prefix (`ingress` v1, and v2 with its namespace)."""

    prefix: Path
    rewrite: Path | None = None
    """Replaces the prefix; None: no rewrite."""


class AuthRequest(_ServiceRequest):
    """The authorization service of the gateway (`ingress-auth` v1)."""

    allowed_request_headers: Headers = ()
    """Sent to the authorization service, in addition to Authorization and the request line."""
    allowed_response_headers: Headers = ()
    """Passed from its answer to the applications."""


class ForwardAuth(Wire):
    """The authorization service of the gateway (`forward_auth`).

    Its `app_names` are not read, because requests to every application are authenticated.
    """

    decisions_address: Annotated[Address, pydantic.BeforeValidator(_read_address)]
    # The library writes null for an empty list.
    headers: Annotated[
        Headers, pydantic.BeforeValidator(lambda text: bounded.read_json(text) or ())
    ] = ()
    """Passed from its answer to the applications."""


INGRESS_MODELS: Mapping[str, type[IngressRequest]] = {"v1": IngressRequest, "v2": IngressRequest}
AUTH_MODELS: Mapping[str, type[AuthRequest]] = {"v1": AuthRequest}
_SUPPORTED = {INGRESS: INGRESS_MODELS, INGRESS_AUTH: AUTH_MODELS, ISTIO_PILOT: ("v1",)}

_Service = TypeVar("_Service", bound=_ServiceRequest)


@dataclasses.dataclass(frozen=True)
class Received(Generic[_Message]):
    """A message of one related application."""

    relation: int
    """The relation's id, which is unique in the model."""
    application: str
    message: _Message | None = None
    """None if it is missing or invalid."""
    problem: str = ""
    """Why it is invalid; empty if it is missing."""
    endpoint: str = ""

    @property
    def reference(self) -> str:
        """The relation's name in messages: `istio-ingress-route:3 kfp-ui`."""
        return f"{self.endpoint}:{self.relation} {self.application}"

    @property
    def is_asked(self) -> bool:
        """Whether requests to its routes are authenticated."""
        return self.endpoint != OPEN_INGRESS_ROUTE


def read_message(parse: Callable[[], _Message | None]) -> tuple[_Message | None, str]:
    """Return the message of a data bag, or the reason why it is invalid."""
    try:
        return parse(), ""
    except pydantic.ValidationError as error:
        return None, texts.join_problems(error)
    except bounded.DocumentError as error:
        return None, texts.escape(f"sends a document that {error}", texts.LONGEST_PROBLEM)


def read_request(
    bag: Mapping[str, str], models: Mapping[str, type[_Service]]
) -> tuple[_Service | None, str]:
    """Read a data bag of serialized-data-interface; missing data is not a problem."""
    if VERSIONS not in bag or DATA not in bag:
        is_traefiks = bag.keys().isdisjoint((VERSIONS, DATA)) and bag.keys() >= _TRAEFIK
        return None, _SPEAKS_TRAEFIK if is_traefiks else ""

    def parse() -> _Service | None:
        common = _read_versions(bounded.read_yaml(bag[VERSIONS])) & models.keys()
        if not common:
            raise bounded.DocumentError(f"has none of the versions {', '.join(models)}")
        data = bounded.read_yaml(bag[DATA])
        return models[max(common)].model_validate(data) if data else None

    return read_message(parse)


def _read_versions(value: Any) -> set[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    # The library allows integers as well as `v1`.
    return {f"v{item}" if isinstance(item, int) else str(item) for item in items}


def read_forward_auth_bag(bag: Mapping[str, str]) -> tuple[ForwardAuth | None, str]:
    """Read a data bag of `forward_auth`; missing data is not a problem."""
    if not bag.get(ADDRESS):
        return None, ""
    return read_message(lambda: ForwardAuth.model_validate(bag))


def is_of_another_model(application: str) -> bool:
    """Tell whether an application is related by an offer."""
    return bool(_OF_ANOTHER_MODEL.match(application))


def read_messages(
    related: endpoints.Relations,
    endpoint: str,
    reader: Callable[[Mapping[str, str]], tuple[_Message | None, str]],
) -> list[Received[_Message]]:
    """Return the messages of the applications on an endpoint, the oldest relation first."""
    found: list[Received[_Message]] = []
    for bag in related.list_bags(endpoint):
        message, problem = reader(bag.content)
        is_request = isinstance(message, _ServiceRequest) and message.namespace is None
        if is_request and is_of_another_model(bag.application):
            message, problem = None, "sends no namespace, which another model's has to"
        found.append(Received(bag.relation, bag.application, message, problem, endpoint))
    return found


def read_ingress(related: endpoints.Relations) -> list[Received[IngressRequest]]:
    """Return the requests for routes on `ingress`."""
    return read_messages(related, INGRESS, lambda bag: read_request(bag, INGRESS_MODELS))


def read_ingress_auth(related: endpoints.Relations) -> list[Received[AuthRequest]]:
    """Return the authorization services on `ingress-auth`."""
    return read_messages(related, INGRESS_AUTH, lambda bag: read_request(bag, AUTH_MODELS))


def read_forward_auth(related: endpoints.Relations) -> list[Received[ForwardAuth]]:
    """Return the authorization services on `forward-auth`."""
    return read_messages(related, FORWARD_AUTH, read_forward_auth_bag)


def format_senders(received: Iterable[Received[Any]]) -> str:
    """List the senders for a message."""
    return ", ".join(sorted({one.application for one in received}))


def read_root_namespace(related: endpoints.Relations) -> str:
    """Return the namespace of a charmed Istio (`istio_metadata`); empty if no relation has it."""
    for bag in related.list_bags(ISTIO_METADATA):
        named = bag.content.get("root_namespace", "")
        if DNS_LABEL.fullmatch(named):
            return named
        if named:
            logger.warning("%s says no namespace: %r.", bag.application, named[:80])
    return ""


def announce_versions(related: endpoints.Relations) -> None:
    """Write the versions to every SDI relation; without them the other side raises errors."""
    for endpoint, versions in _SUPPORTED.items():
        related.write(endpoint, {VERSIONS: yaml.safe_dump(list(versions))})


def publish_gateway(related: endpoints.Relations, *, name: str, namespace: str, up: bool) -> None:
    """Write the name of the Gateway (`gateway-info`)."""
    bag = {"gateway_name": name, "gateway_namespace": namespace, "gateway_up": str(up).lower()}
    related.write(GATEWAY_INFO, bag)


def publish_metadata(related: endpoints.Relations, metadata: GatewayMetadata | None) -> None:
    """Write the Gateway for controllers' HTTPRoutes; controllers wait until one is written."""
    related.write(GATEWAY_METADATA, {METADATA: metadata.model_dump_json() if metadata else ""})


def publish_pilot(related: endpoints.Relations, *, service: str, port: int) -> None:
    """Write the Service of istiod (`k8s-service`)."""
    data = yaml.safe_dump({"service-name": service, "service-port": str(port)})
    related.write(ISTIO_PILOT, {DATA: data})


def publish_routed(related: endpoints.Relations) -> None:
    """Write the applications with routes, which the remote side compares with its `app_names`."""
    routed = {bag.application for endpoint in ROUTING for bag in related.list_bags(endpoint)}
    related.write(FORWARD_AUTH, {ROUTED: json.dumps(sorted(routed))})
