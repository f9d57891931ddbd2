"""JSON that is nested deeper than a decoder can follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from integrator_contract import bounds

V = TypeVar("V")

DEPTH = 64
"""Levels of nesting that are read. What we know of goes 15 deep; what is nested some hundred times
takes the interpreter's stack, and is never something that anybody here asks for."""
LARGEST_DEEP = 256 * 1024
"""Bytes of an object that is nested deeper: to cut it takes 0.1 s for so much."""


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
        return decode(bounds.shallow(text, DEPTH))
