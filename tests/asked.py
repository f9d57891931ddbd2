"""A stand-in for the workload, which the charm calls by HTTP and by exec."""

import dataclasses
import http.server
import json
import threading
from collections.abc import Callable
from typing import Any

from ops import testing

from integrator_contract import schema, service
from integrator_contract.seen import EnvoyState, Expectation

PROGRAM = "/usr/bin/sidecar-lifecycle"
SUMMARY = {
    **dict.fromkeys(("eligible", "in_mesh", "converging", "proposed", "reported"), 0),
    "troubles": [],
}


def headed(answer: object, contract: str = schema.SCHEMA) -> str:
    """Write an answer with the word of a contract."""
    return json.dumps({"contract": contract, "answer": answer})


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Service)
        server.requests.append((self.command, self.path, self.headers["Authorization"]))
        status, text = server.answer
        of_paths = {
            "/seen": lambda: dataclasses.asdict(server.look()),
            "/ended": lambda: server.ended,
            "/outbound": lambda: server.has_chain,
        }
        path = self.path.partition("?")[0]
        if not server.is_failing and path in of_paths:
            text = headed(of_paths[path]()).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None: ...


class Service(http.server.ThreadingHTTPServer):
    """The workload's listener, with answers that a test sets."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and authorization of each request since the last `says` or `fails`."""
        self.seen = EnvoyState(of="")
        """The gateway's configuration as the workload reports it."""
        self.look: Callable[[], EnvoyState] = lambda: self.seen
        self.ended: list[dict[str, Any]] = []
        """The proxies that it reports as running longer than their payload."""
        self.has_chain = True
        """What the workload says of a pod's proxy, until `says` is called."""
        self.says()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def says(self, *pods: dict[str, Any], **summary: Any) -> None:
        """Answer with some pods and a summary."""
        told = {"pods": pods, "summary": {**SUMMARY, **summary}}
        self.fails(200, headed(told))
        self.is_failing = False
        self.has_chain = True

    def sees(self, expected: Expectation) -> bool:
        """Report the gateway as it is expected; tell whether the report has changed."""
        before = self.seen
        is_open = any(server.hosts for server in expected.servers)
        self.seen = EnvoyState(
            of=expected.digest(),
            unseen=None,
            guarded=tuple(server.port for server in expected.servers),
            is_open=is_open,
            routes=expected.routes if is_open else 0,
        )
        return self.seen != before

    def closes(self) -> None:
        """Report a gateway without a server of this charm."""
        self.seen = EnvoyState(of="", unseen=None)

    def fails(self, status: int, text: str) -> None:
        """Answer every request with a status and a text, until `says` is called."""
        self.requests.clear()
        self.is_failing = True
        self.answer = status, text.encode()


SERVICE = Service()
# Tests that run side by side would share the usual port.
service.LISTENER_PORT = SERVICE.server_port


def version(contract: str | None = schema.SCHEMA) -> testing.Exec:
    """Emulate an image of a contract; None: of a revision without contracts."""
    keeps_to = "" if contract is None else f" (contract {contract})"
    stdout = f"sidecar-lifecycle 0.1.0{keeps_to}\n"
    return testing.Exec((PROGRAM, "--version"), stdout=stdout)


def of_image(container: testing.Container, contract: str | None) -> testing.Container:
    """Return the container with another image."""
    others = {each for each in container.execs if "--version" not in each.command_prefix}
    return dataclasses.replace(container, execs={*others, version(contract)})
