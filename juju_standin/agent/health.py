"""The agent's own probes, asked by the charm container's Pebble."""

import http.server
import threading
from collections.abc import Callable

PORT = 65301


def serve(is_ready: Callable[[], bool]) -> http.server.ThreadingHTTPServer:
    """Serve `/liveness` (always up) and `/readiness` in the background."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            up = self.path == "/liveness" or (self.path == "/readiness" and is_ready())
            self.send_response(200 if up else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay silent: Pebble asks every ten seconds."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
