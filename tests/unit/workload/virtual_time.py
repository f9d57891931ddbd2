"""An event loop whose clock only jumps: how long a machine takes to compute is not counted.

All tests of the workload get it (conftest.py). Sockets are real. Only when no socket can be read
or written does time move on, to the next timer.
"""

import asyncio
import selectors
from typing import Any

_SETTLE = 0.0005
"""Real seconds that the kernel gets to deliver what was sent before the clock jumps."""
_LEAST = 1e-6
"""Seconds of the shortest jump: the rounding of a late clock could swallow a shorter one."""


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(_SETTLE)
        if not ready:
            self.now += max(timeout, _LEAST)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Has the sum of the jumps as its clock."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Refuse to run a function in a thread, for which the clock would not wait."""
        raise NotImplementedError
