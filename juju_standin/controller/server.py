"""The controller's HTTP interface: for agents, for model operators, and for the command line."""

import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from testbed import certificates

from . import calls, relation_calls, secret_calls, unit_calls
from .calls import CallError
from .commands import Commands
from .store import Store

logger = logging.getLogger(__name__)

METHODS: dict[str, Callable[..., Any]] = {
    **unit_calls.METHODS,
    **relation_calls.METHODS,
    **secret_calls.METHODS,
}


class Server:
    """Routes of the controller."""

    def __init__(
        self, store: Store, commands: Commands, authority: certificates.Authority, password: str
    ) -> None:
        self._store = store
        self._commands = commands
        self._authority = authority
        self._password = password

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_post("/agent/{method}", self._agent)
        application.router.add_post("/charm", self._charm)
        application.router.add_post("/operator", self._operator)
        application.router.add_post("/command/{name}", self._command)
        return application

    async def _agent(self, request: web.Request) -> web.Response:
        async def answer() -> Any:
            body = await request.json()
            method = METHODS.get(request.match_info["method"])
            if method is None:
                raise CallError(f"unknown method {request.match_info['method']}")
            call = calls.identify(self._store, body["identity"], self._commands.list_pods)
            call.note_presence()
            try:
                result = method(call, **body["parameters"])
                return await result if inspect.isawaitable(result) else result
            finally:
                call.note_presence()

        return await _answer(answer)

    async def _charm(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        try:
            call = calls.identify(self._store, body["identity"], self._commands.list_pods)
        except CallError as error:
            raise web.HTTPForbidden(text=str(error)) from error
        return web.FileResponse(Path(call.application.charm_file))

    async def _operator(self, request: web.Request) -> web.Response:
        async def answer() -> dict[str, str]:
            body = await request.json()
            model = self._store.models.get(body["model"])
            if model is None or model.password != body["password"]:
                raise CallError("invalid entity name or password")
            names = (f"modeloperator.{model.name}.svc", f"modeloperator.{model.name}")
            pair = self._authority.server("modeloperator", names, ())
            return {"certificate": pair.certificate.read_text(), "key": pair.key.read_text()}

        return await _answer(answer)

    async def _command(self, request: web.Request) -> web.Response:
        async def answer() -> Any:
            if request.headers.get("Authorization") != f"Bearer {self._password}":
                raise CallError("invalid password")
            return await self._commands.run(request.match_info["name"], await request.json())

        return await _answer(answer)


async def _answer(work: Callable[[], Awaitable[Any]]) -> web.Response:
    try:
        answer = {"result": await work()}
    except CallError as error:
        answer = {"error": str(error)}
    except Exception as error:
        logger.exception("call failed")
        answer = {"error": f"internal error: {error!r}"}
    return web.Response(text=json.dumps(answer), content_type="application/json")
