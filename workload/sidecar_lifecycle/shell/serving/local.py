"""The listener on 127.0.0.1, where the charm asks the service and has it act."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import msgspec
import structlog
from aiohttp import typedefs, web

from sidecar_lifecycle.shell.kube import errors

from . import listener

log = structlog.get_logger(__name__)

READ_SECONDS = 10.0
"""For an answer: pods of every served namespace may have to be listed."""
ACT_SECONDS = 25.0
"""For an answer of what acts: a proxy may have to be stopped in two ways."""

Answer = Callable[[Mapping[str, str]], Awaitable[object]]
"""Returns what is sent as JSON; is given the parameters of the request."""


def application(
    token: Callable[[], str], reads: Mapping[str, Answer], acts: Mapping[str, Answer]
) -> web.Application:
    """Return the application that answers requests with the token, none while it is empty.

    By path, `reads` is what GET returns and `acts` what POST does.
    """

    @web.middleware
    async def guarded(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        given, wanted = request.headers.get("Authorization", ""), token()
        if not wanted or not hmac.compare_digest(given.encode(), f"Bearer {wanted}".encode()):
            return web.Response(status=401, text="the token is another one")
        seconds = ACT_SECONDS if request.method == "POST" else READ_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return await handler(request)
        except TimeoutError:
            return web.Response(status=504, text=f"no answer within {seconds:g} s")
        except errors.KubeError as error:
            return web.Response(status=502, text=str(error))

    def answering(answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            body = msgspec.json.encode(await answer(request.query))
            return web.Response(body=body, content_type="application/json")

        return handle

    app = web.Application(middlewares=[guarded])
    for path, answer in reads.items():
        app.router.add_get(path, answering(answer))
    for path, answer in acts.items():
        app.router.add_post(path, answering(answer))
    return app


@contextlib.asynccontextmanager
async def serve(app: web.Application, port: int) -> AsyncGenerator[int]:
    """Answer on 127.0.0.1 for the time of the block; yields the port."""
    async with listener.serve(app, ("127.0.0.1", port), shutdown_seconds=1) as served:
        yield served
