"""Serve hook tools on the agent's socket; each call is one JSON line and one JSON answer."""

import json
import shutil
import socketserver
import threading
from pathlib import Path
from typing import Any

from . import tools
from .api import ControllerError
from .context import HookContext
from .flags import ToolError

PROGRAM = Path("tools") / "jujuc"
"""Below Juju's data folder."""


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


def copy(program: Path, data: Path) -> None:
    """Keep the compiled program that every hook tool is in Juju's data folder."""
    target = data / PROGRAM
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(program, target)


def install_tools(data: Path, folder: Path) -> None:
    """Link every hook tool's name to the program."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in tools.TOOLS:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(data / PROGRAM)
