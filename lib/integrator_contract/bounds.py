"""JSON and YAML that others wrote: the bounds that the readers of both programs keep to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NoReturn, cast

LONGEST_NUMBER = 40
"""Characters of a number: 64 bits have 20 digits, a float 17 and an exponent. Python itself
refuses to write integers of more than 4,300."""


class RefusedError(ValueError):
    """A text that is not read; the message says why, as it follows the name of who sent it."""


def _inner(value: object) -> Iterable[Any]:
    """Return what a list or a mapping consists of, without the mapping's keys."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def is_shallow(value: object, deepest: int) -> bool:
    """Tell whether no more than so many lists and mappings are within each other."""
    level = [value]
    for _ in range(deepest + 1):
        level = [each for outer in level for each in _inner(outer)]
        if not level:
            return True
    return False


# A string without an end goes to the end, not to be tried again at each quote in it.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[][{}]', re.DOTALL)


def shallow(text: bytes, deepest: int) -> bytes:
    """Return a JSON document with null in place of what is nested deeper than so many levels."""
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


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise RefusedError(f"has a number of {len(digits)} characters")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise RefusedError(f"has {name}, which is no number of JSON")


DECODER = json.JSONDecoder(parse_int=_integer, parse_constant=_no_constant)
"""Of JSON, without numbers that nobody writes; what is nested deep is a RecursionError to it."""
