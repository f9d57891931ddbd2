"""How many stops are in flight: few per node, many in total, shared between namespaces.

A node that is hung, or a proxy that does not answer, must delay nobody else. So a node has its own
few places, of which no namespace takes all, and namespaces take turns for them. What failed once
tries again in a lane of its own, where only other failed ones wait. Who waits for a place costs an
entry in a queue and nothing more, since thousands of pods may finish together.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Place(NamedTuple):
    """What a pod takes a place of."""

    node: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The places of one lane."""

    per_node: int
    total: int
    namespace_per_node: int
    """Of a node's places those that one namespace may hold, so that another one's pod begins at
    once however many of the first hang."""
    namespace_total: int
    """The same of all places, since a namespace may have hanging pods on every node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The places there are."""

    first: Share = field(
        # Of 1, 2, 4, 8 and 30 at once on a node with two cores, 4 answered soonest.
        default=Share(per_node=5, total=64, namespace_per_node=4, namespace_total=48)
    )
    retries: Share = field(
        default=Share(per_node=2, total=16, namespace_per_node=1, namespace_total=12)
    )


class Lane(Generic[T]):
    """Hands out places: nodes take turns, on a node namespaces, in these who came first."""

    def __init__(self, share: Share, start: Callable[[T], bool]) -> None:
        """Hand out places.

        Args:
            share: how many places there are.
            start: called with who gets a place; returns False if it is not wanted any more.
        """
        self._share = share
        self._start = start
        # Dictionaries keep the order of the turns: whose turn it was goes to the end.
        self._waiting: dict[str, dict[str, deque[T]]] = {}
        self._total = 0
        self._of_node: Counter[str] = Counter()
        self._of_namespace: Counter[str] = Counter()
        self._of_place: Counter[Place] = Counter()

    def ask(self, place: Place, item: T) -> None:
        """Have `item` started as soon as there is a place."""
        queues = self._waiting.setdefault(place.node, {})
        queues.setdefault(place.namespace, deque()).append(item)
        self._fill_node(place.node)

    def free(self, place: Place) -> None:
        """Give a place back."""
        was_full = self._is_full(place.namespace)
        all_taken = self._total >= self._share.total
        self._count(place, -1)
        # Elsewhere one may begin that had no place but this: of the namespace, or of any.
        for node in list(self._waiting) if was_full else ():
            if self._total >= self._share.total:
                return
            if not all_taken and self._is_full(place.namespace):
                break
            self._fill_node(node)
        self._fill_node(place.node)

    def _is_full(self, namespace: str) -> bool:
        share = self._share
        taken = self._of_namespace[namespace] >= share.namespace_total
        return taken or self._total >= share.total

    def _fill_node(self, node: str) -> None:
        while (place := self._next(node)) is not None:
            queues = self._waiting.pop(node)
            queue = queues.pop(place.namespace)
            item = queue.popleft()
            if queue:
                queues[place.namespace] = queue
            if queues:
                self._waiting[node] = queues
            self._count(place, 1)
            if not self._start(item):
                self._count(place, -1)

    def _next(self, node: str) -> Place | None:
        """Return who on a node may have a place now, by turns."""
        share = self._share
        if self._total >= share.total or self._of_node[node] >= share.per_node:
            return None
        for namespace in self._waiting.get(node, ()):
            place = Place(node, namespace)
            if (
                self._of_place[place] < share.namespace_per_node
                and self._of_namespace[namespace] < share.namespace_total
            ):
                return place
        return None

    def _count(self, place: Place, by: int) -> None:
        self._total += by
        _add(self._of_node, place.node, by)
        _add(self._of_namespace, place.namespace, by)
        _add(self._of_place, place, by)


K = TypeVar("K")


def _add(counter: Counter[K], key: K, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]
