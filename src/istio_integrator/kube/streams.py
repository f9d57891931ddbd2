"""One HTTP request to a port of a running pod, by port-forward."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import io
import queue
import ssl
from collections.abc import Generator, Mapping
from typing import Any, cast

import httpx2
import tenacity
from httpx2 import websockets
from lightkube.config import client_adapter

from istio_integrator.kube import cluster, errors, failures

SECONDS = 5.0
"""For one request, everything included; some 50 ms are usual."""
LONGEST = 64 << 20
"""Bytes of an answer; the configuration of a large mesh's gateway has some megabytes."""

_BROKEN = (ssl.SSLError, httpx2.NetworkError, websockets.WebSocketNetworkError)
_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1


@dataclasses.dataclass(frozen=True)
class Response:
    """What a port answered."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    text: str


def _is_broken(error: BaseException) -> bool:
    """Tell whether a connection broke, after which a request that only reads may be sent again.

    The library reads in one thread while another one writes, which breaks some TLS connections.
    """
    return isinstance(error, errors.UnreachableError) and isinstance(error.__cause__, _BROKEN)


class Streams:
    """The kubelet's streams, by way of the API server.

    A port-forward comes from loopback inside of the pod, so it reaches what listens only there,
    such as Envoy's administration, and passes no proxy.
    """

    def __init__(self, api: cluster.Cluster) -> None:
        self._client = api.client

    @tenacity.retry(
        retry=tenacity.retry_if_exception(_is_broken),
        stop=tenacity.stop_after_attempt(2),
        reraise=True,
    )
    def get(
        self,
        namespace: str,
        pod: str,
        port: int,
        path: str,
        *,
        seconds: float = SECONDS,
    ) -> Response:
        """Ask a port of a pod for a path.

        Raises:
            ForbiddenError: The charm may not forward ports.
            ApiError: The API server or the kubelet refuses.
            UnreachableError: Nothing listens, or what does speaks no HTTP or not in time.
        """
        address = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
        with self._connected(address, {"ports": str(port)}, seconds) as socket:
            connection = http.client.HTTPConnection("localhost", port)
            connection.sock = cast("Any", _Socket(socket, seconds))
            connection.request("GET", path, headers={"Connection": "close"})
            answer = connection.getresponse()
            text = answer.read(LONGEST).decode(errors="replace")
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, headers, text)

    @contextlib.contextmanager
    def _connected(
        self, address: str, params: Mapping[str, str], seconds: float
    ) -> Generator[Any]:
        limits = client_adapter.ConnectionParams(timeout=httpx2.Timeout(seconds))
        with (
            _mapped("pods/portforward"),
            client_adapter.Client(self._client.config, limits) as client,
            client.websocket(address, params=params, subprotocols=[_PROTOCOL]) as socket,
        ):
            yield socket


class _Socket:
    """As much of a socket as http.client needs, over the frames of a port-forward."""

    def __init__(self, socket: Any, seconds: float) -> None:
        self._socket = socket
        self._seconds = seconds

    def sendall(self, data: bytes) -> None:
        self._socket.send_bytes(bytes([_DATA]) + data)

    def makefile(self, *_: object) -> io.BufferedReader:
        return io.BufferedReader(_Frames(self._socket, self._seconds))

    def close(self) -> None:
        """Leave it to whoever opened it."""


class _Frames(io.RawIOBase):
    """What comes over the data channel. Each of the two channels begins with the port's number."""

    def __init__(self, socket: Any, seconds: float) -> None:
        super().__init__()
        self._socket = socket
        self._seconds = seconds
        self._greeted: set[int] = set()
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending:
            frame = self._frame()
            if frame is None:
                return 0
            self._pending = frame
        count = min(len(buffer), len(self._pending))
        buffer[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def _frame(self) -> bytes | None:
        """Receive what one frame brings of the data; None at the end."""
        try:
            message: bytes = self._socket.receive_bytes(timeout=self._seconds)
        except queue.Empty as error:
            raise TimeoutError("no answer in time") from error
        except websockets.WebSocketDisconnect:
            return None
        channel, payload = message[0], message[1:]
        if channel not in self._greeted:
            self._greeted.add(channel)
            return b""
        if channel == _ERROR:
            raise ConnectionError(payload.decode(errors="replace")[:300])
        return payload


@contextlib.contextmanager
def _mapped(what: str) -> Generator[None]:
    try:
        with failures.mapped(what):
            yield
    except websockets.WebSocketUpgradeError as error:
        code = error.response.status_code
        # The library does not keep the answer's text, which would tell a policy from a right.
        if code == 403:
            raise errors.ForbiddenError(code, f'cannot create resource "{what}"') from error
        raise failures.error_of(code, f"{what} is refused") from error
    except (http.client.HTTPException, websockets.HTTPXWSException, OSError) as error:
        raise errors.UnreachableError(str(error) or type(error).__name__) from error
