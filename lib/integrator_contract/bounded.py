"""Bounded reading of JSON and YAML from other programs and people.

A document that is too long, too deep or too large is rejected before it costs time or memory. So
are YAML aliases, merge keys and tags, which only YAML bombs need.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar, cast

import yaml

LONGEST = 65536
LONGEST_OBJECT = 1 << 20
"""Characters of a document that fills a whole ConfigMap or option: the size limit of etcd."""
DEEPEST = 64
"""Nested lists and mappings: a pod has about 12 levels, a List of pods 14."""
MOST_VALUES = 20_000
"""Values in a document, about 5 MB of memory."""
LARGEST_DEEP = 256 * 1024
"""Bytes of a deeper document that is still read, without its lowest levels: cutting takes 0.1
s."""
_LONGEST_NUMBER = 40
"""Characters: Python refuses to write integers of more than 4,300 digits."""
_LONGEST_REASON = 200
_TOO_DEEP = f"nests more than {DEEPEST} lists or mappings"

_V = TypeVar("_V")


class DocumentError(ValueError):
    """A rejected document; the message is a predicate that follows the sender's name."""


def read_yaml(text: str, *, longest: int = LONGEST) -> Any:
    """Read one YAML document, or raise DocumentError; None if the text is empty."""
    _check_length(text, longest)
    try:
        # libyaml would be faster but rejects characters that JSON writes as two escapes.
        return _Loader(text).get_single_data()
    except DocumentError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        is_half = f"{error.problem}".startswith("but ")
        problem = f"{error.context}, {error.problem}" if is_half else f"{error.problem}"
        raise DocumentError(f"is not valid YAML: {problem[:_LONGEST_REASON]}{where}") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise DocumentError(f"is not valid YAML: {reason}") from error


def read_json(text: str | bytes, *, longest: int = LONGEST) -> Any:
    """Read one JSON document, or raise DocumentError."""
    _check_length(text, longest)
    try:
        text = text.decode() if isinstance(text, bytes) else text
        _check_count(sum(map(text.count, ",[{")))
        value = _DECODER.decode(text)
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except DocumentError:
        raise
    except RecursionError as error:
        raise DocumentError(_TOO_DEEP) from error
    except ValueError as error:
        raise DocumentError(f"is no JSON: {error}") from error
    if not is_shallow(value):
        raise DocumentError(_TOO_DEEP)
    return value


def is_shallow(value: object, deepest: int = DEEPEST) -> bool:
    """Tell whether at most `deepest` lists and mappings are nested."""
    if not isinstance(value, dict | list):
        return True
    inner = cast("Iterable[object]", value.values() if isinstance(value, dict) else value)
    return deepest > 0 and all(is_shallow(each, deepest - 1) for each in inner)


def cut_depth(text: bytes, deepest: int = DEEPEST) -> bytes:
    """Return a JSON document with null in place of values below level `deepest`."""
    kept: list[bytes] = []
    depth = copied = 0
    for token in _TOKENS.finditer(text):
        char = token[0]
        if char in b"[{":
            depth += 1
            if depth == deepest + 1:
                kept += text[copied : token.start()], b"null"
        elif char in b"]}":
            depth -= 1
            if depth == deepest:
                copied = token.end()
    return b"".join([*kept, text[copied:]])


def cut_if_deep(decode: Callable[[bytes], _V], data: bytes) -> _V:
    """Decode a JSON document; retry a small one without its deepest levels on RecursionError."""
    try:
        return decode(data)
    except RecursionError:
        text = bytes(data)
        if len(text) > LARGEST_DEEP:
            raise
        return decode(cut_depth(text))


# An unterminated string matches up to the end, so that no later quote in it is tried again.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[][{}]', re.DOTALL)
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def _check_length(text: str | bytes, longest: int) -> None:
    if len(text) > longest:
        raise DocumentError(f"has {len(text)} characters, more than {longest}")


def _check_count(values: int) -> None:
    if values > MOST_VALUES:
        raise DocumentError(f"has more than {MOST_VALUES} values")


def _parse_integer(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise DocumentError(f"has a number of {len(digits)} characters")
    return int(digits)


def _reject_constant(name: str) -> NoReturn:
    raise DocumentError(f"has {name}, which is no number of JSON")


_DECODER = json.JSONDecoder(parse_int=_parse_integer, parse_constant=_reject_constant)
_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset(
    f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp")
)


class _Loader(yaml.SafeLoader):
    """Rejects a node that only YAML bombs need or that exceeds the limits, before it is built."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # PyYAML has no type annotation for it.
        event: Any = cast("Any", self).peek_event()
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            raise DocumentError("has an alias or an anchor: write each value out")
        if event.tag not in (None, "!", f"{_TAG}str"):
            raise DocumentError(f"has the tag {event.tag[:40]!r}")
        self._count += 1
        _check_count(self._count)
        self._depth += isinstance(event, yaml.CollectionStartEvent)
        if self._depth > DEEPEST:
            raise DocumentError(_TOO_DEEP)
        node = super().compose_node(parent, index)
        self._depth -= isinstance(event, yaml.CollectionStartEvent)
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node)
        return node


def _check_scalar(node: yaml.ScalarNode) -> None:
    if node.tag not in _SCALARS:
        raise DocumentError(f"has {node.value[:40]!r}, which YAML gives a meaning: quote it")
    if node.tag == f"{_TAG}str":
        node.value = _join_surrogates(node.value)
    elif len(node.value) > _LONGEST_NUMBER:
        raise DocumentError(f"has a number of {len(node.value)} characters")


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs, which JSON writes as two escapes and YAML does not join."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise DocumentError(f"has half a character in {text[:40]!r}") from error
