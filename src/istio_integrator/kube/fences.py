"""One object's trouble stays its own: what is raised about it is noted, and the others go on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Mapping

from istio_integrator import texts

logger = logging.getLogger(__name__)

MOST_LOGGED = 10
"""Objects of one hook that the log names: each line of it is a process."""
MOST_NOTED = 1000
"""Objects of one hook that are remembered by their names."""

_TROUBLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What code raises about a value that it did not expect; a mistake of ours among it is noted,
too, and costs that object only."""

_noted: dict[str, str] = {}


@contextlib.contextmanager
def around(reference: str) -> Generator[None]:
    """Keep what is raised about one object from the others."""
    try:
        yield
    except _TROUBLE as error:
        note(reference, f"{type(error).__name__}: {error}"[:200])


def note(reference: str, reason: str) -> None:
    """Say once per hook that an object is passed over, and why."""
    if reference in _noted or len(_noted) >= MOST_NOTED:
        return
    _noted[reference] = reason
    if len(_noted) <= MOST_LOGGED:
        logger.warning("%s is passed over: %s.", texts.plain(reference), texts.plain(reason))
    elif len(_noted) == MOST_LOGGED + 1:
        logger.warning("More objects are passed over: the action diagnose counts them.")


def noted() -> Mapping[str, str]:
    """Return why objects were passed over since `forget`, by their references."""
    return dict(_noted)


def forget() -> None:
    """Begin anew, as each hook does."""
    _noted.clear()
