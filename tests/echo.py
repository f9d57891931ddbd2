"""An application that says what it was asked, and a service that decides who may ask.

The standard library is enough for it: end-to-end tests run this file inside of a pod.
"""

import argparse
import base64
import contextlib
import hashlib
import html
import http.server
import json
import socket
import threading
import urllib.parse

COOKIE = "session=good"
USER = "user@example.com"
LOGIN = "/dex/auth"
OPEN = ("/dex", "/authservice", "/public")
"""Paths that need no session."""
RENEWED = f"{COOKIE}; Path=/; Max-Age=3600"
"""The cookie that it sets for a user with a session."""
_PAGE = """<!doctype html><link rel="icon" href="data:,"><title>{0}</title>
<body style="font: 18px sans-serif; margin: 2em"><h1>{0}</h1><p>You are <b id="user">{1}</b>.
<p>You asked for <code id="asked">{2}</code>. <a href="/oauth2/sign_out">Sign out</a>
<form method="post"><input name="text"><button>Keep</button></form><ul id="kept">{3}</ul>
"""
_WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Application(http.server.BaseHTTPRequestHandler):
    """Echoes each request; `?cookie=C` sets one, an upgrade talks."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        # As it was sent: http.server folds slashes at its beginning.
        self.path = self.requestline.split()[1]
        headers = {}
        for name, value in self.headers.items():
            before = headers.get(name.lower())
            headers[name.lower()] = value if before is None else f"{before}, {value}"
        if headers.get("upgrade", "").lower() == "websocket":
            self._talk(headers)
            return
        # What is left of a body would be read as the next request.
        sent = self.rfile.read(int(headers.get("content-length", 0)))
        self.close_connection |= "transfer-encoding" in headers
        asked = {"port": self.server.server_port, "path": self.path, "headers": headers}
        self.server.asked.append(asked)
        status, extra = self.decide(headers)
        body = self.show(asked, sent.decode(errors="replace")).encode()
        self.send_response(status)
        for name, value in extra.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_GET  # noqa: N815 (the names are http.server's)

    def show(self, asked, sent):
        """Say what was asked."""
        return json.dumps(asked)

    def decide(self, headers):
        """Answer each request."""
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        return 200, {"Set-Cookie": query["cookie"][0]} if "cookie" in query else {}

    def _talk(self, headers):
        """Echo every message of a WebSocket; messages here are below 126 bytes (RFC 6455)."""
        accepted = hashlib.sha1(f"{headers['sec-websocket-key']}{_WEBSOCKET}".encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accepted).decode())
        self.end_headers()
        self.close_connection = True
        while frame := self.rfile.read(2):
            mask = self.rfile.read(4)
            text = bytes(
                byte ^ mask[place % 4]
                for place, byte in enumerate(self.rfile.read(frame[1] & 0x7F))
            )
            self.wfile.write(bytes([frame[0], len(text)]) + text)

    def log_message(self, *_):
        """Say nothing."""


class Pages(Application):
    """Shows a person who they are, keeps what they send by a form, and says so again."""

    def decide(self, headers):
        """Answer each request with a page."""
        return 200, {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"}

    def show(self, asked, sent):
        """Write the page; each line that was kept has the name of who sent it."""
        user = asked["headers"].get("kubeflow-userid", "nobody")
        if self.command == "POST":
            (text,) = urllib.parse.parse_qs(sent)["text"]
            self.server.kept.append(f"{user}: {text}")
        kept = "".join(f"<li>{html.escape(line)}</li>" for line in self.server.kept)
        asked_for = html.escape(f"{self.command} {asked['path']}")
        return _PAGE.format(socket.gethostname(), html.escape(user), asked_for, kept)


class Authorization(Application):
    """Accepts one session, and redirects all other requests to the login page."""

    def decide(self, headers):
        """Decide about a request, or start or end a session."""
        if self.path.startswith("/callback"):
            return 302, {"Location": "/", "Set-Cookie": f"{COOKIE}; Path=/"}
        if self.path.startswith("/logout"):
            return 302, {"Location": "/", "Set-Cookie": "session=; Path=/; Max-Age=0"}
        if self.path.startswith(OPEN):
            return 200, {}
        if COOKIE in headers.get("cookie", ""):
            return 200, {"kubeflow-userid": USER, "x-other": "dropped", "Set-Cookie": RENEWED}
        return 302, {"Location": LOGIN, "Set-Cookie": "state=1"}


@contextlib.contextmanager
def serving(handler, port=0, address="0.0.0.0"):
    """Serve while the block runs; the server remembers what it was asked in `asked`."""
    server = http.server.ThreadingHTTPServer((address, port), handler)
    server.daemon_threads = True
    server.asked, server.kept = [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main():
    """Serve on several ports until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ports", nargs="*", type=int, help="of applications")
    parser.add_argument("--pages", action="store_true", help="answer with pages for a person")
    parser.add_argument("--authorization", type=int, help="port of the service that decides")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        for port in arguments.ports:
            stack.enter_context(serving(Pages if arguments.pages else Application, port))
        if arguments.authorization:
            stack.enter_context(serving(Authorization, arguments.authorization))
        threading.Event().wait()


if __name__ == "__main__":
    main()
