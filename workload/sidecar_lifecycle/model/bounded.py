"""JSON and YAML that others wrote, read within bounds and into plain values."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from integrator_contract import bounds
from integrator_contract.bounds import RefusedError

LARGEST = 16 * 1024 * 1024
"""Of a text, in bytes: some 1,500 pods."""
MOST_VALUES = 400_000
"""In JSON, by its commas and opening brackets: as many pods. Each takes up to 200 bytes."""
DEEPEST = 100
"""Nesting: a pod has some 12 levels, and a List around it two more."""

_SPACE = re.compile(r"\s*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read(source: Path | str, largest: int = LARGEST) -> bytes:
    """Read a file, or standard input for `-`.

    Raises:
        OSError: It can't be read.
        RefusedError: It is too long.
    """
    if source == "-":
        data = sys.stdin.buffer.read(largest + 1)
    else:
        with Path(source).open("rb") as file:
            data = file.read(largest + 1)
    if len(data) > largest:
        raise RefusedError(f"has more than {largest // 1024} KiB: give less at a time")
    return data


def documents(data: bytes) -> Iterator[object]:
    """Yield the documents of a text: YAML ones, or JSON objects one after the other.

    Raises:
        RefusedError: It is neither, or beyond a bound.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise RefusedError("is not UTF-8 text") from None
    if text.lstrip()[:1] == "{":
        try:
            values = list(_json(text))
        except json.JSONDecodeError:
            # A YAML flow mapping begins like that, too.
            pass
        else:
            yield from values
            return
    # Few texts are YAML, and the library takes a megabyte.
    from sidecar_lifecycle.model import bounded_yaml  # noqa: PLC0415

    yield from bounded_yaml.documents(text)


def _json(text: str) -> Iterator[object]:
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise RefusedError(f"has more than {MOST_VALUES} values: give less at a time")
    may_be_no_text = _SURROGATE.search(text) is not None
    position = 0
    while (position := _SPACE.match(text, position).end()) < len(text):  # type: ignore[union-attr] # an empty one fits
        try:
            document, position = bounds.DECODER.raw_decode(text, position)
        except RecursionError:
            raise too_deep() from None
        if not bounds.is_shallow(document, DEEPEST):
            raise too_deep()
        if may_be_no_text:
            _check_text(document)
        yield document


def _check_text(document: object) -> None:
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RefusedError("has half of a surrogate pair, which is no character") from None


def too_deep() -> RefusedError:
    """Say what is wrong with a text that nests too much."""
    return RefusedError(f"is nested deeper than {DEEPEST} levels")
