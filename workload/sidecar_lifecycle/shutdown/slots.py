"""How many stops are in flight: few per node, many in total.

A node that is hung, or a proxy that does not answer, must delay nobody else. So a node has its own
few places, and what failed once tries again in a lane of its own, where only other failed ones
wait. Who waits for a first place costs an entry in a queue and nothing more, since thousands of
pods may finish together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The places there are."""

    per_node: int = 4
    """First tries per node: of 1, 2, 4, 8 and 30 on two cores, 4 answered soonest."""
    total: int = 64
    retries_per_node: int = 1
    retries_total: int = 16


class Slots(Generic[T]):
    """Hands out the places, by node and in order of arrival."""

    def __init__(self, start: Callable[[T], bool], limits: Limits | None = None) -> None:
        """Hand out places.

        Args:
            start: called with who gets a place; returns False if it is not wanted any more.
            limits: how many places there are.
        """
        self._start = start
        self._limits = limits or Limits()
        self._waiting: dict[str, deque[T]] = {}
        self._busy: Counter[str] = Counter()
        self._total = 0
        self._retries = asyncio.Semaphore(self._limits.retries_total)
        self._retrying: dict[str, asyncio.Semaphore] = {}
        self._retry_users: Counter[str] = Counter()

    def ask(self, node: str, item: T) -> None:
        """Have `item` started as soon as its node has a place."""
        self._waiting.setdefault(node, deque()).append(item)
        self._fill(node)

    def free(self, node: str) -> None:
        """Give a place back."""
        all_taken = self._total >= self._limits.total
        self._count(node, -1)
        self._fill(node)
        if all_taken:
            for other in list(self._waiting):
                if self._total >= self._limits.total:
                    return
                self._fill(other)

    def _fill(self, node: str) -> None:
        queue = self._waiting.pop(node, None)
        while queue and self._has_place(node):
            self._count(node, 1)
            if not self._start(queue.popleft()):
                self._count(node, -1)
        if queue:
            # At the end, so that the nodes take turns for the places that all share.
            self._waiting[node] = queue

    def _has_place(self, node: str) -> bool:
        limits = self._limits
        return self._busy[node] < limits.per_node and self._total < limits.total

    def _count(self, node: str, by: int) -> None:
        self._total += by
        self._busy[node] += by
        if not self._busy[node]:
            del self._busy[node]

    @contextlib.asynccontextmanager
    async def retry(self, node: str) -> AsyncGenerator[None]:
        """Wait for a place in the lane of those that failed, and hold it for the block."""
        places = self._retrying.setdefault(node, asyncio.Semaphore(self._limits.retries_per_node))
        self._retry_users[node] += 1
        try:
            # The node's place first: who waits for a hung node must not hold one of the total.
            async with places, self._retries:
                yield
        finally:
            self._retry_users[node] -= 1
            if not self._retry_users[node]:
                del self._retry_users[node], self._retrying[node]
