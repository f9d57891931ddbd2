"""Port-forward and exec, as the kubelet speaks them over WebSocket.

https://kubernetes.io/docs/reference/using-api/ describes neither; the frames are those of
k8s.io/kubelet/pkg/cri/streaming.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

import aiohttp
import msgspec

from sidecar_lifecycle.model import types

from . import errors
from .client import Client, path

_DATA, _ERROR = 0, 1
_STDOUT, _STDERR, _EXEC_ERROR = 1, 2, 3
_LONGEST_HEAD = 16 * 1024
_LONGEST_NUMBER = 20
_LONGEST_OUTPUT = 64 * 1024
"""Bytes that a command may say before it is given up: pilot-agent says two, but the container is
its owner's, and what talks for ever would keep us busy until the deadline."""


class PortForward:
    """One forwarded port, ready to carry HTTP requests, each after the answer to the last one."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._greeted: set[int] = set()
        self._received = bytearray()

    async def ready(self) -> None:
        """Wait until the kubelet has announced the port on both channels."""
        while len(self._greeted) < 2:
            await self._frame()

    async def post(self, target: str) -> int:
        """Send `POST target` from inside the pod and return the status code of the answer.

        Raises:
            StreamError: if the port does not answer with HTTP.
        """
        await self._send(f"POST {target}", "Content-Length: 0", "Connection: close")
        return await self._status()

    async def get(self, target: str, *, largest: int) -> bytes:
        """Send `GET target` from inside the pod and return the body of a 200.

        Raises:
            StreamError: if the port answers otherwise, or not with HTTP.
            TooLarge: if the body has more than so many bytes.
        """
        await self._send(f"GET {target}")
        if (code := await self._status()) != 200:
            raise errors.StreamError(f"the port answers {code}")
        length = None
        while header := await self._line():
            name, _, value = header.lower().partition(b":")
            if name == b"content-length":
                length = _number(value)
        # Without a length Envoy sends chunks.
        body = bytearray()
        while True:
            size = _number(await self._line(), base=16) if length is None else length
            if not 0 <= size <= largest - len(body):
                raise errors.TooLarge(f"more than {largest} bytes")
            body += await self._exactly(size)
            if length is None:
                await self._line()
            if length is not None or not size:
                return bytes(body)

    async def _send(self, request: str, *headers: str) -> None:
        lines = (f"{request} HTTP/1.1", "Host: localhost", *headers, "", "")
        with errors.mapped():
            await self._socket.send_bytes(bytes([_DATA]) + "\r\n".join(lines).encode())

    async def _status(self) -> int:
        head = await self._line()
        protocol, _, rest = head.partition(b" ")
        code = rest.split(b" ", 1)[0]
        if not protocol.startswith(b"HTTP/") or not (code.isdigit() and len(code) == 3):
            raise errors.StreamError(f"the port does not speak HTTP: {head[:60]!r}")
        return int(code)

    async def _line(self) -> bytes:
        while (end := self._received.find(b"\r\n")) < 0 and len(self._received) <= _LONGEST_HEAD:
            self._received += await self._frame()
        line = bytes(self._received[: end if end >= 0 else None])
        del self._received[: len(line) + 2]
        return line

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            self._received += await self._frame()
        part = bytes(self._received[:size])
        del self._received[:size]
        return part

    async def _frame(self) -> bytes:
        """Return the payload of the next data frame, b"" for the two announcements."""
        with errors.mapped():
            message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise errors.StreamEnded(f"port-forward ended: {_why(self._socket, message)}")
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


def _number(text: bytes, base: int = 10) -> int:
    try:
        return int(text[:_LONGEST_NUMBER], base)
    except ValueError:
        raise errors.StreamError(f"the port does not speak HTTP: {text[:60]!r}") from None


def _why(socket: aiohttp.ClientWebSocketResponse, message: aiohttp.WSMessage) -> str:
    reason = message.extra if isinstance(message.extra, str) else ""
    return f"{reason or message.type.name} ({socket.close_code})"


@contextlib.asynccontextmanager
async def port_forward(
    client: Client, namespace: str, pod: str, port: int, *, deadline: float
) -> AsyncGenerator[PortForward]:
    """Open a port of a pod for the time of the block, which counts towards the deadline.

    The peer is inside of the pod's network namespace and sees a loopback address.

    Raises:
        StatusError: if the API or the kubelet refused.
        StreamError: if nothing listens there, or the stream ended.
        Unreachable: if there was no answer in time.
    """
    where = path(types.Pod, namespace, pod, "portforward")
    params = [("ports", str(port))]
    async with client.websocket(where, params=params, deadline=deadline) as socket:
        forward = PortForward(socket)
        await forward.ready()
        yield forward


async def run_command(
    client: Client, namespace: str, pod: str, container: str, argv: list[str], *, deadline: float
) -> None:
    """Run a command in a container until it succeeds.

    Raises:
        StatusError: if the API or the kubelet refused.
        StreamError: if the command failed or could not be started, or the stream ended early.
        Unreachable: if it did not end in time.
    """
    params = [("container", container), ("stdout", "true"), ("stderr", "true")]
    params += [("command", argument) for argument in argv]
    where = path(types.Pod, namespace, pod, "exec")
    output = {_STDOUT: b"", _STDERR: b""}
    async with client.websocket(where, params=params, deadline=deadline) as socket:
        while sum(map(len, output.values())) <= _LONGEST_OUTPUT:
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise errors.StreamEnded(f"exec ended: {_why(socket, message)}")
            data: bytes = message.data
            channel, payload = int.from_bytes(data[:1]), data[1:]
            if channel == _EXEC_ERROR:
                return _check_end(payload, output[_STDERR].strip() or output[_STDOUT].strip())
            if channel in output:
                output[channel] += payload
    raise errors.StreamError("the command says more than can be listened to")


class _End(msgspec.Struct):
    status: str = ""
    message: str = ""


def _check_end(payload: bytes, output: bytes) -> None:
    """Raise StreamError unless exec's last frame says that the command succeeded."""
    try:
        with errors.understood():
            end = msgspec.json.decode(payload, type=_End)
    except errors.Unreachable:
        end = _End(message=payload.decode(errors="replace"))
    if end.status != "Success":
        # Earlier lines may be warnings.
        last = output.rpartition(b"\n")[-1].decode(errors="replace")
        raise errors.StreamError(": ".join(filter(None, (end.message[:300], last[-200:]))))
