"""HTTP servers: one for clients in the cluster, and one on 127.0.0.1 for the charm."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hmac
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

import msgspec
import prometheus_client
import structlog
from aiohttp import typedefs, web

from integrator_contract import schema
from sidecar_lifecycle.shell import InputError
from sidecar_lifecycle.shell.kube import errors

MOST_CONNECTIONS = 256
"""More than the 200 concurrent writes that an API server allows by default."""
BACKLOG = 1024
"""Limit of connections that the kernel holds until they are accepted."""
BUFFER = 16 * 1024
"""Bytes per read; the maximum of a TLS record."""
ACCEPT_AGAIN_SECONDS = 0.1
HANDSHAKE_SECONDS = 5.0
IDLE_SECONDS = 20.0
"""Until the headers of the first request are complete, and between requests."""
SHUTDOWN_SECONDS = 1.0
"""For the client to confirm the end of a TLS connection."""
READ_SECONDS = 10.0
"""For a GET of the charm, which may list the pods of all served namespaces."""
ACT_SECONDS = 25.0
"""For a POST of the charm, which may try two transports to stop a proxy."""

_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.setLevel(logging.CRITICAL)

LIMITS: dict[str, Any] = {
    "keepalive_timeout": IDLE_SECONDS,
    "max_line_size": 1024,
    "max_field_size": 2048,
    # API servers send about eight.
    "max_headers": 24,
    "read_bufsize": BUFFER,
    # A small compressed body could expand to a very large one.
    "auto_decompress": False,
    # The rest of a rejected body is not read.
    "lingering_time": 0,
    # aiohttp would log a traceback for each malformed request.
    "logger": _SILENT,
}
"""Options of aiohttp for connections; sizes in bytes."""

Readiness = Callable[[], Mapping[str, bool]]
"""The conditions of readiness by name; the server is ready if all are true."""
Answer = Callable[[Mapping[str, str]], Awaitable[object]]
"""Takes the query parameters of a request and returns a value to send as JSON."""

log = structlog.get_logger(__name__)


class Connections:
    """Open connections, the least recently used first.

    Above the limit, the client address with the most connections loses its oldest one. There is no
    limit per address, because all API servers may connect from the same one.
    """

    def __init__(self) -> None:
        self._open: dict[Any, socket.socket] = {}

    def add(self, peer: Any, connection: socket.socket) -> None:
        """Register a new connection, and close an old one if there are too many."""
        self._open = {key: each for key, each in self._open.items() if each.fileno() >= 0}
        if len(self._open) >= MOST_CONNECTIONS:
            addresses = collections.Counter(address for address, *_ in self._open)
            largest, _ = addresses.most_common(1)[0]
            oldest = self._open.pop(next(key for key in self._open if key[0] == largest))
            # A task that waits for it, such as a handshake, sees the end and closes it.
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        self._open[peer] = connection

    @web.middleware
    async def note_request(
        self, request: web.Request, handler: typedefs.Handler
    ) -> web.StreamResponse:
        """Mark the connection as recently used, and handle the request."""
        peer = request.transport and request.transport.get_extra_info("peername")
        if peer in self._open:
            self._open[peer] = self._open.pop(peer)
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception:
            if request.transport is not None:
                log.exception("request not answered", path=request.path)
            raise


def _open_socket(address: tuple[str, int]) -> socket.socket:
    """Listen on an address; an empty host means all addresses of IPv6 and IPv4."""
    dual = not address[0] and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in address[0] else socket.AF_INET
    return socket.create_server(address, family=family, dualstack_ipv6=dual, backlog=BACKLOG)


async def _accept_connections(
    listening: socket.socket,
    server: web.Server,
    connections: Connections,
    tls: ssl.SSLContext | None,
) -> None:
    loop = asyncio.get_running_loop()
    connecting: set[asyncio.Task[None]] = set()
    times = {
        "ssl_handshake_timeout": HANDSHAKE_SECONDS if tls else None,
        "ssl_shutdown_timeout": SHUTDOWN_SECONDS if tls else None,
    }

    async def connect(accepted: socket.socket) -> None:
        # If the TLS handshake fails or times out, the socket is closed.
        with contextlib.suppress(OSError):
            await loop.connect_accepted_socket(server, accepted, ssl=tls, **times)

    while True:
        try:
            accepted, peer = await loop.sock_accept(listening)
        except OSError:
            # The client closed the connection, or no file descriptor is free.
            await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
            continue
        connections.add(peer, accepted)
        connecting.add(task := loop.create_task(connect(accepted)))
        task.add_done_callback(connecting.discard)


@contextlib.asynccontextmanager
async def serve(
    application: web.Application,
    address: tuple[str, int],
    *,
    tls: ssl.SSLContext | None = None,
    shutdown_seconds: float = 1,
) -> AsyncGenerator[int]:
    """Serve an application while the block runs, and yield the port.

    aiohttp's TCPSite has no limit of connections, and its TLS handshakes may take 60 s. At the
    end, pending answers get `shutdown_seconds`.
    """
    # The default of asyncio is 256 KiB per TLS connection.
    sslproto.SSLProtocol.max_size = BUFFER
    connections = Connections()
    application.middlewares.append(connections.note_request)
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=shutdown_seconds, **LIMITS
    )
    await runner.setup()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        listening = stack.enter_context(_open_socket(address))
        listening.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            # Accepted sockets inherit the sizes. The container's limit includes kernel memory.
            listening.setsockopt(socket.SOL_SOCKET, option, BUFFER)
        assert runner.server is not None
        accepting = asyncio.create_task(
            _accept_connections(listening, runner.server, connections, tls)
        )
        stack.callback(accepting.cancel)
        yield listening.getsockname()[1]


def make_health_application(
    ready: Readiness, registry: prometheus_client.CollectorRegistry
) -> web.Application:
    """Return the application for Pebble, Juju and Prometheus: /livez, /readyz and /metrics."""

    async def livez(_: web.Request) -> web.Response:
        # This tests only the event loop, because a restart can't repair the API server.
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        conditions = ready()
        lines = [f"[{'+' if holds else '-'}] {name}" for name, holds in conditions.items()]
        status = 200 if all(conditions.values()) else 503
        return web.Response(text="\n".join(lines) + "\n", status=status)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=prometheus_client.generate_latest(registry),
            headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
        )

    app = web.Application()
    for handler in (livez, readyz, metrics):
        app.router.add_get(f"/{handler.__name__}", handler)
    return app


def make_charm_application(
    token: Callable[[], str], reads: Mapping[str, Answer], acts: Mapping[str, Answer]
) -> web.Application:
    """Return the application for the charm's requests, which must have the token.

    While the token is empty, all requests are rejected. `reads` has the handlers of GET by path,
    and `acts` those of POST. Each answer includes the word of the contract.
    """

    @web.middleware
    async def guarded(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        given, wanted = request.headers.get("Authorization", ""), token()
        # aiohttp reads bytes that are not UTF-8 as surrogates.
        sent = given.encode(errors="surrogateescape")
        if not wanted or not hmac.compare_digest(sent, f"Bearer {wanted}".encode()):
            return web.Response(status=401, text="the token is another one")
        seconds = ACT_SECONDS if request.method == "POST" else READ_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return await handler(request)
        except TimeoutError:
            return web.Response(status=504, text=f"no answer within {seconds:g} s")
        except InputError as error:
            return web.Response(status=400, text=str(error))
        except errors.KubeError as error:
            return web.Response(status=502, text=str(error))

    def answering(answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            told = {"contract": schema.SCHEMA, "answer": await answer(request.query)}
            return web.Response(body=msgspec.json.encode(told), content_type="application/json")

        return handle

    app = web.Application(middlewares=[guarded])
    for path, answer in reads.items():
        app.router.add_get(path, answering(answer))
    for path, answer in acts.items():
        app.router.add_post(path, answering(answer))
    return app
