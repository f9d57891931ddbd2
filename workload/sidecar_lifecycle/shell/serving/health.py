"""What Pebble, Juju and Prometheus ask by HTTP: /livez, /readyz, /metrics."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping

import prometheus_client
from aiohttp import web

from . import listener

Readiness = Callable[[], Mapping[str, bool]]
"""The conditions of readiness by name; ready is when all hold."""


def application(
    ready: Readiness, registry: prometheus_client.CollectorRegistry
) -> web.Application:
    """Return the application that answers the three paths."""

    async def livez(_: web.Request) -> web.Response:
        # Answered by the event loop and nothing else: a restart heals no apiserver.
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
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app


@contextlib.asynccontextmanager
async def serve(
    listen: str, ready: Readiness, registry: prometheus_client.CollectorRegistry
) -> AsyncGenerator[int]:
    """Answer on `[HOST]:PORT` for the time of the block; yields the port."""
    host, _, port = listen.rpartition(":")
    server = application(ready, registry)
    address = host.strip("[]"), int(port)
    async with listener.serve(server, address, shutdown_seconds=1) as served:
        yield served
