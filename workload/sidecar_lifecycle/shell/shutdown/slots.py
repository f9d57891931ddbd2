"""How many stops are in flight: few per node, many in total.

A node that hangs must not delay the pods of other nodes. Stops that failed once wait in a lane of
their own. Thousands of pods may finish together, so a stop that waits costs an entry in a queue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The places of one lane."""

    per_node: int
    total: int


# Of 1, 2, 4, 8 and 30 at once on a node with two cores, 4 answered soonest.
FIRST = Share(per_node=4, total=64)
RETRIES = Share(per_node=2, total=16)


class Lane(Generic[T]):
    """Hands out places: nodes take turns, and on a node the order is that of arrival."""

    def __init__(self, share: Share, start: Callable[[T], bool]) -> None:
        """Call `start` with each item that gets a place; it returns False if none is needed."""
        self._share = share
        self._start = start
        # The order of the keys is that of the turns.
        self._waiting: dict[str, deque[T]] = {}
        self._taken: Counter[str] = Counter()

    def ask(self, node: str, item: T) -> None:
        """Start an item as soon as its node has a place."""
        self._waiting.setdefault(node, deque()).append(item)
        self._fill([node])

    def free(self, node: str) -> None:
        """Give a place back."""
        # While all places were taken, other nodes may have waited for this one.
        nodes = list(self._waiting) if self._is_full() else [node]
        self._taken[node] -= 1
        self._fill(nodes)
        self._taken += Counter()  # Forgets nodes without a stop.

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
