"""The options that give new pods more than a sidecar: labels, annotations, ports, images."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import pydantic

from integrator_contract import bounded, names, pods, selectors

_PLACE = (names.INJECT, names.REVISION)
"""Labels that decide about a pod's place in the mesh."""
_Rule = TypeVar("_Rule", bound=pods.Rule)
_STRICT = pydantic.ConfigDict(strict=True, extra="forbid", defer_build=True)
_ENTRIES = pydantic.TypeAdapter(tuple[pods.Entries, ...], config=_STRICT)
_PORTS = pydantic.TypeAdapter(tuple[pods.Ports, ...], config=_STRICT)
_REGISTRIES = pydantic.TypeAdapter(tuple[pods.Registries, ...], config=_STRICT)


def parse_labels(text: str) -> tuple[pods.Entries, ...]:
    """Read the option `pod-labels`; a ValueError says what is wrong."""
    rules = _entries(text)
    pods.check_labels(rules)
    return rules


def parse_annotations(text: str) -> tuple[pods.Entries, ...]:
    """Read the option `pod-annotations`; a ValueError says what is wrong."""
    rules = _entries(text)
    pods.check_annotations(rules)
    return rules


def parse_ports(text: str) -> tuple[pods.Ports, ...]:
    """Read the option `excluded-outbound-ports`; a ValueError says what is wrong."""
    if re.fullmatch(r"[0-9,\s]*", text):
        numbers = [int(port) for port in re.findall(r"[0-9]+", text)]
        return _rules(_PORTS, [{"ports": numbers}] if numbers else None)
    return _rules(_PORTS, _yaml(text))


def parse_registries(text: str) -> tuple[pods.Registries, ...]:
    """Read the option `image-registries`; a ValueError says what is wrong."""
    rules = _rules(_REGISTRIES, _yaml(text))
    pods.check_registries(rules)
    return rules


def check_selectors(rules: pods.PodRules, *others: str) -> None:
    """See that no selector depends on what is added, or order would matter.

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


def _entries(text: str) -> tuple[pods.Entries, ...]:
    value = _yaml(text)
    return _rules(_ENTRIES, [{"add": value}] if value and isinstance(value, dict) else value)


def _yaml(text: str) -> Any:
    try:
        return bounded.read_yaml(text, longest=bounded.LONGEST_OBJECT)
    except bounded.DocumentError as error:
        raise ValueError(f"this {error}") from error


def _rules(adapter: pydantic.TypeAdapter[tuple[_Rule, ...]], value: Any) -> tuple[_Rule, ...]:
    if value is None or value == {}:
        return ()
    try:
        # Of JSON, strict validation takes lists for tuples and mappings for dataclasses.
        return adapter.validate_json(json.dumps(value, default=str))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place}: {message}" if place else message) from error
