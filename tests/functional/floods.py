"""What a pod can throw at the webhook, and an API server that asks meanwhile."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from pathlib import Path

from tests.functional import loopback_webhook

TENANT, API_SERVER = "127.0.0.3", "127.0.0.2"
PATIENCE = 3
"""Seconds that an API server waits for an answer."""
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": POD,
    },
}


def context(server):
    trusted = ssl.create_default_context(cadata=server.material.bundle)
    trusted.set_alpn_protocols(["http/1.1"])
    return trusted


def connect(server, source=TENANT, *, tls=None, port=None):
    raw = socket.create_connection(
        ("127.0.0.1", port or server.port), PATIENCE, source_address=(source, 0)
    )
    if port:
        return raw
    try:
        return (tls or context(server)).wrap_socket(raw, server_hostname=loopback_webhook.NAME)
    except BaseException:
        raw.close()
        raise


def resident(server):
    """Return how many MiB of memory the server's process has now, and has had at most."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return tuple(int(lines[key].split()[0]) // 1024 for key in ("VmRSS", "VmHWM"))


class Flood:
    """Connections that stay as they are until the block ends, unless the server ends them."""

    def __init__(self, server, threads=8):
        self.server = server
        self.tls = context(server)
        self.sockets = []
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pool.shutdown(cancel_futures=True)
        for each in self.sockets:
            each.close()

    def hold(self, count, opening=b"", port=None):
        """Open connections, send the same on each, and keep them."""
        list(self.pool.map(lambda _: self._hold(opening, port), range(count)))

    def _hold(self, opening, port):
        try:
            each = connect(self.server, tls=self.tls, port=port)
        except OSError:
            return
        self.sockets.append(each)
        with contextlib.suppress(OSError):
            each.sendall(opening)

    def left(self):
        """Return how many of the connections the server has not ended."""
        return sum(not is_closed(each) for each in self.sockets)


def is_closed(connection):
    connection.settimeout(0.01)
    try:
        while connection.recv(65536):
            pass
    except (TimeoutError, ssl.SSLWantReadError):
        return False
    except OSError:
        pass
    return True


def post(length, path="/mutate/model"):
    """Write the head of a request whose body has this length."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


class ApiServer:
    """Asks for reviews from its own address, on a connection that it keeps, as API servers do."""

    def __init__(self, server, pause=0.02):
        self.server = server
        self.pause = pause
        self.waits = []
        self.failures = []
        self._connection = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self._drop()

    def _drop(self):
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _run(self):
        while not self._stop.wait(self.pause):
            started = time.monotonic()
            try:
                self._review()
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.failures.append(repr(error))
                self._drop()
            self.waits.append(time.monotonic() - started)

    def _review(self):
        for is_kept in (self._connection is not None, False):
            try:
                assert patch(self._ask()) is not None
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
                # A kept connection may be closed at any time: Go tries again on a new one.
                self._drop()
                if not is_kept:
                    raise
            else:
                return

    def _ask(self):
        if self._connection is None:
            self._connection = http.client.HTTPConnection("webhook", timeout=PATIENCE)
            self._connection.sock = connect(self.server, API_SERVER)
        self._connection.request("POST", "/mutate/model", json.dumps(REVIEW).encode())
        return self._connection.getresponse()


def patch(response):
    """Return the patch of an answer."""
    body = response.read()
    assert response.status == 200, body
    return json.loads(base64.b64decode(json.loads(body)["response"]["patch"]))
