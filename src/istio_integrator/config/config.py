"""The charm's options: the grammar of each, and one line per invalid option."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

import pydantic

from integrator_contract import bounded, names, namespaces, pods, selectors, service
from istio_integrator import texts
from istio_integrator.kube import errors

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_HOST = re.compile(rf"(\*\.)?({_DNS_LABEL}\.)+{_DNS_LABEL}", re.IGNORECASE)
_ANNOTATION = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_PLACE = (names.INJECT, names.REVISION)
"""Labels that decide a pod's mesh membership."""
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PLAIN_GRAMMAR = "write NAME or NAME:PORT, as in minio:9000, mlmd"
MOST_PLAIN_PORTS = 200
MOST_NETWORKS = 32
_SHORTEST_PREFIX = 8
"""Bits of the largest private network, 10.0.0.0/8."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_STRICT = pydantic.ConfigDict(strict=True, extra="forbid", defer_build=True)
_LONGEST_SHOWN = 80
"""Characters of an option's value that a problem quotes."""
_LONGEST_LINE = 400
"""Characters of a problem."""


def _require_pattern(pattern: str, problem: str) -> pydantic.AfterValidator:
    def check(value: str) -> str:
        value = value.strip()
        if value and not re.fullmatch(pattern, value):
            raise ValueError(problem)
        return value

    return pydantic.AfterValidator(check)


def _validate_selector(value: str) -> str:
    selectors.parse(value)
    return value.strip()


def _split_items(value: Any) -> Any:
    return service.split_list(value) if isinstance(value, str) else value


