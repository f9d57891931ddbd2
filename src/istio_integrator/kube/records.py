"""What we write onto objects of others: what was set there, by whom, and what was there before.

Whoever may write such an object may write the record as well, so it is read into types within
limits, and what is none of ours is none at all.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated

import pydantic

from integrator_contract import bounded

_MOST = 100
"""Labels or annotations of a record; an operator sets a handful."""
_Owner = Annotated[str, pydantic.Field(min_length=1, max_length=63)]
_Key = Annotated[str, pydantic.Field(min_length=1, max_length=317)]
"""A prefix of 253 characters, a slash and a name of 63."""


class _Written(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, frozen=True, defer_build=True)

    owner: _Owner
    values: Annotated[dict[_Key, str], pydantic.Field(alias="set", max_length=_MOST)]
    before: Annotated[dict[_Key, str | None], pydantic.Field(max_length=_MOST)]


@dataclasses.dataclass(frozen=True)
class Record:
    """What an integrator did to the labels or annotations of an object."""

    owner: str
    """The application that did it, as its ownership label names it."""
    values: Mapping[str, str]
    """What it set."""
    before: Mapping[str, str | None]
    """What each that it changed was before; None for absent."""

    @classmethod
    def read(cls, text: str | None) -> Record | None:
        """Read what `written` wrote; None where it is nothing of that kind."""
        if not text:
            return None
        try:
            longest = bounded.LONGEST_OBJECT
            found = _Written.model_validate(bounded.read_json(text, longest=longest))
        except ValueError:
            return None
        return cls(found.owner, found.values, found.before)

    def written(self) -> str:
        """Write it as an annotation's value."""
        value = {"owner": self.owner, "set": dict(self.values), "before": dict(self.before)}
        return json.dumps(value, sort_keys=True)
