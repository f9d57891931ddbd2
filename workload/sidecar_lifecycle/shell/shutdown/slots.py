"""Limits for concurrent stops: few per node, many in total.

A hanging node must not delay the pods of other nodes. Retries have their own lane. Thousands of
pods may finish together, so a waiting stop is only an entry in a queue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The limits of a lane: concurrent stops per node and in total."""

    per_node: int
    total: int


# Measured with 1, 2, 4, 8 and 30 per node on a node with two cores: 4 was the fastest.
FIRST = Share(per_node=4, total=64)
RETRIES = Share(per_node=2, total=16)


class Lane(Generic[T]):
    """A queue with limits: round robin over the nodes, first in, first out on each node."""

    def __init__(self, share: Share, start: Callable[[T], bool]) -> None:
        """Call `start` with each item that gets a slot; False means that it needs none."""
        self._share = share
        self._start = start
        # The order of the keys is the order of the nodes.
        self._waiting: dict[str, deque[T]] = {}
        self._taken: Counter[str] = Counter()

    def ask(self, node: str, item: T) -> None:
        """Start an item as soon as its node has a free slot."""
        self._waiting.setdefault(node, deque()).append(item)
        self._fill([node])

    def free(self, node: str) -> None:
        """Release a slot of a node."""
        # If all slots were taken, items of other nodes may wait for this one.
        nodes = list(self._waiting) if self._is_full() else [node]
        self._taken[node] -= 1
        self._fill(nodes)
        self._taken += Counter()  # Drops nodes without a stop.

    def _is_full(self) -> bool:
        return self._taken.total() >= self._share.total

    def _fill(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            while self._taken[node] < self._share.per_node and node in self._waiting:
                if self._is_full():
                    return
                queue = self._waiting.pop(node)
                item = queue.popleft()
                if queue:
                    self._waiting[node] = queue
                if self._start(item):
                    self._taken[node] += 1
