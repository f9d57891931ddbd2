"""The options that give new pods more than a sidecar: labels, annotations, ports, images."""

from __future__ import annotations

import json
import re
from typing import Any

import pydantic

from integrator_contract import bounded, names, pods, selectors

_PLACE = (names.INJECT, names.REVISION)
"""Labels that decide about a pod's place in the mesh."""
_STRICT = pydantic.ConfigDict(strict=True, extra="forbid", defer_build=True)


def reader(kind: type[pods.Rule]) -> pydantic.BeforeValidator:
    """Return what reads an option with rules of a kind, in YAML.

    Labels and annotations may be a mapping alone, and ports numbers alone: for every pod.
    """
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(tuple[kind, ...], config=_STRICT)

    def read(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        try:
            # Of JSON, strict validation takes lists for tuples and mappings for dataclasses.
            return adapter.validate_json(json.dumps(_rules(kind, text), default=str))
        except bounded.DocumentError as error:
            raise ValueError(f"this {error}") from error
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{place}: {message}" if place else message) from error

    return pydantic.BeforeValidator(read)


def _rules(kind: type[pods.Rule], text: str) -> Any:
    if kind is pods.Ports and re.fullmatch(r"[0-9,\s]*", text):
        ports = [int(port) for port in re.findall(r"[0-9]+", text)]
        return [{"ports": ports}] if ports else []
    value = bounded.read_yaml(text, longest=bounded.LONGEST_OBJECT)
    if kind is pods.Entries and isinstance(value, dict) and value:
        return [{"add": value}]
    return [] if value in (None, {}) else value


def check_selectors(rules: pods.PodRules, *others: str) -> None:
    """See that no selector depends on what is added, or order would matter.

    Raises:
        ValueError: Naming the label.
    """
    added = {key for rule in rules.pod_labels for key in rule.add}
    own = [rule.pods for rule in rules.rules]
    for selector in (*own, *others):
        for requirement in selectors.parse(selector):
            looks = f"the selector '{selector}' looks at {requirement.key}, which"
            if requirement.key in _PLACE and selector in own:
                raise ValueError(f"{looks} is set here")
            if requirement.key in added:
                raise ValueError(f"pod-labels: {looks} pod-labels adds")
