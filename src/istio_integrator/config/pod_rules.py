"""The options that give new pods more than a sidecar: labels, annotations, ports, images."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from integrator_contract import bounds, names, pods, selectors
from istio_integrator.kube import documents

_PLACE = (names.INJECT, names.REVISION)
"""Labels that decide about a pod's place in the mesh."""
_EVERY_POD = ""


def parse_labels(text: str) -> tuple[pods.Entries, ...]:
    """Read the option `pod-labels`.

    Raises:
        ValueError: With what is wrong.
    """
    rules = _entries(text)
    pods.check_labels(rules)
    return rules


def parse_annotations(text: str) -> tuple[pods.Entries, ...]:
    """Read the option `pod-annotations`.

    Raises:
        ValueError: With what is wrong.
    """
    rules = _entries(text)
    pods.check_annotations(rules)
    return rules


def parse_ports(text: str) -> tuple[pods.Ports, ...]:
    """Read the option `excluded-outbound-ports`.

    Raises:
        ValueError: With what is wrong.
    """
    if re.fullmatch(r"[0-9,\s]*", text):
        ports = tuple(_number(part) for part in re.split(r"[,\s]+", text) if part)
        return (pods.Ports(ports=ports),) if ports else ()
    return tuple(
        pods.Ports(pods=selector, ports=tuple(_items(values, "ports")))
        for selector, values in _rules(text, "ports", optional_pods=True)
    )


def parse_registries(text: str) -> tuple[pods.Registries, ...]:
    """Read the option `image-registries`.

    Raises:
        ValueError: With what is wrong.
    """
    rules = tuple(
        pods.Registries(pods=selector, prefixes=_mapping(values, "prefixes"))
        for selector, values in _rules(text, "prefixes", optional_pods=False)
    )
    pods.check_registries(rules)
    return rules


def check_selectors(rules: pods.PodRules, *others: str) -> None:
    """See that no selector depends on what is added, or order would matter.

    Args:
        rules: What pods get.
        others: Selectors of other options.

    Raises:
        ValueError: Naming the label.
    """
    added = {key for rule in rules.pod_labels for key in rule.add}
    for rule in rules.rules:
        for requirement in rule.selector:
            if requirement.key in _PLACE:
                raise ValueError(
                    f"the selector '{rule.pods}' looks at {requirement.key}, which is set here"
                )
    for selector in (*(rule.pods for rule in rules.rules), *others):
        for requirement in selectors.parse(selector):
            if requirement.key in added:
                raise ValueError(
                    f"pod-labels: the selector '{selector}' looks at {requirement.key}, which"
                    " pod-labels adds"
                )


def _number(digits: str) -> int:
    if len(digits) > bounds.LONGEST_NUMBER:
        raise ValueError(f"{digits[:8]}… is not a port")
    return int(digits)


def _entries(text: str) -> tuple[pods.Entries, ...]:
    value = _yaml(text)
    if isinstance(value, dict):
        added = _mapping(cast("object", value), "the option")
        return (pods.Entries(add=added),) if added else ()
    return tuple(
        pods.Entries(pods=selector, add=_mapping(values, "add"))
        for selector, values in _rules(text, "add", optional_pods=True)
    )


def _yaml(text: str) -> object:
    try:
        return documents.read_yaml(text, longest=documents.LONGEST_OBJECT)
    except documents.DocumentError as error:
        raise ValueError(f"this {error}") from error


def _rules(text: str, field: str, *, optional_pods: bool) -> Iterable[tuple[str, object]]:
    for rule in _items(_yaml(text), "the option"):
        fields = cast("dict[object, object]", rule) if isinstance(rule, dict) else {}
        wanted = {field, "pods"}
        if not {field} <= set(fields) <= wanted or not (optional_pods or "pods" in fields):
            raise ValueError(f"each rule is a mapping with pods and {field}")
        selector = fields.get("pods", _EVERY_POD)
        if not isinstance(selector, str) or not (selectors.parse(selector) or optional_pods):
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
    return {str(key): str(text) for key, text in pairs}
