"""JSON that is nested deeper than a decoder can follow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

V = TypeVar("V")

DEPTH = 64
"""Levels of nesting that are read. What we know of goes 15 deep; what is nested some hundred times
takes the interpreter's stack, and is never something that anybody here asks for."""
LARGEST_DEEP = 256 * 1024
"""Bytes of an object that is nested deeper: to cut it takes 0.1 s for so much."""
# A string without an end goes to the end, not to be tried again at each quote in it.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[][{}]', re.DOTALL)


def shallow(data: bytes | msgspec.Raw) -> bytes:
    """Return a JSON document with null in place of what is nested deeper than `DEPTH`."""
    text = bytes(data)
    parts: list[bytes] = []
    depth = copied = 0
    for token in _TOKENS.finditer(text):
        char = token[0]
        if char in b"[{":
            depth += 1
            if depth == DEPTH + 1:
                parts += text[copied : token.start()], b"null"
        elif char in b"]}":
            depth -= 1
            if depth == DEPTH:
                copied = token.end()
    return b"".join([*parts, text[copied:]])


def cut_if_deep(decode: Callable[[bytes | msgspec.Raw], V], data: bytes | msgspec.Raw) -> V:
    """Decode a document, and once more without its depths if it is nested too deep.

    Raises:
        RecursionError: if it is large, too.
    """
    try:
        return decode(data)
    except RecursionError:
        text = bytes(data)
        if len(text) > LARGEST_DEEP:
            raise
        return decode(shallow(text))
