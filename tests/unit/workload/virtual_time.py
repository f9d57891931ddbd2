"""An event loop whose clock jumps: what would be waited for is there at once.

A module that says `VIRTUAL_TIME = True` gets it (conftest.py). Sockets are real. Only when nothing
is to be read or written does time move on, to the next timer.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

_SETTLE = 0.0005
"""Real seconds that sockets and threads get before the clock jumps."""


class _Selector(selectors.DefaultSelector):
    jumped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        ready = super().select(_SETTLE if timeout is not None else None)
        if not ready and timeout is not None:
            self.jumped += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Counts what was jumped over into its clock."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return super().time() + self._virtual.jumped
