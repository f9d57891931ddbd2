"""What we write onto objects of others: what was set there, by whom, and what was there before.

Whoever may write such an object may write the record as well, so it is read into types within
limits, and what is none of ours is none at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import msgspec

_MOST = 100
"""Labels or annotations of a record; an operator sets a handful."""
_Key = Annotated[str, msgspec.Meta(min_length=1, max_length=317)]
"""A prefix of 253 characters, a slash and a name of 63."""


class UndoRecord(msgspec.Struct, frozen=True):
    """What an integrator did to the labels or annotations of an object."""

    owner: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    """The application that did it, as its ownership label names it."""
    values: Annotated[Mapping[_Key, str], msgspec.Meta(max_length=_MOST)] = msgspec.field(
        name="set"
    )
    """What it set."""
    before: Annotated[Mapping[_Key, str | None], msgspec.Meta(max_length=_MOST)]
    """What each that it changed was before; None for absent."""

    @classmethod
    def read(cls, text: str | None) -> UndoRecord | None:
        """Read what `written` wrote; None where it is nothing of that kind."""
        try:
            return msgspec.json.decode(text or "", type=cls)
        except (ValueError, RecursionError):
            return None

    def written(self) -> str:
        """Write it as an annotation's value."""
        return json.dumps(msgspec.to_builtins(self), sort_keys=True)
