"""Isolation of objects from each other: an exception about one is noted, and the loop goes on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Mapping

from istio_integrator import texts

logger = logging.getLogger(__name__)

MOST_LOGGED = 10
"""Objects per hook that the log names: each log line starts a process."""
MOST_NOTED = 1000
"""Objects per hook that are noted by name."""

_TROUBLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Exceptions of code that gets an unexpected value. A bug in the charm is noted the same way and
affects only that object."""

_noted: dict[str, str] = {}


@contextlib.contextmanager
def isolate(reference: str) -> Generator[None]:
    """Note an exception about one object, and continue."""
    try:
        yield
    except _TROUBLE as error:
        note_skipped(reference, f"{type(error).__name__}: {error}"[:200])


def note_skipped(reference: str, reason: str) -> None:
    """Log once per hook that an object is skipped, and why."""
    if reference in _noted or len(_noted) >= MOST_NOTED:
        return
    _noted[reference] = reason
    if len(_noted) <= MOST_LOGGED:
        logger.warning("%s is passed over: %s.", texts.escape(reference), texts.escape(reason))
    elif len(_noted) == MOST_LOGGED + 1:
        logger.warning("More objects are passed over: the action diagnose counts them.")


def read_notes() -> Mapping[str, str]:
    """Return the reasons for skipped objects since `clear_notes`, by reference."""
    return dict(_noted)


def clear_notes() -> None:
    """Clear the notes, at the start of each hook."""
    _noted.clear()
