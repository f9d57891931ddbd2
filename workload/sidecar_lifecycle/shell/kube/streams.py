"""Port-forward and exec over WebSocket, in the kubelet's protocol.

https://kubernetes.io/docs/reference/using-api/ describes neither. The source for the frames is
k8s.io/kubelet/pkg/cri/streaming.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

import aiohttp

from sidecar_lifecycle.model import types

from . import errors
from .client import Client, make_path

_DATA, _ERROR = 0, 1
_EXEC_ERROR = 3
_LONGEST_HEAD = 16 * 1024
_LONGEST_OUTPUT = 64 * 1024
"""Limit for the output of a command in bytes. pilot-agent prints two, but the pod's owner chooses
the image, and endless output would use CPU until the deadline."""


class PortForward:
    """A forwarded port for HTTP requests, one at a time."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._greeted: set[int] = set()
        self._received = bytearray()

    async def wait_until_ready(self) -> None:
        """Wait until the kubelet has confirmed the port on both channels."""
        while len(self._greeted) < 2:
            await self._read_frame()

    async def post(self, target: str) -> int:
        """Send `POST target` from inside the pod and return the status code of the answer.

        Raises:
            StreamError: if the port does not answer with HTTP.
        """
        await self._send(f"POST {target}", "Content-Length: 0", "Connection: close")
        return await self._read_status()

    async def get(self, target: str, *, largest: int) -> bytes:
        """Send `GET target` from inside the pod and return the body of a 200.

        Raises:
            StreamError: if the port answers with another status, or not with HTTP.
            TooLarge: if the body has more than `largest` bytes.
        """
        await self._send(f"GET {target}")
        if (code := await self._read_status()) != 200:
            raise errors.StreamError(f"the port answers {code}")
        length = None
        while header := await self._read_line():
            name, _, value = header.lower().partition(b":")
            if name == b"content-length":
                length = _parse_number(value)
        # Without Content-Length Envoy sends a chunked body.
        body = bytearray()
        while True:
            size = _parse_number(await self._read_line(), base=16) if length is None else length
            if not 0 <= size <= largest - len(body):
                raise errors.TooLarge(f"more than {largest} bytes")
            body += await self._read_exactly(size)
            if length is None:
                await self._read_line()
            if length is not None or not size:
                return bytes(body)

    async def _send(self, request: str, *headers: str) -> None:
        lines = (f"{request} HTTP/1.1", "Host: localhost", *headers, "", "")
        with errors.translate_errors():
            await self._socket.send_bytes(bytes([_DATA]) + "\r\n".join(lines).encode())

    async def _read_status(self) -> int:
        head = await self._read_line()
        protocol, _, rest = head.partition(b" ")
        code = rest.split(b" ", 1)[0]
        if not protocol.startswith(b"HTTP/") or not (code.isdigit() and len(code) == 3):
            raise errors.StreamError(f"the port does not speak HTTP: {head[:60]!r}")
        return int(code)

    async def _read_line(self) -> bytes:
        while (end := self._received.find(b"\r\n")) < 0 and len(self._received) <= _LONGEST_HEAD:
            self._received += await self._read_frame()
        line = bytes(self._received[: end if end >= 0 else None])
        del self._received[: len(line) + 2]
        return line

    async def _read_exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            self._received += await self._read_frame()
        part = bytes(self._received[:size])
        del self._received[:size]
        return part

    async def _read_frame(self) -> bytes:
        """Return the payload of the next frame, b"" for the first frame of each channel."""
        with errors.translate_errors():
            message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise errors.StreamEnded(f"port-forward ended: {_explain_end(self._socket, message)}")
        data: bytes = message.data
        if not data:
            raise errors.StreamError("port-forward sent a frame without a channel")
        channel, payload = data[0], data[1:]
        if channel not in self._greeted and channel in (_DATA, _ERROR):
            self._greeted.add(channel)
            return b""
        if channel == _ERROR:
            raise errors.StreamError(payload.decode(errors="replace")[:300])
        return payload


def _parse_number(text: bytes, base: int = 10) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise errors.StreamError(f"the port does not speak HTTP: {text[:60]!r}") from None


def _explain_end(socket: aiohttp.ClientWebSocketResponse, message: aiohttp.WSMessage) -> str:
    reason = message.extra if isinstance(message.extra, str) else ""
    return f"{reason or message.type.name} ({socket.close_code})"


@contextlib.asynccontextmanager
async def open_port_forward(
    client: Client, namespace: str, pod: str, port: int, *, deadline: float
) -> AsyncGenerator[PortForward]:
    """Open a port-forward to a pod; the block must end before the deadline, too.

    The server in the pod sees a client with a loopback address.

    Raises:
        StatusError: if the API server or the kubelet refused.
        StreamError: if nothing listens on the port, or the stream ended.
        Unreachable: if the deadline passed.
    """
    where = make_path(types.Pod, namespace, pod, "portforward")
    params = [("ports", str(port))]
    async with client.open_websocket(where, params=params, deadline=deadline) as socket:
        forward = PortForward(socket)
        await forward.wait_until_ready()
        yield forward


async def run_command(
    client: Client, namespace: str, pod: str, container: str, argv: list[str], *, deadline: float
) -> None:
    """Run a command in a container and wait for its success.

    Raises:
        StatusError: if the API server or the kubelet refused.
        StreamError: if the command failed or could not be started, or the stream ended early.
        Unreachable: if the command did not end before the deadline.
    """
    params = [("container", container), ("stdout", "true"), ("stderr", "true")]
    params += [("command", argument) for argument in argv]
    where = make_path(types.Pod, namespace, pod, "exec")
    output = b""
    async with client.open_websocket(where, params=params, deadline=deadline) as socket:
        while len(output) <= _LONGEST_OUTPUT:
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise errors.StreamEnded(f"exec ended: {_explain_end(socket, message)}")
            data: bytes = message.data
            channel, payload = int.from_bytes(data[:1]), data[1:]
            if channel == _EXEC_ERROR:
                return _check_end(payload, output.strip())
            output += payload
    raise errors.StreamError("the command says more than can be listened to")


def _check_end(payload: bytes, output: bytes) -> None:
    """Raise StreamError unless the last frame of exec reports success."""
    end = errors.read_status(payload)
    if end.status != "Success":
        # Only the last line is quoted, because earlier lines may be warnings.
        last = output.rpartition(b"\n")[-1].decode(errors="replace")
        raise errors.StreamError(": ".join(filter(None, (end.message[:300], last[-200:]))))
