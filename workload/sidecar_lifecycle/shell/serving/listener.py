"""An HTTP server on a port that anybody in the cluster can reach."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import AsyncGenerator
from typing import Any

import structlog
from aiohttp import typedefs, web

from . import places

BACKLOG = 1024
"""Connections that wait in the kernel to be accepted."""
BATCH = 64
"""Connections that are accepted before the event loop does something else."""
BUFFER = 16 * 1024
"""Bytes that are read at once, and that wait at any one place; a TLS record has no more."""
SHUTDOWN_SECONDS = 1.0
"""For the other side to agree to the end of a TLS connection."""
SWEEP_SECONDS = 0.5
"""Between two looks for connections that take too long."""

_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.setLevel(logging.CRITICAL)

LIMITS: dict[str, Any] = {
    "max_line_size": 1024,
    "max_field_size": 2048,
    # API servers send about eight.
    "max_headers": 24,
    "read_bufsize": BUFFER,
    # A short body could become a very long one.
    "auto_decompress": False,
    # The rest of a body that was refused is not read.
    "lingering_time": 0,
    # It would log a traceback for each request that is none.
    "logger": _SILENT,
}
"""How aiohttp treats a connection; sizes in bytes."""

log = structlog.get_logger(__name__)

PLACES = web.AppKey("places", places.Places)


def _place(request: web.Request) -> places.Place:
    transport = request.transport
    place = request.app[PLACES].at(transport.get_extra_info("peername")) if transport else None
    if place is None:
        raise web.HTTPServiceUnavailable(text="the connection had to give up its place")
    return place


def hold(request: web.Request, count: int) -> None:
    """Note bytes that are in memory for a request, until its answer is sent.

    Raises:
        web.HTTPServiceUnavailable: They are too many beside those of others.
    """
    if not request.app[PLACES].hold(_place(request), count):
        raise web.HTTPServiceUnavailable(text="too many bytes are on their way")


@web.middleware
async def _busy(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    loop = asyncio.get_running_loop()
    taken = _place(request)
    taken.state, taken.since, taken.held = "busy", loop.time(), 0
    try:
        response = await handler(request)
        hold(request, response.content_length or 0)
        # Sent here, an answer that nobody takes counts until it is taken, or too late.
        await response.prepare(request)
        await response.write_eof()
    except web.HTTPException:
        raise
    except (ConnectionError, web.RequestPayloadError):
        raise web.HTTPBadRequest(text="the connection ended before its request did") from None
    except Exception:
        log.exception("request not answered", path=request.path)
        raise
    else:
        return response
    finally:
        taken.state, taken.since, taken.held = "idle", loop.time(), 0


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


class _Door:
    """Accepts connections as long as there are places for them."""

    def __init__(
        self,
        listening: socket.socket,
        server: web.Server,
        room: places.Places,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listening = listening
        self._server = server
        self._places = room
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Accept connections, and close those that take too long, while the block runs."""
        self._loop.add_reader(self._listening, self._accept)
        sweeper = self._loop.create_task(self._sweep(), name="close-overdue-connections")
        try:
            yield
        finally:
            self._loop.remove_reader(self._listening)
            for task in (sweeper, *self._tasks):
                task.cancel()

    def _accept(self) -> None:
        for _ in range(BATCH):
            try:
                connection, peer = self._listening.accept()
            except OSError:
                # None is left, or one is gone before it was accepted.
                return
            connection.setblocking(False)

            def is_closed(connection: socket.socket = connection) -> bool:
                return connection.fileno() < 0

            taken = self._places.enter(peer, self._loop.time(), is_closed)
            if taken is None:
                connection.close()
                continue
            task = self._loop.create_task(self._connect(connection, taken))
            taken.close = functools.partial(_cancel, task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket, taken: places.Place) -> None:
        times = {
            "ssl_handshake_timeout": places.FIRST_SECONDS if self._tls else None,
            "ssl_shutdown_timeout": SHUTDOWN_SECONDS if self._tls else None,
        }
        # It closes the connection itself where there is no TLS, or not in time.
        with contextlib.suppress(OSError):
            transport, _ = await self._loop.connect_accepted_socket(
                self._server, connection, ssl=self._tls, **times
            )
            transport.set_write_buffer_limits(high=BUFFER)
            taken.close = transport.abort

    async def _sweep(self) -> None:
        said = 0
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._places.close_overdue(self._loop.time())
            if self._places.closed > said:
                closed = self._places.closed - said
                log.warning("more connections or bytes than there is place for", closed=closed)
                said = self._places.closed


def _listen(address: tuple[str, int]) -> socket.socket:
    """Listen on an address; an empty host is every address, of IPv6 and of IPv4."""
    host = address[0]
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(
            address, family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server(address, family=family, backlog=BACKLOG)


@contextlib.asynccontextmanager
async def serve(
    application: web.Application,
    address: tuple[str, int],
    *,
    room: places.Places,
    tls: ssl.SSLContext | None = None,
    shutdown_seconds: float,
) -> AsyncGenerator[int]:
    """Answer by an application while the block runs; yields the port.

    Args:
        application: What answers.
        address: Where to listen; an empty host is every address, of IPv6 and of IPv4.
        room: The places for its connections.
        tls: For HTTPS.
        shutdown_seconds: For answers that are on their way at the end.
    """
    # Where asyncio allocates 256 KiB for each TLS connection.
    sslproto.SSLProtocol.max_size = BUFFER
    application[PLACES] = room
    application.middlewares.append(_busy)
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=shutdown_seconds, **LIMITS
    )
    await runner.setup()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        listening = _listen(address)
        stack.enter_context(listening)
        listening.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            # Inherited by what is accepted: memory of the kernel counts for the container, too.
            listening.setsockopt(socket.SOL_SOCKET, option, BUFFER)
        assert runner.server is not None
        await stack.enter_async_context(_Door(listening, runner.server, room, tls).open())
        yield listening.getsockname()[1]
