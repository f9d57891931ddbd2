"""Label selectors as kubectl takes them, parsed into what Kubernetes objects carry."""

from __future__ import annotations

import re
from typing import NamedTuple

_PREFIX = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/"
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY = rf"(?P<key>(?:{_PREFIX})?{_WORD})"
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<operator>==|=|!=)\s*(?P<value>{_WORD})?")
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EXISTS = re.compile(rf"(?P<negated>!?)\s*{_KEY}")
_VALUE = re.compile(_WORD)
_SEPARATOR = re.compile(r",(?![^(]*\))")
_MAX_NAME = 63


class Requirement(NamedTuple):
    """One entry of a selector's `matchExpressions`."""

    key: str
    operator: str
    """`In`, `NotIn`, `Exists` or `DoesNotExist`."""
    values: tuple[str, ...] = ()

    def as_expression(self) -> dict[str, object]:
        """Write the requirement as the API has it."""
        expression: dict[str, object] = {"key": self.key, "operator": self.operator}
        if self.values:
            expression["values"] = list(self.values)
        return expression


def is_key(text: str) -> bool:
    """Tell whether a label or annotation may be called that."""
    prefix, _, name = text.rpartition("/")
    return bool(re.fullmatch(_KEY, text)) and len(name) <= _MAX_NAME and len(prefix) <= 253


def is_value(text: str) -> bool:
    """Tell whether a label may have that value."""
    return not text or (bool(_VALUE.fullmatch(text)) and len(text) <= _MAX_NAME)


def parse(selector: str) -> tuple[Requirement, ...]:
    """Parse a selector such as `app=web,tier in (a, b),!legacy`.

    An empty selector has no requirements; what that selects is for its user to say.

    Raises:
        ValueError: A part is not a requirement; the message quotes it.
    """
    if not selector.strip():
        return ()
    return tuple(_requirement(part.strip()) for part in _SEPARATOR.split(selector))


def equality(selector: str) -> dict[str, str]:
    """Parse `istio=ingressgateway,app=x`, the only kind of selector that Istio's objects have.

    Raises:
        ValueError: The selector says anything but KEY=VALUE.
    """
    found: dict[str, str] = {}
    for requirement in parse(selector):
        if requirement.operator != "In" or len(requirement.values) != 1:
            raise ValueError("only KEY=VALUE selects a gateway, several with commas")
        found[requirement.key] = requirement.values[0]
    return found


def _requirement(part: str) -> Requirement:
    if match := _EQUALITY.fullmatch(part):
        operator = "NotIn" if match["operator"] == "!=" else "In"
        return _checked(part, match["key"], operator, (match["value"] or "",))
    if match := _SET.fullmatch(part):
        values = tuple(value.strip() for value in match["values"].split(","))
        operator = "In" if match["operator"] == "in" else "NotIn"
        return _checked(part, match["key"], operator, values)
    if match := _EXISTS.fullmatch(part):
        return _checked(part, match["key"], "DoesNotExist" if match["negated"] else "Exists", ())
    raise ValueError(f"'{part}' is not a requirement such as app=web, tier in (a,b) or !legacy")


def _checked(part: str, key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    name = key.rpartition("/")[2]
    for text in (name, *values):
        if len(text) > _MAX_NAME:
            raise ValueError(f"'{part}' has a part longer than {_MAX_NAME} characters")
    for value in values:
        if value and not _VALUE.fullmatch(value):
            raise ValueError(f"'{part}' has '{value}', which is not a label value")
    return Requirement(key, operator, values)
