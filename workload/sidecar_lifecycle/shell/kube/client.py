"""The connection to the apiserver."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import weakref
from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypeVar

import aiohttp
import msgspec
from aiohttp.connector import Connection

from sidecar_lifecycle.model import types

from . import access, errors

R = TypeVar("R", bound=types.Resource)

REQUEST_TIMEOUT = 15.0
"""Seconds for a request that is neither a watch nor a stream."""


class Connector(aiohttp.TCPConnector):
    """Closes with itself also what waits for a server's goodbye, which aiohttp lets go of."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        # Every stop needs a connection of its own; how many is the controller's decision.
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - of a socket_factory
            limit=0, ssl=tls if tls is not None else True
        )
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    async def connect(self, *arguments: Any, **options: Any) -> Connection:
        """Give a connection out, and know it for as long as it lives."""
        connection = await super().connect(*arguments, **options)
        if connection.transport is not None:
            self._transports.add(connection.transport)
        return connection

    async def close(self, *, abort_ssl: bool = False) -> None:
        """End every connection, however far its end had come."""
        await super().close(abort_ssl=abort_ssl)
        for transport in self._transports:
            transport.abort()
        # The loop closes the sockets the next time round.
        await asyncio.sleep(0)


class Client:
    """Requests, watches and WebSockets."""

    def __init__(self, way_in: access.Access) -> None:
        self.server = way_in.server.rstrip("/")
        self._access = way_in
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the session, made on first use because aiohttp wants a running loop."""
        if self._session is None or self._session.closed:
            connector = Connector(self._access.tls)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: float = REQUEST_TIMEOUT,  # noqa: ASYNC109 - aiohttp enforces it
    ) -> bytes:
        """Send one request and return the body of a successful answer.

        Raises:
            StatusError: if the API refused.
            Unreachable: if there was no answer.
        """
        headers = {"Content-Type": content_type} if body is not None else {}
        with errors.mapped():
            async with self.session().request(
                method,
                self.server + path,
                params=params,
                data=msgspec.json.encode(body) if body is not None else None,
                headers={**self._access.headers(), **headers},
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                data = await response.read()
                self._check(response, data)
                return data

    async def find(self, path: str) -> bytes | None:
        """Get an object, None where there is none; raises as `request` does."""
        try:
            return await self.request("GET", path)
        except errors.StatusError as error:
            if error.code == 404:
                return None
            raise

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], idle: float
    ) -> AsyncGenerator[aiohttp.StreamReader]:
        """Open a GET whose body never ends, such as a watch.

        After so many seconds without a byte the connection counts as dead.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle)
        with errors.mapped():
            async with self.session().get(
                self.server + path,
                params=params,
                headers=self._access.headers(),
                timeout=timeout,
            ) as response:
                if response.status >= 300:
                    self._check(response, await response.read())
                yield response.content

    async def websocket(
        self, path: str, *, params: list[tuple[str, str]], protocols: tuple[str, ...]
    ) -> aiohttp.ClientWebSocketResponse:
        """Upgrade a GET to a WebSocket; the caller closes it and bounds the time."""
        with errors.mapped():
            try:
                return await self.session().ws_connect(
                    self.server + path,
                    params=params,
                    protocols=protocols,
                    headers=self._access.headers(),
                    max_msg_size=1 << 20,
                )
            except aiohttp.WSServerHandshakeError as error:
                if error.status == 401:
                    self._access.expire()
                retry = error.headers.get("Retry-After") if error.headers else None
                raise errors.from_response(error.status, error.message.encode(), retry) from error

    def _check(self, response: aiohttp.ClientResponse, data: bytes) -> None:
        if response.status < 300:
            return
        if response.status == 401:
            self._access.expire()
        raise errors.from_response(response.status, data, response.headers.get("Retry-After"))


def connect() -> Client:
    """Return a client for the pod's ServiceAccount.

    Raises:
        NoAccess: There is none.
    """
    return Client(access.of_pod())


def path(
    kind: type[types.Object], namespace: str | None = None, name: str = "", sub: str = ""
) -> str:
    """Return the URL path of a resource: `namespace` None is the cluster-wide collection."""
    api = kind.api
    parts = ["", "apis", api.group] if api.group else ["", "api"]
    parts.append(api.version)
    if namespace is not None:
        parts += ["namespaces", namespace]
    return "/".join([*parts, api.plural, *filter(None, (name, sub))])


def answer(data: bytes, kind: type[R]) -> R:
    """Decode the one object that the API answered with.

    Raises:
        Unreachable: if it is not understood.
    """
    with errors.understood():
        return types.decode_json(data, kind)
