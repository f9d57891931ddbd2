"""Which connection is closed when one too many opens."""

from __future__ import annotations

import dataclasses
import socket
import types

import pytest
from sidecar_lifecycle.shell import serving

TENANT, API_SERVER = "10.1.0.7", "10.0.0.1"


@dataclasses.dataclass
class Socket:
    """A connection that its listener may close."""

    is_open: bool = True

    def fileno(self):
        return 3 if self.is_open else -1

    def shutdown(self, how=socket.SHUT_RDWR):
        self.is_open = False


@pytest.fixture
def connect(monkeypatch):
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 4)
    connections = serving.Connections()

    def connect(address, port):
        connection = Socket()
        connections.add((address, port), connection)
        return connection

    connect.connections = connections
    return connect


def test_the_address_with_the_most_connections_loses_its_oldest(connect):
    asking = connect(API_SERVER, 1)
    flood = [connect(TENANT, port) for port in range(5)]

    assert asking.is_open
    assert [each.is_open for each in flood] == [False, False, True, True, True]


def test_a_connection_that_has_ended_takes_no_place(connect):
    flood = [connect(TENANT, port) for port in range(4)]
    flood[2].shutdown()
    connect(TENANT, 5)

    assert [each.is_open for each in flood] == [True, True, False, True]


async def test_a_connection_in_use_is_kept_longest(connect):
    flood = [connect(TENANT, port) for port in range(4)]
    transport = types.SimpleNamespace(get_extra_info={"peername": (TENANT, 0)}.get)
    request = types.SimpleNamespace(transport=transport)

    async def answer(_):
        return "answered"

    assert await connect.connections.note_request(request, answer) == "answered"
    connect(TENANT, 5)

    assert [each.is_open for each in flood] == [True, False, True, True]
