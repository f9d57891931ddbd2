"""The charm's options: each one's grammar, and one line for each that does not follow it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self, cast

import pydantic
import yaml

import errors
import labels
import podrules

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_HOST = re.compile(
    r"(\*\.)?([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
    re.IGNORECASE,
)
_ANNOTATION = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_NAMESPACE_GROUPS = ("model", "profiles", "labelled")


def _name(value: str) -> str:
    value = value.strip()
    if value and not _DNS_LABEL.fullmatch(value):
        raise ValueError("use lower-case letters, digits and inner hyphens, at most 63")
    return value


def _selector(value: str) -> str:
    labels.parse(value)
    return value.strip()


def _items(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return value


def _parsed(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: parse(value) if isinstance(value, str) else value


def _container_names(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _DNS_LABEL.fullmatch(value):
            raise ValueError(f"'{value}' is not the name of a container")
    return values


def _namespace_groups(values: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [value for value in values if value not in _NAMESPACE_GROUPS]
    if unknown:
        raise ValueError(f"'{unknown[0]}' is none of {', '.join(_NAMESPACE_GROUPS)}")
    return values


def _namespaced_name(value: str) -> str:
    value = value.strip()
    namespace, slash, name = value.partition("/")
    if value and not (slash and _DNS_LABEL.fullmatch(namespace) and _DNS_NAME.fullmatch(name)):
        raise ValueError("write it as NAMESPACE/NAME")
    return value


def _equality_selector(value: str) -> str:
    labels.equality(value)
    return value.strip()


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _HOST.fullmatch(value) or len(value) > 253:
            raise ValueError(f"'{value}' is not a host name such as kubeflow.example.com")
    return tuple(dict.fromkeys(value.lower() for value in values))


Name = Annotated[str, pydantic.AfterValidator(_name)]
Selector = Annotated[str, pydantic.AfterValidator(_selector)]
ContainerNames = Annotated[
    tuple[str, ...],
    pydantic.BeforeValidator(_items),
    pydantic.AfterValidator(_container_names),
]
NamespaceGroups = Annotated[
    tuple[str, ...],
    pydantic.BeforeValidator(_items),
    pydantic.AfterValidator(_namespace_groups),
]

LabelRules = Annotated[
    tuple[podrules.Entries, ...], pydantic.BeforeValidator(_parsed(podrules.parse_labels))
]
AnnotationRules = Annotated[
    tuple[podrules.Entries, ...], pydantic.BeforeValidator(_parsed(podrules.parse_annotations))
]
PortRules = Annotated[
    tuple[podrules.Ports, ...], pydantic.BeforeValidator(_parsed(podrules.parse_ports))
]
RegistryRules = Annotated[
    tuple[podrules.Registries, ...], pydantic.BeforeValidator(_parsed(podrules.parse_registries))
]


def _annotations(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parsed: Any = yaml.safe_load(value) or {}
    except yaml.YAMLError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError("write a mapping such as {a.b/key: value}")  # noqa: TRY004 (pydantic's)
    for key, text in cast("dict[Any, Any]", parsed).items():
        if not _ANNOTATION.fullmatch(str(key)) or not isinstance(text, str):
            raise ValueError(f"'{key}' is not an annotation with a text (quote numbers)")
    return cast("dict[str, str]", parsed)


Annotations = Annotated[Mapping[str, str], pydantic.BeforeValidator(_annotations)]
GatewayName = Annotated[str, pydantic.AfterValidator(_namespaced_name)]
GatewaySelector = Annotated[str, pydantic.AfterValidator(_equality_selector)]
Hosts = Annotated[
    tuple[str, ...],
    pydantic.BeforeValidator(_items),
    pydantic.AfterValidator(_hosts),
]


class Config(pydantic.BaseModel):
    """What the operator wants. Names are those of config.yaml with underscores."""

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="ignore",
        validate_default=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )

    istiod_namespace: Name = ""
    """Where istiod runs; empty: discover it."""
    revision: Name = ""
    """An Istio revision or tag; empty: the default one, or the only one."""
    mesh_membership: Literal["namespace", "selected", "none"] = "namespace"
    included_pods: Selector = ""
    """With `selected`: the pods that join."""
    excluded_pods: Selector = ""
    """Pods that get no sidecar."""
    hold_application: bool = True
    proxy_shutdown: bool = True
    sidecar_mode: Literal["auto", "native", "classic"] = "auto"
    admission: Literal["auto", "policy", "webhook"] = "auto"
    lifecycle_namespaces: NamespaceGroups = _NAMESPACE_GROUPS
    wait_for_containers: ContainerNames = ()
    ignore_containers: ContainerNames = ()
    replace_broken_pods: bool = False
    sidecar_convergence: Literal["auto", "manual"] = "auto"
    convergence_max_unavailable: Annotated[int, pydantic.Field(ge=1, le=100)] = 2
    """Workloads that may have a pod being replaced at the same time."""
    pod_labels: LabelRules = ()
    pod_annotations: AnnotationRules = ()
    excluded_outbound_ports: PortRules = ()
    image_registries: RegistryRules = ()
    gateway: GatewayName = ""
    """`namespace/name` of a Gateway to copy the selector from."""
    gateway_selector: GatewaySelector = ""
    gateway_service: GatewayName = ""
    """`namespace/name` of the gateway's Service."""
    gateway_service_annotations: Annotations = pydantic.Field(default_factory=dict[str, str])
    """What the operator wants on that Service."""
    gateway_workload: bool = False
    """Whether the model has a gateway workload of its own."""
    hosts: Hosts = ()
    """Names that the model is reached by; none: any, with the gateway for itself."""
    https_redirect: bool = False
    tls_secret: Name = ""
    """A Secret in the gateway's namespace."""
    strict_ingress_auth: bool = True
    """Whether nothing is reachable without ingress-auth."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @pydantic.model_validator(mode="after")
    def _annotations_need_a_service(self) -> Self:
        named = self.gateway_service or self.gateway_workload
        if self.gateway_service_annotations and not named:
            raise ValueError("gateway-service-annotations: name the Service in gateway-service")
        return self

    @pydantic.model_validator(mode="after")
    def _selected_needs_a_selector(self) -> Self:
        if self.mesh_membership == "selected" and not self.included_pods:
            raise ValueError("included-pods: mesh-membership=selected needs a label selector")
        return self

    @pydantic.model_validator(mode="after")
    def _selectors_stand_alone(self) -> Self:
        self.pod_rules.check(self.included_pods, self.excluded_pods)
        return self

    @property
    def pod_rules(self) -> podrules.PodRules:
        """What pods get beside their sidecar."""
        return podrules.PodRules(
            labels=self.pod_labels,
            annotations=self.pod_annotations,
            excluded_outbound_ports=self.excluded_outbound_ports,
            image_registries=self.image_registries,
        )

    @classmethod
    def load(cls, options: Mapping[str, Any]) -> Config:
        """Validate the options as Juju gives them.

        Raises:
            ConfigError: With one line for each option that is wrong.
        """
        try:
            return cls.model_validate(dict(options))
        except pydantic.ValidationError as error:
            raise errors.ConfigError([_line(problem) for problem in error.errors()]) from error


def _line(problem: Any) -> str:
    message = re.sub(r"^(Value error, |Input should be )", "", problem["msg"])
    if not problem["loc"]:
        return message
    expected = "" if problem["type"] == "value_error" else "must be "
    line = f"{problem['loc'][0]}='{problem['input']}': {expected}{message}"
    return re.sub(r"\s+", " ", line)
