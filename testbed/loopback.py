"""Ports of loopback."""

import contextlib
import random
import socket

_CHOSEN = range(20_000, 30_000)
"""Below what Linux gives to connections, ip_local_port_range: 32768 to 60999."""


def free_port() -> int:
    """Return a port that nothing listens on at the moment."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return so many of them, of those that no connection is given by itself.

    What is found here is listened on a moment later, and by then anybody's connection may have
    got a port of the kernel's own range.
    """
    with contextlib.ExitStack() as held:
        found: list[int] = []
        for port in random.SystemRandom().sample(_CHOSEN, len(_CHOSEN)):
            if len(found) == count:
                return found
            one = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(port)
    raise OSError(f"loopback has no {count} free ports from {_CHOSEN.start} to {_CHOSEN.stop}")
