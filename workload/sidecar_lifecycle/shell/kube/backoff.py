"""How long to wait before the next try, for what is no call that tenacity could repeat itself."""

from __future__ import annotations

import tenacity

_RETRYING = tenacity.Retrying()


class Backoff:
    """Exponential, capped, and spread, so that what failed together does not return together."""

    def __init__(self, *, initial: float = 0.2, maximum: float = 30.0) -> None:
        """Wait longer after each failure.

        Args:
            initial: seconds after the first failure; all are spread over twice as many more.
            maximum: seconds, but for the spread; what is back is noticed within this time.
        """
        self._wait = tenacity.wait_exponential(
            multiplier=initial, max=maximum
        ) + tenacity.wait_random(0, 2 * initial)

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after that many failures in a row (1 is the first)."""
        state = tenacity.RetryCallState(_RETRYING, None, (), {})
        state.attempt_number = failures
        return self._wait(state)
