"""Serve hook tools on the agent's socket; each call is one JSON line and one JSON answer."""

import json
import socketserver
import sys
import threading
from pathlib import Path
from typing import Any

from . import tools
from .api import ControllerError
from .context import HookContext
from .flags import ToolError

CLIENT = """import json, os, socket, sys

context = os.environ.get("JUJU_CONTEXT_ID")
if not context:
    sys.exit("ERROR JUJU_CONTEXT_ID not set")
arguments = sys.argv[1:]
flag = "--file" if "--file" in arguments else None
wants_input = flag and arguments[arguments.index(flag) + 1 :][:1] == ["-"]
request = {
    "context": context,
    "tool": os.path.basename(sys.argv[0]),
    "arguments": arguments,
    "input": sys.stdin.read() if wants_input else "",
}
try:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["JUJU_AGENT_SOCKET_ADDRESS"])
        stream = connection.makefile("rw", encoding="utf-8")
        stream.write(json.dumps(request) + "\\n")
        stream.flush()
        answer = json.loads(stream.readline())
except (OSError, ValueError) as error:
    sys.exit(f"ERROR {error}")
sys.stdout.write(answer["stdout"])
sys.stderr.write(answer["stderr"])
sys.exit(answer["code"])
"""


class ToolServer:
    """Answers hook tools for the one context that is current; all others are refused."""

    def __init__(self, socket_path: Path) -> None:
        self._context: HookContext | None = None
        socket_path.parent.mkdir(parents=True, exist_ok=True)
        socket_path.unlink(missing_ok=True)
        owner = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                answer = owner._answer(json.loads(self.rfile.readline()))
                self.wfile.write(json.dumps(answer).encode() + b"\n")

        self._server = socketserver.ThreadingUnixStreamServer(str(socket_path), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="jujuc", daemon=True).start()

    def enter(self, context: HookContext | None) -> None:
        """Make a context current; None ends the last one."""
        self._context = context

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        context = self._context
        if context is None or context.id != request["context"]:
            return _failure(f"wrong context ID; got {request['context']!r}", 1)
        tool = tools.TOOLS.get(request["tool"])
        if tool is None:
            return _failure(f"unknown command {request['tool']!r}", 1)
        try:
            with context.lock:
                output = tool(context, request["arguments"], request["input"])
        except ToolError as error:
            return _failure(error.message, error.code)
        except (ControllerError, OSError) as error:
            return _failure(str(error), 1)
        return {"stdout": f"{output}\n" if output else "", "stderr": "", "code": 0}


def _failure(message: str, code: int) -> dict[str, Any]:
    return {"stdout": "", "stderr": f"ERROR {message}\n", "code": code}


def install_tools(client: Path, folder: Path) -> None:
    """Write the client program and link every hook tool's name to it."""
    client.parent.mkdir(parents=True, exist_ok=True)
    if not client.exists():
        client.write_text(f"#!{sys.executable} -IS\n{CLIENT}")
        client.chmod(0o755)
    folder.mkdir(parents=True, exist_ok=True)
    for name in tools.TOOLS:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(client)
