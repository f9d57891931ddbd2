"""Ports of loopback."""

import collections
import os
import random
import socket

_CHOSEN = range(20_000, 30_000)
"""Below what Linux gives to connections, ip_local_port_range: 32768 to 60999."""


_RESERVED: collections.deque[int] = collections.deque()
"""The file descriptors of sockets that are bound to the latest ports."""
_MOST_RESERVED = 200


def free_port() -> int:
    """Return a port that nothing listens on at the moment."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return so many of them, of those that no connection is given by itself.

    What is found here is listened on a moment later, and by then anybody's connection may have
    got a port of the kernel's own range. Another process that looks for a port finds this one
    taken: a socket is bound to it and does not listen. On Linux SO_REUSEADDR, which servers set,
    lets them bind beside such a socket.
    """
    found: list[int] = []
    chooser = random.SystemRandom()
    for _ in _CHOSEN:
        if len(found) == count:
            return found
        port = chooser.choice(_CHOSEN)
        one = socket.socket()
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            one.close()
            continue
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _RESERVED.append(one.detach())
        found.append(port)
        if len(_RESERVED) > _MOST_RESERVED:
            os.close(_RESERVED.popleft())
    raise OSError(f"loopback has no {count} free ports from {_CHOSEN.start} to {_CHOSEN.stop}")
