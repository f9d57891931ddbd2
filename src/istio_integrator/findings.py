"""What is found of one thing that somebody looked at: how bad it is, and what to do about it."""

from __future__ import annotations

import dataclasses
import enum


class Level(enum.Enum):
    """How bad it is; in this order."""

    BROKEN = "✗"
    """It does not work; in a preview: somebody who may call today could not."""
    DOUBTFUL = "!"
    """It may be wrong, or is not known."""
    FINE = "✓"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of a diagnosis, or of a preview."""

    level: Level
    seen: str
    """What was looked at and how it is, one sentence without a full stop."""
    next: str = ""
    """The command to run next, or what to do; nothing where all is well."""
    check: str = ""
    """Which check says so, or the option that a preview is about."""
    symptoms: tuple[str, ...] = ()
    """Where the page of symptoms has what people see of it: anchors."""


def fine(seen: str) -> Finding:
    """Say that all is well."""
    return Finding(Level.FINE, seen)


def doubtful(seen: str, next: str) -> Finding:  # noqa: A002 - the word of the report
    """Say what may be wrong, or is not known."""
    return Finding(Level.DOUBTFUL, seen, next)


def broken(seen: str, next: str) -> Finding:  # noqa: A002 - the word of the report
    """Say what does not work."""
    return Finding(Level.BROKEN, seen, next)
