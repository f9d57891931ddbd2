"""The connection to the API server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from integrator_contract import bounded
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import InputError

from . import errors
from .fence import Fence

R = TypeVar("R", bound=types.Object)

REQUEST_TIMEOUT = 15.0
"""Seconds for a request that is neither a list, nor a watch, nor a stream."""
LIST_TIMEOUT = 60.0
PAGE = 500
"""Objects per page of a list request."""
STREAM_PROTOCOL = "v4.channel.k8s.io"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - the API's name
    token: str = msgspec.field(default="", name="continue")


class _Listing(msgspec.Struct):
    """The answer to a list request, with items that are not decoded yet."""

    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class Client:
    """Requests, watches and WebSockets.

    Every method raises StatusError if the API server refuses, and Unreachable without an answer.
    """

    def __init__(
        self, server: str, *, tls: ssl.SSLContext | None = None, token: Callable[[], str] = str
    ) -> None:
        self.server = server.rstrip("/")
        self._tls = tls
        self._token = token
        """Called for each request, because the kubelet renews the token."""
        self.closing: set[asyncio.Task[None]] = set()

    @functools.cached_property
    def session(self) -> aiohttp.ClientSession:
        """The connections, created on first use because aiohttp needs a running event loop."""
        # Each stop uses its own connection, and the shutdown controller limits their number.
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
        # The body of a rejected upgrade names the webhook or policy, but `ws_connect` drops it.
        return aiohttp.ClientSession(
            connector=connector, trust_env=False, raise_for_status=_check_status
        )

    async def close(self) -> None:
        """Close all connections."""
        await self.session.close()
        del self.session

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        timeout: float = REQUEST_TIMEOUT,  # noqa: ASYNC109 - aiohttp enforces it
    ) -> bytes:
        """Send one request and return the body of a successful answer."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        with errors.translate_errors():
            async with self.session.request(
                method,
                self.server + path,
                params=params,
                data=msgspec.json.encode(body) if body is not None else None,
                headers=self._make_headers() | headers,
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                return await response.read()

    async def get(self, kind: type[R], namespace: str | None, name: str) -> R:
        """Read an object."""
        return decode_answer(await self.request("GET", make_path(kind, namespace, name)), kind)

    async def find(self, kind: type[R], namespace: str, name: str) -> R | None:
        """Read an object; None: it does not exist."""
        try:
            return await self.get(kind, namespace, name)
        except errors.StatusError as error:
            if error.code == 404:
                return None
            raise

    async def list_pages(
        self,
        where: str,
        kind: type[R],
        fence: Fence,
        *,
        labels: str = "",
        fields: str = "",
        concerns: Callable[[R], bool] = lambda _: True,
    ) -> AsyncGenerator[tuple[str, list[R]]]:
        """Yield the version of a collection and its objects, page by page.

        The fence handles an object that can't be decoded, and the other objects are yielded.
        """
        params = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE)}
        while True:
            data = await self.request("GET", where, params=params, timeout=LIST_TIMEOUT)
            with errors.translate_decode_errors():
                try:
                    listing = msgspec.json.decode(data, type=_Listing)
                except RecursionError:
                    listing = msgspec.json.decode(bounded.cut_depth(data), type=_Listing)
            items: list[R] = []
            for raw in listing.items or ():
                with fence.isolate("decode", functools.partial(decode_name, kind, raw)):
                    item = types.decode_json(raw, kind)
                    if concerns(item):
                        items.append(item)
            yield listing.metadata.resourceVersion, items
            if not listing.metadata.token:
                break
            params["continue"] = listing.metadata.token

    @contextlib.asynccontextmanager
    async def open_stream(
        self, path: str, *, params: Mapping[str, str], idle: float
    ) -> AsyncGenerator[aiohttp.StreamReader]:
        """Open a GET whose body never ends, such as a watch.

        After `idle` seconds without a byte the connection is closed.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle)
        with errors.translate_errors():
            async with self.session.get(
                self.server + path, params=params, headers=self._make_headers(), timeout=timeout
            ) as response:
                yield response.content

    @contextlib.asynccontextmanager
    async def open_websocket(
        self, path: str, *, params: list[tuple[str, str]], deadline: float
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
        """Upgrade a GET to a WebSocket that is open in the block.

        Both together must end within `deadline` seconds.
        """
        with errors.translate_errors():
            async with asyncio.timeout(deadline):
                socket = await self.session.ws_connect(
                    self.server + path,
                    params=params,
                    protocols=(STREAM_PROTOCOL,),
                    headers=self._make_headers(),
                    max_msg_size=1 << 20,
                )
                try:
                    yield socket
                finally:
                    # The caller has its answer and does not wait for the closing handshake.
                    task = asyncio.create_task(_close_socket(socket), name="closing")
                    self.closing.add(task)
                    task.add_done_callback(self.closing.discard)

    def _make_headers(self) -> dict[str, str]:
        token = self._token().strip()
        return {"Authorization": f"Bearer {token}"} if token else {}


def connect_from_pod(account: Path = SERVICE_ACCOUNT) -> Client:
    """Return a client with the ServiceAccount of this pod.

    Source: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/.

    Raises:
        InputError: The program does not run in a pod with a ServiceAccount.
    """
    try:
        host, port = (os.environ[f"KUBERNETES_SERVICE_{each}"] for each in ("HOST", "PORT"))
        tls = ssl.create_default_context(cafile=account / "ca.crt")
        token = account / "token"
        token.read_text()
    except (KeyError, OSError) as error:
        raise InputError(f"no cluster to connect to: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Client(server, tls=tls, token=token.read_text)


async def _close_socket(socket: aiohttp.ClientWebSocketResponse) -> None:
    # The peer may hang or send forever. The connection is dropped anyway.
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(1):
            await socket.close()


async def _check_status(response: aiohttp.ClientResponse) -> None:
    if response.status >= 300:
        retry = response.headers.get("Retry-After")
        raise errors.from_response(response.status, await response.read(), retry)


def make_path(
    kind: type[types.Object], namespace: str | None = None, name: str = "", sub: str = ""
) -> str:
    """Return the URL path of a resource; without a namespace that of the whole cluster."""
    version = kind.api.version
    parts = ["", "apis" if "/" in version else "api", version]
    if namespace is not None:
        parts += ["namespaces", namespace]
    # All kinds that are read have a regular plural.
    return "/".join([*parts, f"{kind.api.kind.lower()}s", *filter(None, (name, sub))])


def decode_name(kind: type[R], raw: bytes | msgspec.Raw) -> R:
    """Return an object with its metadata only, even if the rest can't be decoded."""
    return kind(metadata=types.decode_json(raw, types.Object).metadata)


def decode_answer(data: bytes, kind: type[R]) -> R:
    """Decode an answer with one object.

    Raises:
        Unreachable: The answer can't be decoded.
    """
    with errors.translate_decode_errors():
        return types.decode_json(data, kind)
