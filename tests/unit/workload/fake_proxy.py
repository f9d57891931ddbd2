"""A proxy that takes a stop by port-forward or exec, in the way that a test chooses."""

import asyncio
import json
from collections.abc import Callable

from aiohttp import WSMsgType, web


class Proxy:
    """How one pod's proxy takes a stop."""

    def __init__(self) -> None:
        self.mode = "ok"
        """ok, deaf (200, but runs on), mute (ends, no answer), cut (its connection ends, and it
        does two seconds later), lingers (ends, but the connection does not), silent (its port is
        never announced), 403, 500, refused,
        hang, vanish, no-http, digits (a status of 5,000)."""
        self.port = "15020"
        """Its status port."""
        self.exec_mode = "ok"
        """ok, deaf (0, but it runs on), exit-1, missing, garbage, hang, talks, cut (it breaks off
        without an end)."""
        self.release = asyncio.Event()
        """Ends a hang."""
        self.requests: list[str] = []
        """What arrived at the proxy, by transport."""
        self.on_asked: Callable[[], None] = lambda: None

    def _asked(self, way: str) -> None:
        self.requests.append(way)
        self.on_asked()

    async def port_forward(
        self, request: web.Request, socket: web.WebSocketResponse, quits: Callable[[], None]
    ) -> None:
        """Take a request to quit that comes by a port-forward."""
        assert request.query["ports"] == self.port
        port = int(self.port).to_bytes(2, "little")
        if self.mode == "silent":
            await self.release.wait()
        await socket.send_bytes(b"\x00" + port)
        await socket.send_bytes(b"\x01" + port)
        if self.mode == "refused":
            await socket.send_bytes(b"\x01" + b"connect: connection refused")
            return
        received = b""
        while b"\r\n\r\n" not in received:
            message = await socket.receive()
            if message.type is not WSMsgType.BINARY:
                return
            assert message.data[0] == 0
            received += message.data[1:]
        self._asked("port-forward")
        first, *headers = received.split(b"\r\n")
        assert first == b"POST /quitquitquit HTTP/1.1"
        assert {b"Host: localhost", b"Content-Length: 0"} <= {*headers}
        if self.mode == "cut":
            asyncio.get_running_loop().call_later(2, quits)
            await socket.close(code=1011, message=b"lost")
        if self.mode in ("cut", "vanish"):
            return
        if self.mode == "mute":
            quits()
            await self.release.wait()
        if self.mode == "hang":
            await self.release.wait()
        answers = {
            "403": b"403 Forbidden",
            "500": b"500 Oh",
            "no-http": None,
            "digits": b"1" * 5000,
        }
        answer = answers.get(self.mode, b"200 OK")
        head = b"HTTP/1.1 " + answer if answer else b"SSH-2.0-x"
        # In pieces, as a stream may come.
        for piece in (head[:5], head[5:], b"\r\nContent-Length: 2\r\n\r\nOK"):
            await socket.send_bytes(b"\x00" + piece)
        if self.mode in ("ok", "hang", "lingers"):
            quits()
        if self.mode == "lingers":
            await self.release.wait()

    async def exec(
        self, request: web.Request, socket: web.WebSocketResponse, quits: Callable[[], None]
    ) -> None:
        """Take a command that asks it to quit."""
        command = ["pilot-agent", "request", "POST", "quitquitquit"]
        assert request.query.getall("command") == command
        asked = [request.query.get(key) for key in ("container", "stdout", "stderr")]
        assert asked == ["istio-proxy", "true", "true"]
        self._asked("exec")
        if self.exec_mode == "hang":
            await self.release.wait()
        while self.exec_mode == "talks" and not socket.closed:
            await socket.send_bytes(b"\x01" + b"x" * 60_000)
            await asyncio.sleep(0.01)
        await socket.send_bytes(b"\x01OK\n")
        if self.exec_mode == "cut":
            return
        if self.exec_mode in ("ok", "deaf"):
            if self.exec_mode == "ok":
                quits()
            await socket.send_bytes(b"\x03" + b'{"status":"Success"}')
        elif self.exec_mode == "exit-1":
            cause = {"reason": "ExitCode", "message": "1"}
            status = {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": "command terminated with non-zero exit code: exit status 1",
                "details": {"causes": [cause]},
            }
            await socket.send_bytes(b"\x02a warning\nno admin port\n")
            await socket.send_bytes(b"\x03" + json.dumps(status).encode())
        elif self.exec_mode == "garbage":
            await socket.send_bytes(b"\x03{]")
        else:
            status = {"status": "Failure", "message": "executable file not found"}
            await socket.send_bytes(b"\x03" + json.dumps(status).encode())
