"""How long to wait where tenacity can't repeat a call: watches, and stops that wait in timers."""

from __future__ import annotations

import random

_MOST_DOUBLINGS = 30


def delay(failures: int, *, initial: float = 0.2, maximum: float = 30.0) -> float:
    """Return how long to wait after failures in a row, in seconds.

    The delay doubles with each failure up to a maximum. A random part is added, so that requests
    which failed together are not sent again together.

    Args:
        failures: How many there were; at least 1.
        initial: Seconds after the first one. Up to twice as many seconds are added at random.
        maximum: Seconds, without the random part.
    """
    doubled = initial * 2 ** min(failures - 1, _MOST_DOUBLINGS)
    return min(maximum, doubled) + random.uniform(0, 2 * initial)  # noqa: S311 - no secret
