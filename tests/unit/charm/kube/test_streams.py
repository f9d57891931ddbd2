"""One request over the frames of a port-forward."""

import queue
import ssl

import httpx2
import pytest
from httpx2 import websockets

from istio_integrator.kube import cluster, errors, streams

GREETING = (b"\x00\x98\x3a", b"\x01\x98\x3a")


class Socket:
    """The other end of a WebSocket, which has its frames ready."""

    def __init__(self, *frames, ends=True, breaks=()):
        self.sent = b""
        self.breaks = list(breaks)
        self._frames = list(frames)
        self._ends = ends

    def send_bytes(self, data):
        assert data[0] == 0
        if self.breaks:
            raise self.breaks.pop()
        self.sent += data[1:]

    def receive_bytes(self, timeout):
        if self._frames:
            return self._frames.pop(0)
        raise websockets.WebSocketDisconnect(1000) if self._ends else queue.Empty


def get(monkeypatch, socket):
    class Client:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def websocket(self, address, **_):
            assert address == "/api/v1/namespaces/a/pods/p/portforward"
            if isinstance(socket, int):
                raise websockets.WebSocketUpgradeError(httpx2.Response(socket))
            return self._session()

        def _session(self):
            class Session:
                def __enter__(self):
                    return socket

                def __exit__(self, *_):
                    pass

            return Session()

    monkeypatch.setattr(streams.client_adapter, "Client", lambda *_: Client())
    api = cluster.Cluster(type("C", (), {"config": None})())
    return streams.Streams(api).get("a", "p", 15000, "/stats")


def test_answer_comes_in_whatever_pieces(monkeypatch):
    text = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nTransfer-Encoding: chunked\r\n\r\n"
    text += b"5\r\nhello\r\n0\r\n\r\n"
    frames = [b"\x00" + text[at : at + 7] for at in range(0, len(text), 7)]
    socket = Socket(*GREETING, *frames, ends=False)
    answer = get(monkeypatch, socket)
    assert (answer.status, answer.headers["location"], answer.text) == (302, "/x", "hello")
    assert socket.sent.startswith(b"GET /stats HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("socket", "words"),
    [
        pytest.param(Socket(*GREETING, b"\x01connection refused"), "refused", id="nobody-listens"),
        pytest.param(Socket(*GREETING), "closed connection", id="ended"),
        pytest.param(Socket(*GREETING, ends=False), "in time", id="silent"),
        pytest.param(Socket(*GREETING, b"\x00SSH-2.0\r\n"), "SSH-2.0", id="not-http"),
    ],
)
def test_stream_without_an_answer_says_why(monkeypatch, socket, words):
    with pytest.raises(errors.UnreachableError, match=words):
        get(monkeypatch, socket)


BREAKS = [
    ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
    websockets.WebSocketNetworkError(),
    httpx2.ReadError("reset"),
]


@pytest.mark.parametrize("broken", BREAKS, ids=lambda error: type(error).__name__)
def test_a_connection_that_breaks_is_made_once_more(monkeypatch, broken):
    frames = (*GREETING, b"\x00HTTP/1.1 200 OK\r\n\r\nhello")
    assert get(monkeypatch, Socket(*frames, breaks=[broken])).text == "hello"
    with pytest.raises(errors.UnreachableError):
        get(monkeypatch, Socket(*frames, breaks=[broken, broken]))


def test_missing_right_is_told_apart(monkeypatch):
    with pytest.raises(errors.ForbiddenError, match="pods/portforward"):
        get(monkeypatch, 403)
    with pytest.raises(errors.ApiError, match="404"):
        get(monkeypatch, 404)
