"""How long to wait before the next try."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential, capped, with jitter, so that what failed together does not return together."""

    initial: float = 0.2
    """Seconds after the first failure."""
    maximum: float = 30.0
    """Seconds; a component that is back is noticed within this time."""
    factor: float = 2.0
    jitter: float = 0.5
    """Share of the delay that is random."""

    def delay(self, failures: int, *, rand: float | None = None) -> float:
        """Return the seconds to wait after that many failures in a row (1 is the first)."""
        full = min(self.maximum, self.initial * self.factor ** min(failures - 1, 32))
        share = random.random() if rand is None else rand  # noqa: S311 - jitter, no secret
        return full * (1 - self.jitter * share)
