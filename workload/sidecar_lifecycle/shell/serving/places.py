"""Who may be connected to a server of ours, when anybody in the cluster can reach it.

Connections are bounded in total. No address has a bound of its own, as all API servers may ask
from one, that of a node or of a tunnel; instead, when all places are taken, the address that has
the most gives way to those that have fewer. The same holds for the bytes that are in memory.
Where an address can't be had as often as one likes, as those of pods, a flood takes no more than
its share.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal

Peer = Any
"""An address and a port, as the socket module writes them."""

MOST_CONNECTIONS = 256
"""At once: more than the 200 writes that an API server handles at a time by default."""
MOST_BYTES = 9 * 1024 * 1024
"""Of bodies, as long as they are said to be, and of answers until they are taken: three of the
largest at once."""
FIRST_SECONDS = 5.0
"""From the connection to the first complete head of a request, the TLS handshake included."""
IDLE_SECONDS = 20.0
"""From an answer to the next complete head of a request; API servers connect again."""
BUSY_SECONDS = 5.0
"""From a request's head to its answer: API servers wait for 3."""
SETTLED_SECONDS = 1.0
"""Idle for so long, a connection can be closed without cutting off a request on its way."""


@dataclasses.dataclass(slots=True, eq=False)
class Place:
    """One connection."""

    address: str
    since: float
    """When it got into its state, by the clock of the event loop."""
    is_closed: Callable[[], bool]
    close: Callable[[], None] = lambda: None
    state: Literal["new", "busy", "idle"] = "new"
    held: int = 0
    """Bytes in memory for it."""

    def is_overdue(self, now: float) -> bool:
        """Tell whether it has been in its state for too long."""
        limits = {"new": FIRST_SECONDS, "busy": BUSY_SECONDS, "idle": IDLE_SECONDS}
        return now - self.since > limits[self.state]


def giving_way(places: Iterable[Place], address: str, now: float) -> Place | None:
    """Return the connection to close for a new one from an address when all places are taken.

    It is one of the address with the most: idle rather than at work, then the longest in its
    state. An address with no fewer than the newcomer's gives what is idle; only one that has
    clearly more gives what is at work. None: the newcomer is refused.
    """
    places = list(places)
    counts = collections.Counter(place.address for place in places)
    own = counts[address]

    def gives(place: Place) -> bool:
        count = counts[place.address]
        is_settled = place.state != "busy" and now - place.since > SETTLED_SECONDS
        return count > own + 1 or (is_settled and count >= own)

    def order(place: Place) -> tuple[int, bool, float]:
        return counts[place.address], place.state != "busy", now - place.since

    return max(filter(gives, places), key=order, default=None)


def giving_back(places: Iterable[Place], address: str) -> Place | None:
    """Return the connection whose bytes are given up when too many are in memory.

    It is the one with the most, of the address with the most. None: that address is the asking
    one, which is to be refused itself.
    """
    held: dict[str, int] = collections.Counter()
    largest: dict[str, Place] = {}
    for place in places:
        held[place.address] += place.held
        if place.held >= largest.setdefault(place.address, place).held:
            largest[place.address] = place
    heaviest = max(held, key=lambda each: (held[each], each == address))
    return None if heaviest == address else largest[heaviest]


class Places:
    """The connections of a server, within their bounds."""

    def __init__(self, connections: int = MOST_CONNECTIONS, size: int = MOST_BYTES) -> None:
        self._connections = connections
        self._size = size
        self._places: dict[Peer, Place] = {}
        self.closed = 0
        """How many were refused, or closed before their time was up."""

    def enter(self, peer: Peer, now: float, is_closed: Callable[[], bool]) -> Place | None:
        """Give a new connection a place, if need be that of another; None: it is refused."""
        if len(self._places) >= self._connections:
            self._forget_closed()
        if len(self._places) >= self._connections:
            given = giving_way(self._places.values(), peer[0], now)
            self.closed += 1
            if given is None:
                return None
            self._end(given)
        place = self._places[peer] = Place(peer[0], now, is_closed)
        return place

    def at(self, peer: Peer) -> Place | None:
        """Return a connection's place; None when it had to give it up."""
        return self._places.get(peer)

    def hold(self, place: Place, count: int) -> bool:
        """Note bytes that are in memory for a connection; tell whether they may be."""
        place.held += count
        while sum(each.held for each in self._places.values()) > self._size:
            given = giving_back(self._places.values(), place.address)
            self.closed += 1
            if given is None:
                return False
            self._end(given)
        return True

    def close_overdue(self, now: float) -> None:
        """Close what takes too long, in whatever it does."""
        self._forget_closed()
        for place in [each for each in self._places.values() if each.is_overdue(now)]:
            self._end(place)

    def _end(self, place: Place) -> None:
        place.close()
        place.held = 0
        self._places = {peer: each for peer, each in self._places.items() if each is not place}

    def _forget_closed(self) -> None:
        self._places = {
            peer: place for peer, place in self._places.items() if not place.is_closed()
        }
