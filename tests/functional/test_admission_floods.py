"""The webhook's real process under floods from one address, while an API server asks."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket

import pytest
from sidecar_lifecycle.shell import serving

from tests import waiting
from tests.functional import floods, loopback_webhook

MOST_MEMORY = 120
"""MiB: the Deployment's limit is 128."""
MEBIBYTE = 1024 * 1024
LARGEST = 3 * MEBIBYTE
SETTINGS = {
    "application": "a",
    "model": "m",
    "excluded-outbound-ports": [{"ports": [5432]}],
    "image-registries": [{"pods": "!original", "prefixes": {"docker.io": "mirror.example/hub"}}],
}


@pytest.fixture
def server(tmp_path):
    with loopback_webhook.serving(tmp_path / "webhook", SETTINGS) as server:
        yield server


def body(length):
    return floods.post(length) + b'"' + b"x" * (length - 2) + b'"'


def review(pod):
    whole = {**floods.REVIEW, "request": {**floods.REVIEW["request"], "object": pod}}
    return json.dumps(whole, separators=(",", ":")).encode()


def asking(pod):
    data = review(pod)
    return floods.post(len(data)) + data


PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"
LONG_ANSWER = asking(
    {"metadata": {"annotations": {PORTS: "x" * 250_000}}, "spec": {"containers": [{}]}}
)
FLOODS = {
    "idle connections": (2000, b""),
    "bodies of 8 MiB": (200, body(8 * MEBIBYTE)),
    "bodies of 3 MiB": (100, body(LARGEST)),
    "bodies that stay incomplete": (200, body(LARGEST)[: -MEBIBYTE // 2]),
    "heads that stay incomplete": (400, floods.post(1)[:-2] + b"a: b\r\n" * 5),
    "heads with long lines": (400, floods.post(1)[:-2] + b"a: " + b"x" * 60_000),
    "heads with many lines": (400, floods.post(1)[:-2] + b"a: b\r\n" * 10_000),
    "bodies that are packed": (
        200,
        floods.post(9).replace(b"Host", b"Content-Encoding: gzip\r\nHost") + b"\x1f\x8b" * 4,
    ),
    "answers that nobody takes": (100, LONG_ANSWER * 10),
    "no HTTP": (400, b"\x16\x03\x01" * 1000),
    "chunks": (
        200,
        floods.post(1).replace(b"Content-Length: 1", b"Transfer-Encoding: chunked")
        + b"ffffff\r\n",
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_from_one_address_neither_fills_memory_nor_keeps_reviews_waiting(server, name):
    count, opening = FLOODS[name]
    with floods.ApiServer(server) as api, floods.Flood(server) as flood:
        assert waiting.eventually(lambda: api.waits, 10)
        flood.hold(count, opening)
        asked = len(api.waits)
        assert flood.left() <= serving.MOST_CONNECTIONS
        assert waiting.eventually(lambda: len(api.waits) >= asked + 20, 30)
        assert waiting.eventually(lambda: not flood.left(), 2 * serving.IDLE_SECONDS)
        now, most = floods.resident(server)

    print(f"{name}: {now} MiB, at most {most}; longest wait {max(api.waits):.3f} s")
    assert most < MOST_MEMORY
    assert api.failures == []
    assert server.process.poll() is None
    assert "Traceback" not in (server.directory / "log").read_text()


def test_a_flood_of_the_port_for_health_keeps_no_kubelet_out(server):
    with floods.Flood(server) as flood:
        flood.hold(1000, port=server.health)

        assert server.get("/livez")[0] == server.get("/readyz")[0] == 200
        assert waiting.eventually(lambda: not flood.left(), 2 * serving.IDLE_SECONDS)
    assert floods.resident(server)[1] < MOST_MEMORY


def test_connections_without_a_handshake_are_closed(server):
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(20)
        ]

        assert waiting.eventually(
            lambda: all(map(floods.is_closed, opened)), 2 * serving.HANDSHAKE_SECONDS
        )


def containers(*entries):
    return {"metadata": {}, "spec": {"containers": entries}}


COSTLY = {
    "labels": {
        "metadata": {"labels": dict.fromkeys(map(hex, range(180_000)), "")},
        "spec": {"containers": []},
    },
    "containers": containers(*[{}] * 900_000),
    "images": containers(*[{"image": "a"}] * 180_000),
    "an image of dots": containers({"image": "." * 2_000_000}),
    "a long annotation": {
        "metadata": {"annotations": {PORTS: "x" * 2_000_000}},
        "spec": {"containers": [{}]},
    },
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_pod_that_would_cost_much_memory_is_left_as_it_is(server, name):
    with floods.ApiServer(server) as api:
        for _ in range(10):
            connection = http.client.HTTPConnection("webhook", timeout=floods.PATIENCE)
            with floods.connect(server) as connection.sock:
                connection.request("POST", "/mutate/labelled", review(COSTLY[name]))
                response = json.loads(connection.getresponse().read())["response"]
            assert response["allowed"] is True
            assert "patch" not in response
            assert response["warnings"][0].startswith("istio-integrator")

    assert floods.resident(server)[1] < MOST_MEMORY
    assert api.failures == []


def test_an_api_server_may_ask_for_two_hundred_reviews_at_once(server):
    data = review(floods.POD)
    with floods.Flood(server) as flood:
        flood.hold(200)
        for connection in flood.sockets:
            connection.sendall(floods.post(len(data)) + data)
        answers = [http.client.HTTPResponse(connection) for connection in flood.sockets]
        for answer in answers:
            answer.begin()

        assert len(answers) == 200
        assert all(floods.patch(answer) for answer in answers)
