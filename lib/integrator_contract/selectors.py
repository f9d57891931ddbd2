"""Label selectors as kubectl takes them: `app=web,tier in (a, b),!legacy`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from . import names

LONGEST = 4096
LONGEST_PART = 63
_LINUX = "linux"

_PREFIX = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/"
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY = rf"(?P<key>(?:{_PREFIX})?{_WORD})"
_KEY_ALONE = re.compile(_KEY)
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<operator>==|=|!=)\s*(?P<value>{_WORD})?")
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EXISTS = re.compile(rf"(?P<negated>!?)\s*{_KEY}")
_VALUE = re.compile(rf"(?:{_WORD})?")
_COMMA = r",(?![^()]*\))"
"""A comma outside of brackets. The lookahead reads up to the next bracket; LONGEST limits the
text."""


class Requirement(NamedTuple):
    """One entry of a selector, as the `matchExpressions` of Kubernetes have it."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @property
    def is_negated(self) -> bool:
        """Whether an absent label meets it."""
        return self.operator in ("NotIn", "DoesNotExist")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels meet the requirement."""
        value = labels.get(self.key)
        is_met = value is not None and (not self.values or value in self.values)
        return is_met is not self.is_negated

    def as_expression(self) -> dict[str, object]:
        """Write the requirement as the API has it."""
        expression: dict[str, object] = {"key": self.key, "operator": self.operator}
        if self.values:
            expression["values"] = list(self.values)
        return expression


Selector: TypeAlias = tuple[Requirement, ...]
"""Requirements, all of which have to be met."""
NOTHING: Selector = ()


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Tell whether the labels meet the selector; an empty selector selects nothing."""
    return bool(selector) and all(requirement.matches(labels) for requirement in selector)


def parse(text: str) -> Selector:
    """Parse a selector, or raise ValueError about a part; an empty text selects nothing."""
    if len(text) > LONGEST:
        raise ValueError(f"a selector has at most {LONGEST} characters")
    if not text.strip():
        return NOTHING
    return tuple(_parse_requirement(part.strip()) for part in re.split(_COMMA, text))


def is_key(text: str) -> bool:
    """Tell whether a text is a valid key of a label or annotation."""
    prefix, _, name = text.rpartition("/")
    is_short = len(name) <= LONGEST_PART and len(prefix) <= 253
    return is_short and bool(_KEY_ALONE.fullmatch(text))


def is_value(text: str) -> bool:
    """Tell whether a text is a valid value of a label."""
    return len(text) <= LONGEST_PART and bool(_VALUE.fullmatch(text))


def _parse_requirement(part: str) -> Requirement:
    if match := _EQUALITY.fullmatch(part):
        operator = "NotIn" if match["operator"] == "!=" else "In"
        return _check_requirement(part, match["key"], operator, match["value"] or "")
    if match := _SET.fullmatch(part):
        values = [value.strip() for value in match["values"].split(",")]
        operator = "In" if match["operator"] == "in" else "NotIn"
        return _check_requirement(part, match["key"], operator, *values)
    if match := _EXISTS.fullmatch(part):
        return _check_requirement(
            part, match["key"], "DoesNotExist" if match["negated"] else "Exists"
        )
    raise ValueError(f"'{part}' is not a requirement such as app=web, tier in (a,b) or !legacy")


def _check_requirement(part: str, key: str, operator: str, *values: str) -> Requirement:
    if any(len(text) > LONGEST_PART for text in (key.rpartition("/")[2], *values)):
        raise ValueError(f"'{part}' has a part longer than {LONGEST_PART} characters")
    for value in values:
        if not _VALUE.fullmatch(value):
            raise ValueError(f"'{part}' has '{value}', which is not a label value")
    return Requirement(key, operator, values)


def may_run_on_linux(
    system: str, node_selector: Mapping[str, str], terms: Sequence[Iterable[Requirement]]
) -> bool:
    """Tell whether a pod can run on a node with Linux, and so have a sidecar.

    Args:
        system: The name in `spec.os`; empty: not given.
        node_selector: The labels that the pod requires of its node.
        terms: The terms of the required node affinity; empty: any node.
    """
    required = [system or _LINUX, *(node_selector.get(key, _LINUX) for key in names.NODE_OS)]
    # A node has to match one of the terms, and each expression of that term.
    is_admitted = not terms or any(map(_admits_linux, terms))
    return is_admitted and all(each == _LINUX for each in required)


def _admits_linux(term: Iterable[Requirement]) -> bool:
    about_os = [each for each in term if each.key in names.NODE_OS]
    lists = [each for each in about_os if each.operator in ("In", "NotIn")]
    return all((_LINUX in each.values) is (each.operator == "In") for each in lists)