def _validate_containers(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not re.fullmatch(_DNS_LABEL, value):
            raise ValueError(f"'{value}' is not the name of a container")
    return values


def _validate_hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if len(value) > 253 or not _HOST.fullmatch(value):
            raise ValueError(f"'{value}' is not a host name such as kubeflow.example.com")
        if value.rpartition(".")[2].isdecimal():
            # TLS clients send no server name for an IP address, so HTTPS would not work.
            raise ValueError(f"'{value}' is an address; use a host name, or none for every host")
    return tuple(dict.fromkeys(value.lower() for value in values))


Name = Annotated[
    str,
    _require_pattern(_DNS_LABEL, "use lower-case letters, digits and inner hyphens, at most 63"),
]
Budget = Annotated[str, pydantic.AfterValidator(service.parse_budget)]
Selector = Annotated[str, pydantic.AfterValidator(_validate_selector)]
ContainerNames = Annotated[
    tuple[str, ...],
    pydantic.BeforeValidator(_split_items),
    pydantic.AfterValidator(_validate_containers),
]
NamespaceKinds = Annotated[
    frozenset[namespaces.Kind],
    pydantic.BeforeValidator(namespaces.parse_kinds),
    pydantic.BeforeValidator(_split_items),
]


def _make_rules_validator(rules: Any, alone: str = "") -> pydantic.BeforeValidator:
    """Return a validator that reads a tuple of rules from YAML.

    A bare value of the field `alone` is a rule for every pod.
    """
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(rules, config=_STRICT)

    def read(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        try:
            # In JSON, strict validation accepts lists as tuples and mappings as dataclasses.
            return adapter.validate_json(json.dumps(_read_rules(text, alone), default=str))
        except bounded.DocumentError as error:
            raise ValueError(f"this {error}") from error
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{place}: {message}" if place else message) from error

    return pydantic.BeforeValidator(read)


def _read_rules(text: str, alone: str) -> Any:
    if alone == "ports" and re.fullmatch(r"[0-9,\s]*", text):
        ports = [int(port) for port in re.findall(r"[0-9]+", text)]
        return [{alone: ports}] if ports else []
    value: Any = bounded.read_yaml(text, longest=bounded.LONGEST_OBJECT)
    if value in (None, {}):
        return []
    return [{alone: value}] if alone == "add" and isinstance(value, dict) else value


EntryRules = Annotated[
    tuple[pods.Entries, ...], _make_rules_validator(tuple[pods.Entries, ...], alone="add")
]
PortRules = Annotated[
    tuple[pods.Ports, ...], _make_rules_validator(tuple[pods.Ports, ...], alone="ports")
]
RegistryRules = Annotated[
    tuple[pods.Registries, ...], _make_rules_validator(tuple[pods.Registries, ...])
]


def _format_cpu(text: str) -> str:
    """Write the amount as the API server does, in the largest unit that keeps an integer.

    Another spelling would be applied again at every event.
    """
    found = re.fullmatch(r"([0-9]{1,6})(m?)", text.strip())
    millis = int(found[1]) * (1 if found[2] else 1000) if found else 0
    if not 1 <= millis <= 64_000:
        raise ValueError("write it such as 500m or 2, from 1m to 64")
    return f"{millis}m" if millis % 1000 else str(millis // 1000)


def _format_memory(text: str) -> str:
    found = re.fullmatch(r"([0-9]{1,6})([MG])i", text.strip())
    mebibytes = int(found[1]) * (1 if found[2] == "M" else 1024) if found else 0
    if not 32 <= mebibytes <= 64 * 1024:
        raise ValueError("write it such as 512Mi or 1Gi, from 32Mi to 64Gi")
    return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"


def _read_annotations(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parsed: Any = bounded.read_yaml(value, longest=bounded.LONGEST_OBJECT) or {}
    except bounded.DocumentError as error:
        raise ValueError(f"write a mapping such as {{a.b/key: value}}; this {error}") from error
    if not isinstance(parsed, dict):
        raise ValueError("write a mapping such as {a.b/key: value}")  # noqa: TRY004 (pydantic's)
    for key, text in cast("dict[Any, Any]", parsed).items():
        if not _ANNOTATION.fullmatch(str(key)) or not isinstance(text, str):
            raise ValueError(f"'{key}' is not an annotation with a text (quote numbers)")
    return cast("dict[str, str]", parsed)


@dataclasses.dataclass(frozen=True)
class PlainTextPort:
    """A Service or workload of the model, and its port that accepts plain text."""

    name: str
    port: str = ""
    """A port's number or name; empty: every known port."""

    def __str__(self) -> str:
        return f"{self.name}:{self.port}" if self.port else self.name


def _read_plain_ports(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = tuple(dict.fromkeys(map(_read_plain_port, service.split_list(value))))
    if len(found) > MOST_PLAIN_PORTS:
        raise ValueError(f"at most {MOST_PLAIN_PORTS} entries")
    return found


def _read_plain_port(text: str) -> PlainTextPort:
    name, colon, port = text.partition(":")
    if not re.fullmatch(_DNS_NAME, name) or (colon and not port):
        raise ValueError(f"'{text}' is no Service or workload with a port: {_PLAIN_GRAMMAR}")
    if port.isdecimal():
        if not pods.is_port(int(port)):
            raise ValueError(f"'{text}': ports are 1 to 65535")
        return PlainTextPort(name, str(int(port)))
    if port and not _PORT_NAME.fullmatch(port):
        raise ValueError(
            f"'{text}': '{port}' is neither a port's number nor its name: {_PLAIN_GRAMMAR}"
        )
    return PlainTextPort(name, port)


def _read_networks(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    words = service.split_list(value)
    if [*words] == ["none"]:
        return None
    if len(words) > MOST_NETWORKS:
        raise ValueError(f"at most {MOST_NETWORKS} networks")
    return tuple(dict.fromkeys(map(_read_network, words)))


def _read_network(text: str) -> Network:
    example = "write networks as in 10.1.0.0/16, or none"
    try:
        found = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a network: {example}") from None
    if found.prefixlen < _SHORTEST_PREFIX:
        raise ValueError(f"'{text}' has more hosts than pods: {example}")
    if found.is_loopback or found.is_multicast or found.is_link_local:
        raise ValueError(f"'{text}' never has pods: {example}")
    return found


Annotations = Annotated[Mapping[str, str], pydantic.BeforeValidator(_read_annotations)]
Networks = Annotated[tuple[Network, ...] | None, pydantic.BeforeValidator(_read_networks)]
PlainPorts = Annotated[tuple[PlainTextPort, ...], pydantic.BeforeValidator(_read_plain_ports)]
ServiceName = Annotated[
    str, _require_pattern(f"{_DNS_LABEL}/{_DNS_NAME}", "write it as NAMESPACE/NAME")
]
Cpu = Annotated[str, pydantic.AfterValidator(_format_cpu)]
Memory = Annotated[str, pydantic.AfterValidator(_format_memory)]
Hosts = Annotated[
    tuple[str, ...],
    pydantic.BeforeValidator(_split_items),
    pydantic.AfterValidator(_validate_hosts),
]


class Config(pydantic.BaseModel):
    """The operator's options, named as in config.yaml with underscores."""

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="ignore",
        validate_default=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )

    istiod_namespace: Name = ""
    """The namespace of istiod; empty: discover it."""
    revision: Name = ""
    """An Istio revision or tag; empty: the default revision, or the only one."""
    mesh_mode: Literal["auto", "sidecar", "ambient", "none"] = "auto"
    """How the model's pods join the mesh; `auto` keeps the namespace's present mode."""
    included_pods: Selector = ""
    """The pods that join; empty: all."""
    excluded_pods: Selector = ""
    """Pods that get no sidecar."""
    hold_application: bool = True
    proxy_shutdown: bool = True
    job_sidecars: Literal["auto", "native", "classic"] = "auto"
    served_namespaces: NamespaceKinds = frozenset(namespaces.KINDS)
    wait_for_containers: ContainerNames = ()
    ignore_containers: ContainerNames = ()
    delete_broken_pods: bool = False
    restart_pods: Literal["auto", "manual"] = "auto"
    restart_max_unavailable: Budget = service.Options.restart_max_unavailable
    """Workloads that may have a pod replaced at the same time."""
    pod_labels: EntryRules = ()
    pod_annotations: EntryRules = ()
    excluded_outbound_ports: PortRules = ()
    image_registries: RegistryRules = ()
    gateway_service: ServiceName = ""
    """`namespace/name` of an existing gateway's Service; empty: a gateway of the model's own."""
    gateway_service_annotations: Annotations = pydantic.Field(default_factory=dict[str, str])
    """Annotations to set on the gateway's Service."""
    gateway_replicas: Annotated[int, pydantic.Field(ge=1, le=100)] = 2
    gateway_service_type: Literal["LoadBalancer", "NodePort", "ClusterIP"] = "LoadBalancer"
    gateway_cpu: Cpu = "100m"
    gateway_memory: Memory = "128Mi"
    routing: Literal["virtualservice", "gateway-api"] = "virtualservice"
    """The kind of the routes and of their Gateway."""
    hosts: Hosts = ()
    """Host names of the model; empty: any name, at the model's own gateway."""
    https_redirect: bool = False
    tls_secret: Name = ""
    """A Secret in the gateway's namespace."""
    require_authentication: bool = True
    """Whether requests are denied unless ingress-auth or forward-auth is related."""
    tenant_policy: Literal["auto", "enforce", "warn", "off"] = "auto"
    """Handling of routes and Gateways in profile namespaces that affect other namespaces."""
    pod_networks: Networks = ()
    """Networks of pods, for training jobs; empty: found; None: these jobs stay unchanged."""
    authorization: Literal["off", "related", "closed"] = "off"
    """Which applications' callers are restricted to their relations."""
    mtls: Literal["inherit", "strict"] = "inherit"
    """Whether pods accept calls without a mesh certificate: `inherit` keeps the mesh's setting."""
    mtls_exceptions: PlainPorts = ()
    """Ports that accept plain text with `strict`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @pydantic.model_validator(mode="after")
    def _selectors_stand_alone(self) -> Self:
        """Reject selectors that depend on an added label, since the order would matter."""
        added = {key for rule in self.pod_labels for key in rule.add}
        own = [rule.pods for rule in self.pod_rules.rules]
        for selector in (*own, self.included_pods, self.excluded_pods):
            for requirement in selectors.parse(selector):
                looks = f"the selector '{selector}' looks at {requirement.key}, which"
                if requirement.key in _PLACE and selector in own:
                    raise ValueError(f"{looks} is set here")
                if requirement.key in added:
                    raise ValueError(f"pod-labels: {looks} pod-labels adds")
        return self

    @property
    def membership(self) -> pods.Membership:
        """The pods of the model that this charm adds to the mesh."""
        if self.mesh_mode == "none":
            return "none"
        return "selected" if self.included_pods else "namespace"

    @property
    def pod_rules(self) -> pods.PodRules:
        """Changes of pods other than the sidecar."""
        return pods.PodRules(
            pod_labels=self.pod_labels,
            pod_annotations=self.pod_annotations,
            excluded_outbound_ports=self.excluded_outbound_ports,
            image_registries=self.image_registries,
        )

    @classmethod
    def load(cls, options: Mapping[str, Any]) -> Config:
        """Validate the options as Juju gives them, or raise a ConfigError."""
        try:
            return cls.model_validate(dict(options))
        except pydantic.ValidationError as error:
            raise errors.ConfigError(
                [_format_problem(problem) for problem in error.errors()]
            ) from error


def _format_problem(problem: Any) -> str:
    message = re.sub(r"^(Value error, |Input should be )", "", problem["msg"])
    if not problem["loc"]:
        return message
    expected = "" if problem["type"] == "value_error" else "must be "
    shown = str(problem["input"])
    if len(shown) > _LONGEST_SHOWN:
        shown = f"{shown[:_LONGEST_SHOWN]}…"
    line = f"{problem['loc'][0]}='{shown}': {expected}{message}"
    return texts.escape(" ".join(line.split()), _LONGEST_LINE)
