"""How many stops are in flight: few per node, many in total.

A node that is hung, or a proxy that does not answer, must delay nobody else. So a node has its own
few places, and what failed once tries again in a lane of its own, where only other failed ones
wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The places there are."""

    per_node: int = 4
    """First tries per node; on two cores, 4 drained a node sooner than 30 did."""
    total: int = 64
    retries_per_node: int = 1
    retries_total: int = 16


@dataclass(slots=True)
class _Lane:
    per_node: int
    total: asyncio.Semaphore
    nodes: dict[str, asyncio.Semaphore] = field(default_factory=dict[str, asyncio.Semaphore])
    users: dict[str, int] = field(default_factory=dict[str, int])

    @contextlib.asynccontextmanager
    async def take(self, node: str) -> AsyncGenerator[None]:
        places = self.nodes.setdefault(node, asyncio.Semaphore(self.per_node))
        self.users[node] = self.users.get(node, 0) + 1
        try:
            # The node's place first: who waits for a hung node must not hold one of the total.
            async with places, self.total:
                yield
        finally:
            self.users[node] -= 1
            if not self.users[node]:
                del self.users[node], self.nodes[node]


class Slots:
    """Hands out the places."""

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._first = _Lane(limits.per_node, asyncio.Semaphore(limits.total))
        self._again = _Lane(limits.retries_per_node, asyncio.Semaphore(limits.retries_total))

    def take(
        self, node: str, *, again: bool = False
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Wait for a place and hold it for the time of the block."""
        return (self._again if again else self._first).take(node)
