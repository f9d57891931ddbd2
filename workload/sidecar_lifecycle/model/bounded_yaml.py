"""YAML that others wrote, read within bounds.

It is built from its events, one after the other: no depth ends in a RecursionError, and nothing
is built that is beyond a bound. There are no aliases, merge keys or tags; timestamps stay text,
and so does 22:00, as in Kubernetes, which also makes texts of numbers and truth values as keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import yaml

from integrator_contract import bounds
from integrator_contract.bounds import RefusedError
from sidecar_lifecycle.model.bounded import DEEPEST, too_deep

MOST_EVENTS = 150_000
"""Which take ten times as long as values of JSON: values, and the ends of lists and mappings."""
_FAMILY = "tag:yaml.org,2002:"
_PLAIN_TAGS = (None, "!", f"{_FAMILY}str", f"{_FAMILY}map", f"{_FAMILY}seq")
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""With libyaml where it is there."""
_RESOLVER: Any = yaml.resolver.Resolver()
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_CONSTRUCT = {
    f"{_FAMILY}bool": _CONSTRUCTOR.construct_yaml_bool,
    f"{_FAMILY}float": _CONSTRUCTOR.construct_yaml_float,
    f"{_FAMILY}int": _CONSTRUCTOR.construct_yaml_int,
    f"{_FAMILY}null": _CONSTRUCTOR.construct_yaml_null,
}
_NUMBERS = (f"{_FAMILY}int", f"{_FAMILY}float")


class _Open:
    """A list or mapping that is not complete yet."""

    def __init__(self, value: list[Any] | dict[Any, Any]) -> None:
        self.value = value
        self._keys: list[object] = []

    def add(self, value: object) -> bool:
        """Take the next value, or key; tell whether it is possible."""
        if isinstance(self.value, list):
            self.value.append(value)
        elif self._keys:
            self.value[self._keys.pop()] = value
        elif isinstance(value, list | dict):
            return False
        elif isinstance(value, bool):
            self._keys.append(str(value).lower())
        elif isinstance(value, int | float):
            self._keys.append(str(value))
        else:
            self._keys.append(value)
        return True


def documents(text: str) -> Iterator[object]:
    """Yield the documents of a text.

    Raises:
        RefusedError: It is no YAML, or beyond a bound.
    """
    if _DIRECTIVE.search(text):
        raise RefusedError("has a line that begins with %, and YAML's directives are not read")
    # The outermost one takes the documents.
    outermost: list[object] = []
    opened = [_Open(outermost)]
    for event in _events(text):
        if isinstance(event, yaml.DocumentEndEvent):
            yield outermost.pop()
        elif isinstance(event, yaml.ScalarEvent):
            _add(opened, _scalar(event), event)
        elif isinstance(event, yaml.CollectionStartEvent):
            started = _Open([] if isinstance(event, yaml.SequenceStartEvent) else {})
            _add(opened, started.value, event)
            opened.append(started)
            if len(opened) > DEEPEST + 1:
                raise too_deep()
        elif isinstance(event, yaml.CollectionEndEvent):
            opened.pop()


def _events(text: str) -> Iterator[Any]:
    event: Any
    try:
        for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
            if number > MOST_EVENTS:
                raise RefusedError(
                    f"has more than {MOST_EVENTS} values: give less at a time, or JSON"
                )
            if isinstance(event, yaml.AliasEvent):
                raise _at(event, f"the alias *{event.anchor}: write out what it stands for")
            if getattr(event, "tag", None) not in _PLAIN_TAGS:
                raise _at(event, f"the tag {event.tag}: leave it out")
            yield event
    except yaml.YAMLError as error:
        line = " ".join(str(error).split())[:300]
        raise RefusedError(f"is neither JSON nor YAML: {line}") from error


def _at(event: Any, what: str) -> RefusedError:
    return RefusedError(f"has in line {event.start_mark.line + 1} {what}")


def _add(opened: list[_Open], value: object, event: Any) -> None:
    if not opened[-1].add(value):
        raise _at(event, "a list or mapping as a key")


def _scalar(event: Any) -> object:
    text: str = event.value
    if event.tag is not None or not event.implicit[0]:
        return text
    tag = cast("str", _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)))
    if tag not in _CONSTRUCT or ":" in text:
        return text
    if tag in _NUMBERS and len(text) > bounds.LONGEST_NUMBER:
        raise _at(event, f"a number of {len(text)} characters")
    try:
        return _CONSTRUCT[tag](yaml.ScalarNode(tag, text))
    except ValueError:
        # Such as 0x_, which looks like a number.
        return text
