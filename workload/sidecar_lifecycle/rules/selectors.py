"""Label selectors as kubectl takes them: `app=web,tier in (a, b),!legacy`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_PREFIX = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/"
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY = rf"(?P<key>(?:{_PREFIX})?{_WORD})"
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<operator>==|=|!=)\s*(?P<value>{_WORD})?")
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EXISTS = re.compile(rf"(?P<negated>!?)\s*{_KEY}")
_VALUE = re.compile(rf"(?:{_WORD})?")
_SEPARATOR = re.compile(r",(?![^(]*\))")


class Requirement(NamedTuple):
    """One part of a selector: a key, and the values that it must or must not have."""

    key: str
    negated: bool
    values: frozenset[str] | None = None
    """None: any value."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels meet the requirement; a label that is absent has no value."""
        value = labels.get(self.key)
        met = value is not None and (self.values is None or value in self.values)
        return met is not self.negated


class Selector(NamedTuple):
    """Requirements that all have to be met; none at all select nothing."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod with these labels is selected."""
        return bool(self.requirements) and all(
            requirement.matches(labels) for requirement in self.requirements
        )


NOTHING = Selector()


def parse(text: str) -> Selector:
    """Parse a selector; an empty text gives one that selects nothing.

    Raises:
        ValueError: A part is not a requirement; the message quotes it.
    """
    if not text.strip():
        return NOTHING
    return Selector(tuple(_requirement(part.strip()) for part in _SEPARATOR.split(text)))


def _requirement(part: str) -> Requirement:
    if match := _EQUALITY.fullmatch(part):
        negated = match["operator"] == "!="
        return Requirement(match["key"], negated, frozenset([match["value"] or ""]))
    if match := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in match["values"].split(","))
        if all(map(_VALUE.fullmatch, values)):
            return Requirement(match["key"], match["operator"] == "notin", values)
    if match := _EXISTS.fullmatch(part):
        return Requirement(match["key"], bool(match["negated"]))
    raise ValueError(f"'{part}' is not a requirement such as app=web, tier in (a,b) or !legacy")
