"""A real Pebble sends the workload's log where the charm's data bags say."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import subprocess
import threading
import types

import ops
import pytest

from istio_integrator import observability as part
from testbed import programs
from tests import waiting
from tests.functional.test_observability import UUID, topology

TOPOLOGY = topology("kubeflow", UUID)


LABELS = {
    "charm": "istio-integrator",
    "juju_application": "app",
    "juju_model": "kubeflow",
    "juju_model_uuid": UUID,
    "juju_unit": "app/0",
    "pebble_service": "lifecycle",
    "product": "Juju",
}


class LokiStandIn(http.server.ThreadingHTTPServer):
    """Takes what is pushed, as Loki's push API would, and keeps it."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kept = []

    def pushed(self):
        """Return pairs of a stream's labels and a line."""
        return [*self.kept]

    @property
    def bag(self):
        url = f"http://127.0.0.1:{self.server_port}/loki/api/v1/push"
        return {"endpoint": json.dumps({"url": url})}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.path == "/loki/api/v1/push"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for stream in body["streams"]:
            for _, line in stream["values"]:
                self.server.kept.append((stream["stream"], line))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def stand_in():
    with LokiStandIn() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def servers():
    """Two that take logs."""
    with stand_in() as first, stand_in() as second:
        yield first, second


@pytest.fixture
def pebble(tmp_path):
    """A client of a running Pebble, whose only service says one line after the other."""
    programs.ensure(["pebble"])
    env = {**os.environ, "PEBBLE": str(tmp_path)}
    process = subprocess.Popen(
        [programs.binary("pebble"), "run", "--create-dirs", "--hold"],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = ops.pebble.Client(str(tmp_path / ".pebble.socket"))
    try:
        assert waiting.eventually(lambda: _answers(client), 60)
        yield client
    finally:
        process.terminate()
        process.wait()


def _answers(client):
    try:
        client.get_system_info()
    except ops.pebble.ConnectionError:
        return False
    return True


class Related:
    """The data bags of Loki's units, and nothing else."""

    def __init__(self, **units):
        self._units = {name.replace("_", "/"): server.bag for name, server in units.items()}

    def unit_bags(self, _):
        return self._units

    def publish_unit(self, *_):
        pass


class Follower:
    leader = False


def forward(client, **units):
    """Have the charm's part bring Pebble up to date."""
    # Of Juju a container knows only the version.
    juju = types.SimpleNamespace(
        _juju_context=types.SimpleNamespace(version=ops.JujuVersion("3.6.0"))
    )
    container = ops.Container("lifecycle", juju, pebble_client=client)
    part.Observability(Follower(), Related(**units), container, TOPOLOGY).reconcile()


def test_lines_reach_loki_and_follow_it_when_it_moves(pebble, servers):
    first, second = servers
    script = 'n=0; while :; do n=$((n+1)); echo "{\\"line\\": $n}"; sleep 0.1; done'
    service = {"override": "replace", "command": f"sh -c '{script}'", "startup": "enabled"}
    pebble.add_layer("lifecycle", {"services": {"lifecycle": service}}, combine=True)
    forward(pebble, loki_0=first)
    pebble.replan_services()

    assert waiting.eventually(first.pushed, 60)
    labels, line = first.pushed()[0]
    assert json.loads(line)["line"] >= 1
    assert labels == LABELS

    forward(pebble, loki_1=second)
    assert waiting.eventually(lambda: len(second.pushed()) > 2, 60)
    before = len(first.pushed())
    known = len(second.pushed())
    assert waiting.eventually(lambda: len(second.pushed()) > known + 2, 60)
    assert len(first.pushed()) == before
