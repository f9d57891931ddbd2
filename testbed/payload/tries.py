"""Ask a peer which try this is, and end with that try's exit code; `serve` is that peer.

Usage: tries.py serve [PORT]
       tries.py run URL NAME CODES [SECONDS]

CODES are the exit codes of the first, second, … try, the last one for all that follow. The peer
counts what reached it, so a try without network is missing in its count, and ends with 99.
With SECONDS the peer is asked again (without being counted) after so long, just before the end.
"""

import http.server
import json
import signal
import socket
import sys
import threading

UNREACHABLE = 99


class Counter(http.server.BaseHTTPRequestHandler):
    """Answers /try/NAME with how often it has been asked, /again with nothing, / with all.

    What is put to /try/NAME counts alike: Argo's executor stores there.
    """

    tries: dict[str, int] = {}  # noqa: RUF012  one for the process
    lock = threading.Lock()

    def do_GET(self) -> None:
        """Count and answer."""
        with self.lock:
            if self.path.startswith("/try/"):
                name = self.path.removeprefix("/try/")
                self.tries[name] = self.tries.get(name, 0) + 1
                text = str(self.tries[name])
            else:
                text = json.dumps(self.tries) if self.path == "/" else ""
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        """Take in what is to be stored, and count it."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Be silent."""


class Server(http.server.ThreadingHTTPServer):
    """Takes many connections at once."""

    request_queue_size = 128


def get(url: str, path: str) -> bytes:
    """Return the body of the answer to a GET.

    Raises:
        OSError: if there was no good answer.
    """
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port or 80)), timeout=5) as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b""
        while received := connection.recv(4096):
            answer += received
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head[:16]:
        raise OSError(head[:80])
    return body


def run(url: str, name: str, codes: str, seconds: float) -> int:
    """Ask, stay, ask again, and return the exit code of this try."""
    try:
        attempt = int(get(url, f"/try/{name}"))
        if seconds:
            import time  # noqa: PLC0415 -- not needed for the first instruction

            time.sleep(seconds)
            get(url, "/again")
    except (OSError, ValueError) as error:
        print(f"the peer is not reached: {error}", file=sys.stderr, flush=True)
        return UNREACHABLE
    planned = [int(code) for code in codes.split(",")]
    print(f"try {attempt}", flush=True)
    return planned[min(attempt, len(planned)) - 1]


def main() -> int:
    """Serve or run."""
    # As PID 1 a process has no default action for SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if sys.argv[1] == "serve":
        port = int(sys.argv[2]) if len(sys.argv) > 2 else 8080
        Server(("", port), Counter).serve_forever()
    url, name, codes, *seconds = sys.argv[2:]
    return run(url, name, codes, float(seconds[0]) if seconds else 0)


if __name__ == "__main__":
    sys.exit(main())
