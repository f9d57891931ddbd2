"""Clients of a gateway: one with a single connection, and one that never stops asking."""

import base64
import contextlib
import dataclasses
import http.client
import itertools
import json
import os
import socket
import ssl
import threading
import time

from cryptography import x509

from tests import waiting

HOST = "kubeflow.example.com"
TENANT = "shop.example.com"


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: dict
    text: str

    @property
    def echo(self):
        """The request as the application received it."""
        return json.loads(self.text)


class Client:
    """Asks over one connection, which it opens again when the gateway ends it between requests.

    `opened` counts the connections.
    """

    def __init__(self, address="127.0.0.1", port=None, *, tls=False, name=HOST, timeout=15):
        self.opened = 0
        self._place = (address, port or (443 if tls else 80))
        self._tls = tls
        self._name = name
        self._timeout = timeout
        self._connection = None

    def connect(self):
        """Open a connection; a client that only asks needs not call it."""
        connection = http.client.HTTPConnection(*self._place, timeout=self._timeout)
        if self._tls:
            connection.sock = secured(self._place, self._name, timeout=self._timeout)
        else:
            connection.connect()
        self.opened += 1
        return connection

    def certificate(self):
        """The certificate that a new connection is shown."""
        connection = self.connect()
        try:
            shown = connection.sock.getpeercert(binary_form=True)
            return x509.load_der_x509_certificate(shown)
        finally:
            connection.close()

    def close(self):
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path="/", host=HOST, **headers):
        """Ask; an error of the connection is raised unless it was an idle one that had ended."""
        given = {"Host": host, **{key.replace("_", "-"): value for key, value in headers.items()}}
        for last in (False, True):
            reused = self._connection is not None
            if self._connection is None:
                self._connection = self.connect()
            try:
                self._connection.request("GET", path, headers=given)
                with self._connection.getresponse() as response:
                    text = response.read().decode()
            except (OSError, http.client.HTTPException):
                self.close()
                if last or not reused:
                    raise
                continue
            if response.will_close:
                self.close()
            return Answer(response.status, dict(response.getheaders()), text)
        raise AssertionError


class Hammer(threading.Thread):
    """Asks the same all the time and counts the answers.

    Each request that is fresh has a connection of its own; between two is a pause in seconds.
    """

    def __init__(self, client, *, fresh=False, pause=0.003, **request):
        super().__init__(daemon=True)
        self.answers = {}
        self.runs = []
        """Runs of equal answers: the answer, its count, and the time of the first."""
        self._client = client
        self._fresh = fresh
        self._pause = pause
        self._request = request
        self._ended = threading.Event()

    def run(self):
        """Ask until it is ended."""
        while not self._ended.wait(self._pause):
            try:
                what = self._client.get(**self._request).status
            except (OSError, http.client.HTTPException) as error:
                what = repr(error)
            self.answers[what] = self.answers.get(what, 0) + 1
            if not self.runs or self.runs[-1][0] != what:
                self.runs.append([what, 0, time.monotonic()])
            self.runs[-1][1] += 1
            if self._fresh:
                self._client.close()
        self._client.close()

    @property
    def count(self):
        """How many answers there are by now."""
        return sum(list(self.answers.values()))

    @property
    def answered(self):
        """How many of them came from the gateway, and are no broken connection."""
        return sum(count for what, count in list(self.answers.items()) if isinstance(what, int))

    @property
    def reopened(self):
        """How often 200 was answered after something else."""
        first = itertools.takewhile(lambda run: run[0] == 200, list(self.runs))
        return self.answers.get(200, 0) - sum(count for _, count, _ in first)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Stop asking."""
        self._ended.set()
        self.join()


def go_on(hammers, requests=5):
    """Wait until each of them has so many answers more."""
    counts = [(each, each.count) for each in hammers]
    assert waiting.eventually(
        lambda: all(each.count >= count + requests for each, count in counts), 90
    )


def secured(address, name, protocol="http/1.1", *, timeout=5):
    """Connect by TLS, with whoever shows a certificate at that name."""
    # Without the roots of the system, which take 50 ms of CPU time to read.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    # A connection that is reset before wrap_socket would be lost there, which does not close it.
    connection = context.wrap_socket(socket.socket(), server_hostname=name)
    try:
        connection.settimeout(timeout)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def raw(address, request, port=80, *, whole=False, tls=""):
    """Send bytes as they are; the head of what comes back, or all until the connection ends.

    With `tls` they are sent by HTTPS, at that name.
    """
    place = (address, port)
    with secured(place, tls) if tls else socket.create_connection(place, timeout=5) as connection:
        connection.sendall(request.encode())
        found = b""
        with contextlib.suppress(TimeoutError):
            while (whole or b"\r\n\r\n" not in found) and (chunk := connection.recv(65536)):
                found += chunk
        return found


def talk(path, port, *, host=HOST, **headers):
    """Open a WebSocket (RFC 6455) and say a text; the echo or status.

    Libraries follow a redirect, which is an answer here.
    """
    asked = {
        "Host": host,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in asked.items())
    with socket.create_connection(("127.0.0.1", port), timeout=15) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        with connection.makefile("rb") as answer:
            status = int(answer.readline().split()[1])
            while answer.readline().strip():
                pass
            if status != 101:
                return status
            # The mask of zeros changes nothing.
            connection.sendall(b"\x81\x85\0\0\0\0hello")
            _, length = answer.read(2)
            return answer.read(length).decode()
