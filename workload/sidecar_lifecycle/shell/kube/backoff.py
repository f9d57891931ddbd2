"""How long to wait where tenacity can't repeat a call: watches, and stops that wait in timers."""

from __future__ import annotations

import random

_MOST_DOUBLINGS = 30


def delay(failures: int, *, initial: float = 0.2, maximum: float = 30.0) -> float:
    """Return how long to wait after failures in a row, in seconds.

    The delay doubles with each failure up to a maximum. Up to twice the initial delay is added at
    random, so that requests which failed together are not sent again together.
    """
    doubled = initial * 2 ** min(failures - 1, _MOST_DOUBLINGS)
    return min(maximum, doubled) + random.uniform(0, 2 * initial)  # noqa: S311 - no secret
