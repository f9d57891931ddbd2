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


def reader(rules: Any, alone: str = "") -> pydantic.BeforeValidator:
    """Return what reads an option with a tuple of rules, in YAML.

    The value of the field `alone` is a rule for every pod where it is all that is written.
    """
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(rules, config=_STRICT)

    def read(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        try:
            # Of JSON, strict validation takes lists for tuples and mappings for dataclasses.
            return adapter.validate_json(json.dumps(_rules(text, alone), default=str))
        except bounded.DocumentError as error:
            raise ValueError(f"this {error}") from error
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{place}: {message}" if place else message) from error

    return pydantic.BeforeValidator(read)


def _rules(text: str, alone: str) -> Any:
    if alone == "ports" and re.fullmatch(r"[0-9,\s]*", text):
        ports = [int(port) for port in re.findall(r"[0-9]+", text)]
        return [{alone: ports}] if ports else []
    value: Any = bounded.read_yaml(text, longest=bounded.LONGEST_OBJECT)
    if value in (None, {}):
        return []
    return [{alone: value}] if alone == "add" and isinstance(value, dict) else value


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
