"""What other charms say to this one and hear from it, as typed values.

Kubeflow's charms speak the wire format of serialized-data-interface: `_supported_versions` is a
YAML list, `data` one YAML document, both in the application's data bag.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, Self, TypeVar, cast

import ops
import pydantic
import yaml

logger = logging.getLogger(__name__)

INGRESS = "ingress"
INGRESS_AUTH = "ingress-auth"
GATEWAY_INFO = "gateway-info"
ISTIO_PILOT = "istio-pilot"
CERTIFICATES = "certificates"
ISTIO_METADATA = "istio-metadata"
MESH_INFO = "mesh-info"
METRICS = "metrics-endpoint"
GRAFANA = "grafana-dashboard"
LOGGING = "logging"
ENDPOINTS = (
    INGRESS,
    INGRESS_AUTH,
    GATEWAY_INFO,
    ISTIO_PILOT,
    MESH_INFO,
    CERTIFICATES,
    ISTIO_METADATA,
    METRICS,
    GRAFANA,
    LOGGING,
)

VERSIONS = "_supported_versions"
DATA = "data"

_MAX_DOCUMENT = 65536
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH = re.compile(r"/[!-~]*")
_OF_ANOTHER_MODEL = re.compile(r"remote-[0-9a-f]{32}$")
"""Juju calls an application so that reaches us by an offer (juju's crossmodelrelations facade)."""


def _dns_label(value: str) -> str:
    if not _DNS_LABEL.fullmatch(value):
        raise ValueError("is not a name such as kfp-ui")
    return value


def _path(value: str) -> str:
    if not _PATH.fullmatch(value) or "?" in value or "#" in value:
        raise ValueError("is not a path such as /pipeline")
    return value


def _headers(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _HEADER.fullmatch(value):
            raise ValueError(f"'{value}' is not the name of a header")
    return tuple(dict.fromkeys(value.lower() for value in values))


DnsLabel = Annotated[str, pydantic.Strict(), pydantic.AfterValidator(_dns_label)]
Path = Annotated[str, pydantic.Strict(), pydantic.AfterValidator(_path)]
Port = Annotated[int, pydantic.Strict(), pydantic.Field(ge=1, le=65535)]
Headers = Annotated[tuple[str, ...], pydantic.AfterValidator(_headers)]


class _Message(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="ignore",
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


@dataclasses.dataclass(frozen=True)
class Received(Generic[_Model]):
    """What one related application said."""

    relation: int
    """The relation's id, which is unique in the model."""
    application: str
    message: _Model | None = None
    """None while there is none, or none that can be understood."""
    problem: str = ""
    """What is wrong with it; empty while it only has not come yet."""


def read(bag: Mapping[str, str], models: Mapping[str, type[_Model]]) -> tuple[_Model | None, str]:
    """Read one application's data bag.

    Returns:
        The message, or what is wrong; neither where the other side has not written yet.
    """
    if VERSIONS not in bag or DATA not in bag:
        return None, ""
    try:
        common = _versions(_document(bag[VERSIONS])) & models.keys()
        if not common:
            return None, f"speaks none of the versions {', '.join(models)}"
        data = _document(bag[DATA])
        return (models[max(common)].model_validate(data) if data else None), ""
    except pydantic.ValidationError as error:
        return None, "; ".join(_line(problem) for problem in error.errors())
    except ValueError as error:
        return None, str(error)


def _document(text: str) -> Any:
    if len(text) > _MAX_DOCUMENT:
        raise ValueError("sends more than anybody would read")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError("sends something that is not YAML") from error


def _versions(value: Any) -> set[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    # Integers are allowed beside v1; nobody is known to send them.
    return {f"v{item}" if isinstance(item, int) else str(item) for item in items}


def _line(problem: Any) -> str:
    message = re.sub(r"^(Value error, |Input )", "", problem["msg"])
    place = ".".join(map(str, problem["loc"])) or "data"
    value = problem.get("input")
    shown = f"={value!r}"[:80] if isinstance(value, str | int) else ""
    return re.sub(r"\s+", " ", f"{place}{shown} {message[:1].lower()}{message[1:]}")


def events(on: ops.CharmEvents) -> Iterable[ops.BoundEvent]:
    """List the events after which another application may have said something else."""
    for endpoint in ENDPOINTS:
        yield on[endpoint].relation_created
        yield on[endpoint].relation_changed
        yield on[endpoint].relation_broken
    # One unit of Loki among several may go.
    yield on[LOGGING].relation_departed


class Relations:
    """The relations of this application, as they are in this hook."""

    def __init__(self, model: ops.Model, application: ops.Application, *, leader: bool) -> None:
        self._model = model
        self._application = application
        self._leader = leader

    def announce_versions(self) -> None:
        """Tell every SDI relation the versions, without which the other side raises errors."""
        for endpoint, versions in _SUPPORTED.items():
            for relation in self._active(endpoint):
                self._write(relation, {VERSIONS: yaml.safe_dump(list(versions))})

    def ingress(self) -> list[Received[IngressRequest]]:
        """List what every application that is related to `ingress` said."""
        return self._received(INGRESS, INGRESS_MODELS)

    def ingress_auth(self) -> list[Received[AuthRequest]]:
        """List what every application that is related to `ingress-auth` said."""
        return self._received(INGRESS_AUTH, AUTH_MODELS)

    def is_related(self, *endpoints: str) -> bool:
        """Tell whether any of the endpoints has a relation."""
        return any(self._active(endpoint) for endpoint in endpoints)

    def publish_gateway(self, *, name: str, namespace: str, up: bool) -> None:
        """Tell which Gateway there is (`gateway-info`)."""
        bag = {
            "gateway_name": name,
            "gateway_namespace": namespace,
            "gateway_up": str(up).lower(),
        }
        for relation in self._active(GATEWAY_INFO):
            self._write(relation, bag)

    def publish_pilot(self, *, service: str, port: int) -> None:
        """Tell where istiod is (`k8s-service`)."""
        data = yaml.safe_dump({"service-name": service, "service-port": str(port)})
        for relation in self._active(ISTIO_PILOT):
            self._write(relation, {DATA: data})

    def publish_mesh(self, facts: Mapping[str, str]) -> None:
        """Tell which mesh the model belongs to (`istio_mesh_info`).

        Args:
            facts: As `mesh_info.MeshInfo.write` has them; what is left out stays as it was told.
        """
        for relation in self._active(MESH_INFO):
            self._write(relation, facts)

    def istio_root_namespace(self) -> str:
        """Read where a charmed Istio says that it is; empty where none does."""
        bags = [self._bag(relation) for relation in self._active(ISTIO_METADATA)]
        return next((bag["root_namespace"] for bag in bags if "root_namespace" in bag), "")

    def exchange(
        self, endpoint: str, bag: Mapping[str, str] | None = None
    ) -> list[dict[str, str]]:
        """Write to every relation of an endpoint, and read what the other side wrote."""
        received: list[dict[str, str]] = []
        for relation in self._active(endpoint):
            if bag is not None:
                self._write(relation, bag)
            received.append(self._bag(relation))
        return received

    def unit_bags(self, endpoint: str) -> dict[str, dict[str, str]]:
        """Read what each unit on the other side of an endpoint wrote."""
        return {
            unit.name: dict(relation.data[unit])
            for relation in self._active(endpoint)
            for unit in relation.units
        }

    def publish_unit(self, endpoint: str, bag: Callable[[str], Mapping[str, str]]) -> None:
        """Tell every relation of an endpoint something about this unit.

        Args:
            endpoint: Its name.
            bag: What to tell, given the address that the unit has there.
        """
        for relation in self._active(endpoint):
            binding = self._model.get_binding(relation)
            address = binding.network.bind_address if binding else None
            if address is not None:
                _update(relation.data[self._model.unit], bag(str(address)))

    def own(self, endpoint: str) -> dict[str, str]:
        """Read what this application wrote to the first relation; only the leader may."""
        relations = self._active(endpoint) if self._leader else []
        return dict(relations[0].data[self._application]) if relations else {}

    def _received(
        self, endpoint: str, models: Mapping[str, type[_Model]]
    ) -> list[Received[_Model]]:
        found: list[Received[_Model]] = []
        for relation in self._active(endpoint):
            message, problem = read(self._bag(relation), models)
            if (
                message
                and message.namespace is None
                and _OF_ANOTHER_MODEL.match(relation.app.name)
            ):
                message, problem = None, "sends no namespace, which another model's has to"
            found.append(Received(relation.id, relation.app.name, message, problem))
        return sorted(found, key=lambda received: received.relation)

    def _active(self, endpoint: str) -> list[ops.Relation]:
        return [
            relation
            for relation in self._model.relations[endpoint]
            # A relation that is being broken counts as gone.
            if relation.active
        ]

    def _bag(self, relation: ops.Relation) -> dict[str, str]:
        try:
            return dict(relation.data[relation.app])
        except ops.ModelError:
            # Gone in the meantime: its own event follows.
            return {}

    def _write(self, relation: ops.Relation, bag: Mapping[str, str]) -> None:
        if not self._leader:
            return
        try:
            _update(relation.data[self._application], bag)
        except ops.RelationDataAccessError as error:
            # Leadership went to another unit during a long hook: that one writes.
            logger.info("Relation %s is not written: %s", relation.name, error)


def _update(own: ops.RelationDataContent, bag: Mapping[str, str]) -> None:
    for key, value in bag.items():
        if own.get(key) != value:
            own[key] = value


def names(received: Iterable[Received[Any]]) -> str:
    """Name applications for a message."""
    return ", ".join(sorted({one.application for one in received}))
