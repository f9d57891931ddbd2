"""The webhook's real process under floods from one address, while an API server asks."""

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

import pytest

from tests import waiting
from tests.functional import admission_cases as table
from tests.functional import admission_world, loopback_webhook
from tests.kubernetes_objects import namespace_of

TENANT = "127.0.0.3"
PATIENCE = 3
"""Seconds that an API server waits for an answer."""
MOST_MEMORY = 120
"""MiB: the Deployment's limit is 128."""
MEBIBYTE = 1024 * 1024
LARGEST = 3 * MEBIBYTE
MOST_CONNECTIONS = 256
"""As many the server keeps open at once."""
IDLE_SECONDS, HANDSHAKE_SECONDS = 20, 5
"""How long it keeps one without a request, and without a handshake."""
SETTINGS = "everything"


@pytest.fixture(scope="module")
def world(admin):
    """A model that a webhook serves."""
    made = admission_world.World(admin, "floods")
    model = made.api.create(namespace_of(made.model(SETTINGS)))
    yield made
    made.api.delete(model)


@pytest.fixture(scope="module")
def server(world, tmp_path_factory):
    """A server that the API server asks about the model's pods, through all of the floods."""
    values = admission_world.wanted(SETTINGS, world.model(SETTINGS)).to_document()
    # These would be applied to any pod, however much it costs.
    del values["pod-labels"], values["pod-annotations"]
    with loopback_webhook.serving(tmp_path_factory.mktemp("webhook") / "0", values) as server:
        written = loopback_webhook.configure(world, SETTINGS, server, server.material.bundle)
        world.wait_until_mutated(world.model(SETTINGS))
        yield server
        world.api.delete(written)


class Creating:
    """Has the API server create a pod all the time, of which nothing is kept."""

    def __init__(self, world):
        self.waits = []
        self.skipped = []
        """How long those pods took that were created unchanged."""
        self._world = world
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        pod = table.Case("").pod(self._world.model(SETTINGS))
        while not self._stop.wait(0.05):
            started = time.monotonic()
            created = self._world.try_pod(pod)
            self.waits.append(time.monotonic() - started)
            if "annotations" not in created["metadata"]:
                self.skipped.append(self.waits[-1])


def trusting(server):
    trusted = ssl.create_default_context(cadata=server.material.bundle)
    trusted.set_alpn_protocols(["http/1.1"])
    return trusted


def connect(server, tls):
    raw = socket.create_connection(("127.0.0.1", server.port), PATIENCE, (TENANT, 0))
    try:
        return tls.wrap_socket(raw, server_hostname=loopback_webhook.NAME)
    except BaseException:
        raw.close()
        raise


class Flood:
    """Connections that stay as they are until the block ends, unless the server ends them."""

    def __init__(self, server, threads=8):
        self.server = server
        self.tls = trusting(server)
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
        with contextlib.suppress(OSError):
            if port:
                each = socket.create_connection(("127.0.0.1", port), PATIENCE, (TENANT, 0))
            else:
                each = connect(self.server, self.tls)
            self.sockets.append(each)
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


def resident(server):
    """Return how many MiB of memory the server's process has now, and has had at most."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return tuple(int(lines[key].split()[0]) // 1024 for key in ("VmRSS", "VmHWM"))


def post(length):
    """Write the head of a request whose body has this length."""
    return (
        "POST /mutate/model HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def body(length):
    return post(length) + b'"' + b"x" * (length - 2) + b'"'


def review(pod):
    data = loopback_webhook.review(pod)
    return post(len(data)) + data


def answer(connection):
    """Read what the webhook says of a review."""
    read = http.client.HTTPResponse(connection)
    read.begin()
    return json.loads(read.read())["response"]


LONG_ANSWER = review(
    {"metadata": {"annotations": {table.PORTS: "x" * 250_000}}, "spec": {"containers": [{}]}}
)
FLOODS = {
    "idle connections": (1000, b""),
    "bodies of 8 MiB": (200, body(8 * MEBIBYTE)),
    "bodies of 3 MiB": (100, body(LARGEST)),
    "bodies that stay incomplete": (200, body(LARGEST)[: -MEBIBYTE // 2]),
    "heads that stay incomplete": (400, post(1)[:-2] + b"a: b\r\n" * 5),
    "answers that nobody takes": (100, LONG_ANSWER * 10),
    "no HTTP": (400, b"\x16\x03\x01" * 1000),
}

SLOW = ("bodies of 3 MiB", "heads that stay incomplete", "answers that nobody takes")
"""Floods whose last connection is open as long as an idle one's."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in SLOW)) for name in FLOODS]
)
def test_a_flood_from_one_address_neither_fills_memory_nor_keeps_reviews_waiting(
    world, server, name
):
    count, opening = FLOODS[name]
    with Creating(world) as api, Flood(server) as flood:
        assert waiting.eventually(lambda: api.waits)
        flood.hold(count, opening)
        asked = len(api.waits)
        assert flood.left() <= MOST_CONNECTIONS
        assert waiting.eventually(lambda: len(api.waits) >= asked + 20)
        assert waiting.eventually(lambda: not flood.left(), 2 * IDLE_SECONDS)
        now, most = resident(server)

    print(f"{name}: {now} MiB, at most {most}; longest wait {max(api.waits):.3f} s")
    assert most < MOST_MEMORY
    assert api.skipped == []
    assert server.process.poll() is None
    assert "Traceback" not in (server.directory / "log").read_text()


def test_a_flood_of_the_port_for_health_keeps_no_kubelet_out(server):
    with Flood(server) as flood:
        flood.hold(1000, port=server.health)

        assert server.get("/livez")[0] == server.get("/readyz")[0] == 200
        assert waiting.eventually(lambda: not flood.left(), 2 * IDLE_SECONDS)
    assert resident(server)[1] < MOST_MEMORY


def test_connections_without_a_handshake_are_closed(server):
    with Flood(server) as flood:
        flood.hold(20, port=server.port)

        assert len(flood.sockets) == 20
        assert waiting.eventually(lambda: not flood.left(), 2 * HANDSHAKE_SECONDS)


def test_an_api_server_may_ask_for_two_hundred_reviews_at_once(server):
    asking = review({"metadata": {}, "spec": {"containers": [{"name": "main", "image": "x"}]}})
    with Flood(server) as flood:
        flood.hold(200)
        for connection in flood.sockets:
            connection.sendall(asking)
        answers = [answer(connection) for connection in flood.sockets]

    assert len(answers) == 200
    assert all(json.loads(base64.b64decode(each["patch"])) for each in answers)
