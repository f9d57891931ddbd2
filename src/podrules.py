"""What the operator wants of new pods beside their sidecar: labels, annotations, ports, images."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any, cast

import yaml

import labels


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entries:
    """Labels or annotations that selected pods get where they don't have them."""

    selector: str = ""
    """Empty: every pod."""
    add: tuple[tuple[str, str], ...]

    @property
    def pods(self) -> tuple[labels.Requirement, ...]:
        """The selector's parts."""
        return labels.parse(self.selector)

    def as_setting(self) -> dict[str, Any]:
        """Write the rule as the workload's settings have it."""
        return {"pods": self.selector, "add": dict(self.add)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ports:
    """Outbound ports that the proxy of selected pods leaves alone."""

    selector: str = ""
    ports: tuple[int, ...]

    def beside(self, others: Iterable[int]) -> Ports:
        """Return the rule with the ports that a pod loses by naming any."""
        return dataclasses.replace(self, ports=tuple(dict.fromkeys((*self.ports, *others))))

    @property
    def pods(self) -> tuple[labels.Requirement, ...]:
        """The selector's parts."""
        return labels.parse(self.selector)

    def as_setting(self) -> dict[str, Any]:
        """Write the rule as the workload's settings have it."""
        return {"pods": self.selector, "ports": list(self.ports)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Registries:
    """Where the images of selected pods come from instead."""

    selector: str
    prefixes: tuple[tuple[str, str], ...]
    """Pairs of an old and a new prefix, the longest old one first."""

    @property
    def pods(self) -> tuple[labels.Requirement, ...]:
        """The selector's parts."""
        return labels.parse(self.selector)

    def as_setting(self) -> dict[str, Any]:
        """Write the rule as the workload's settings have it."""
        return {"pods": self.selector, "prefixes": dict(self.prefixes)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodRules:
    """All of them."""

    labels: tuple[Entries, ...] = ()
    annotations: tuple[Entries, ...] = ()
    excluded_outbound_ports: tuple[Ports, ...] = ()
    image_registries: tuple[Registries, ...] = ()

    @property
    def selectors(self) -> Iterable[str]:
        """Every selector in them."""
        rules = (
            *self.labels,
            *self.annotations,
            *self.excluded_outbound_ports,
            *self.image_registries,
        )
        return (rule.selector for rule in rules)

    def check(self, *others: str) -> None:
        """See that no selector depends on what is added, or order would matter.

        Args:
            others: Selectors of other options.

        Raises:
            ValueError: Naming the label.
        """
        added = {key for rule in self.labels for key, _ in rule.add}
        for selector in self.selectors:
            for requirement in labels.parse(selector):
                if requirement.key in _PLACE:
                    raise ValueError(
                        f"the selector '{selector}' looks at {requirement.key}, which is set here"
                    )
        for selector in (*self.selectors, *others):
            for requirement in labels.parse(selector):
                if requirement.key in added:
                    raise ValueError(
                        f"pod-labels: the selector '{selector}' looks at {requirement.key}, which"
                        " pod-labels adds"
                    )


_PLACE = ("sidecar.istio.io/inject", "istio.io/rev")
"""Labels that decide about a pod's place in the mesh."""
_EVERY_POD = ""
_REFUSED = re.compile(r"([^/]*\.)?(juju\.is|kubernetes\.io)/.*|pod-template-hash")
_REFUSED_LABELS = re.compile(r"([^/]*\.)?istio\.io/.*|istio-integrator\.charmhub\.io/.*")
_REFUSED_ANNOTATIONS = re.compile(r"istio-integrator\.charmhub\.io/(applied|settings)")
_MAX_VALUE = 65536
"""Of an annotation, in characters; all of a pod's together may be four times that."""
_REGISTRY = re.compile(r"(localhost|[a-z0-9][-a-z0-9]*[.:][-a-z0-9.:]*[a-z0-9])(/[a-z0-9._-]+)*")


def parse_labels(text: str) -> tuple[Entries, ...]:
    """Read the option `pod-labels`.

    Raises:
        ValueError: With what is wrong.
    """
    rules = _entries(text)
    for key, value in _added(rules):
        _check_key(key, _REFUSED_LABELS)
        if not labels.is_value(value):
            raise ValueError(f"{value!r} of {key} is not a label value")
    return rules


def parse_annotations(text: str) -> tuple[Entries, ...]:
    """Read the option `pod-annotations`.

    Raises:
        ValueError: With what is wrong.
    """
    rules = _entries(text)
    for key, value in _added(rules):
        _check_key(key, _REFUSED_ANNOTATIONS)
        if len(value) > _MAX_VALUE:
            raise ValueError(f"the value of {key} is longer than {_MAX_VALUE} characters")
    return rules


def parse_ports(text: str) -> tuple[Ports, ...]:
    """Read the option `excluded-outbound-ports`.

    Raises:
        ValueError: With what is wrong.
    """
    if re.fullmatch(r"[0-9,\s]*", text):
        ports = [int(part) for part in re.split(r"[,\s]+", text) if part]
        rules = [Ports(ports=tuple(ports))] if ports else []
    else:
        rules = [
            Ports(selector=selector, ports=tuple(_items(values, "ports")))
            for selector, values in _rules(text, "ports", optional_pods=True)
        ]
    for port in (port for rule in rules for port in rule.ports):
        # A bool is an int to Python.
        if type(port) is not int or not 1 <= port <= 65535:
            raise ValueError(f"{port!r} is not a port")
    return tuple(rules)


def parse_registries(text: str) -> tuple[Registries, ...]:
    """Read the option `image-registries`.

    Raises:
        ValueError: With what is wrong.
    """
    rules = tuple(
        Registries(
            selector=selector,
            prefixes=tuple(
                sorted(
                    _mapping(values, "prefixes").items(), key=lambda pair: (-len(pair[0]), pair)
                )
            ),
        )
        for selector, values in _rules(text, "prefixes", optional_pods=False)
    )
    pairs = [pair for rule in rules for pair in rule.prefixes]
    for prefix in (part for pair in pairs for part in pair):
        if not _REGISTRY.fullmatch(prefix):
            raise ValueError(f"'{prefix}' is not a registry such as docker.io/library")
    for _, new in pairs:
        for old, _ in pairs:
            if f"{new}/".startswith(f"{old}/"):
                raise ValueError(f"'{new}' would itself be moved by '{old}'")
    return rules


def _entries(text: str) -> tuple[Entries, ...]:
    value = _yaml(text)
    if isinstance(value, dict):
        added = _mapping(cast("object", value), "the option")
        return (Entries(add=tuple(added.items())),) if added else ()
    return tuple(
        Entries(selector=selector, add=tuple(_mapping(values, "add").items()))
        for selector, values in _rules(text, "add", optional_pods=True)
    )


def _added(rules: Iterable[Entries]) -> Iterable[tuple[str, str]]:
    return (pair for rule in rules for pair in rule.add)


def _check_key(key: str, refused: re.Pattern[str]) -> None:
    if not labels.is_key(key):
        raise ValueError(f"'{key}' is not a key such as team or example.com/team")
    if _REFUSED.fullmatch(key) or refused.fullmatch(key):
        raise ValueError(f"'{key}' is not yours to set: Juju, Kubernetes, Istio or we use it")


def _yaml(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"this is no YAML: {' '.join(str(error).split())}") from error


def _rules(text: str, field: str, *, optional_pods: bool) -> Iterable[tuple[str, object]]:
    for rule in _items(_yaml(text), "the option"):
        fields = cast("dict[object, object]", rule) if isinstance(rule, dict) else {}
        wanted = {field, "pods"}
        if not {field} <= set(fields) <= wanted or not (optional_pods or "pods" in fields):
            raise ValueError(f"each rule is a mapping with pods and {field}")
        selector = fields.get("pods", _EVERY_POD)
        if not isinstance(selector, str) or not (labels.parse(selector) or optional_pods):
            raise ValueError(f"{selector!r} is not a label selector")
        yield selector, fields[field]


def _items(value: object, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")  # noqa: TRY004 - pydantic reports ValueErrors
    return cast("list[Any]", value)


def _mapping(value: object, name: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not a mapping")  # noqa: TRY004 - as above
    pairs = cast("dict[object, object]", value).items()
    for key, text in pairs:
        if not isinstance(key, str) or not isinstance(text, str):
            raise ValueError(f"put quotes around {key!r} and {text!r}: they must be text")  # noqa: TRY004
    return {str(key): _joined(str(text)) for key, text in pairs}


def _joined(text: str) -> str:
    """Join the halves of characters that JSON writes as two escapes and YAML leaves apart."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError(f"{text!r} has half a character") from error
