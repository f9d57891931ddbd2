"""The connection to the API server."""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from sidecar_lifecycle.model import types

from . import errors

R = TypeVar("R", bound=types.Object)

REQUEST_TIMEOUT = 15.0
"""Seconds for a request that is neither a watch nor a stream."""
TOKEN_MAX_AGE = 60.0
"""Seconds after which the token file is read again; the kubelet renews it well before expiry."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(slots=True, kw_only=True)
class Access:
    """The API server's URL, and how the two know each other."""

    server: str
    tls: ssl.SSLContext | None = None
    token: str | None = None
    token_file: Path | None = None
    """Has the token, and a newer one when the kubelet renews it."""
    _read_at: float = float("-inf")

    def headers(self) -> dict[str, str]:
        """Return the Authorization header, if there is a token."""
        if self.token_file is not None and time.monotonic() - self._read_at > TOKEN_MAX_AGE:
            with contextlib.suppress(OSError):
                self.token = self.token_file.read_text().strip()
            self._read_at = time.monotonic()
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def expire(self) -> None:
        """Have the token read again before the next request, because the API refused it."""
        self._read_at = float("-inf")


def of_pod(account: Path = SERVICE_ACCOUNT) -> Access:
    """Return how a pod gets in: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/.

    Raises:
        NoAccess: This is no pod with a ServiceAccount.
    """
    try:
        host, port = (os.environ[f"KUBERNETES_SERVICE_{each}"] for each in ("HOST", "PORT"))
        tls = ssl.create_default_context(cafile=account / "ca.crt")
        token = (account / "token").read_text().strip()
    except (KeyError, OSError) as error:
        raise errors.NoAccess(f"this is no pod with a ServiceAccount: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(server=server, tls=tls, token=token, token_file=account / "token")


class Client:
    """Requests, watches and WebSockets.

    Every method raises StatusError if the API refused, and Unreachable if there was no answer.
    """

    def __init__(self, access: Access) -> None:
        self.server = access.server.rstrip("/")
        self._access = access
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the session, made on first use because aiohttp wants a running loop."""
        if self._session is None or self._session.closed:
            # Every stop needs a connection of its own; how many is the controller's decision.
            connector = aiohttp.TCPConnector(limit=0, ssl=self._access.tls or True)
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
        """Send one request and return the body of a successful answer."""
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

    async def get(self, kind: type[R], namespace: str | None, name: str) -> R:
        """Read an object."""
        return answer(await self.request("GET", path(kind, namespace, name)), kind)

    async def find(self, kind: type[R], namespace: str, name: str) -> R | None:
        """Read an object, None where there is none."""
        try:
            return await self.get(kind, namespace, name)
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
        url, headers = self.server + path, self._access.headers()
        with errors.mapped():
            async with self.session().get(
                url, params=params, headers=headers, timeout=timeout
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
        Unreachable: It is not understood.
    """
    with errors.understood():
        return types.decode_json(data, kind)
