"""Serve a text or a directory over HTTP, after a delay if so asked."""

import argparse
import functools
import http.server
import signal
import sys
import time
import urllib.parse


class TextHandler(http.server.BaseHTTPRequestHandler):
    """Answers every GET and POST with the same text; `/status/NNN` answers with that status."""

    content = ""

    def do_GET(self) -> None:
        """Answer with the text."""
        path = urllib.parse.urlsplit(self.path).path
        status = 200
        if path.startswith("/status/") and path.removeprefix("/status/").isdecimal():
            status = int(path.removeprefix("/status/"))
        body = self.content.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Read the body, then answer as to a GET."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.do_GET()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--start-delay", type=float, default=0, metavar="SECONDS")
    content = parser.add_mutually_exclusive_group()
    content.add_argument("--content", default="ok\n", metavar="TEXT")
    content.add_argument("--directory", metavar="DIR", help="serve these files instead")
    return parser.parse_args()


def main() -> None:
    """Serve until SIGTERM."""
    # As PID 1 a process has no default action for SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    args = _arguments()
    time.sleep(args.start_delay)
    if args.directory:
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=args.directory)
    else:
        handler = type("Handler", (TextHandler,), {"content": args.content})
    server = http.server.ThreadingHTTPServer(("0.0.0.0", args.port), handler)
    print(f"serving on port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
