"""HTTP/2 frame by frame: a client that sends what it likes, and a service that gRPC is spoken to.

Libraries for HTTP refuse or mend what a test wants to send, and give a body away at its end.
"""

import contextlib
import dataclasses
import socket
import socketserver
import time

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from tests import gateway_client

_GRPC = ("content-type", "application/grpc")


@dataclasses.dataclass
class Stream:
    """The received part of the answer to a request."""

    headers: dict = dataclasses.field(default_factory=dict)
    trailers: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    has_ended: bool = False

    @property
    def status(self):
        """The status; 0 while there is none, which the gateway may leave it at."""
        return int(self.headers.get(":status", 0))


class Client:
    """One connection, plain or with TLS at a name; nothing that is sent is checked."""

    def __init__(self, port, *, tls="", timeout=15, address="127.0.0.1"):
        self._timeout = timeout
        place = (address, port)
        if tls:
            self._socket = gateway_client.secured(place, tls, "h2", timeout=timeout)
            assert self._socket.selected_alpn_protocol() == "h2"
        else:
            self._socket = socket.create_connection(place, timeout=timeout)
        self._streams = {}
        self._has_ended = False
        self._talk = h2.connection.H2Connection(
            h2.config.H2Configuration(
                header_encoding="utf-8",
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._talk.initiate_connection()
        self._flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def begin(self, fields, *, ends=True):
        """Send the head of a request; the number of its stream comes back."""
        number = self._talk.get_next_available_stream_id()
        self._streams[number] = Stream()
        self._talk.send_headers(number, fields, end_stream=ends)
        self._flush()
        return number

    def send(self, number, data, *, ends=False):
        """Send a part of a body."""
        self._talk.send_data(number, data, end_stream=ends)
        self._flush()

    def end(self, number, trailers=()):
        """Say that there is no more of a body, or what is said after it."""
        if trailers:
            self._talk.send_headers(number, [*trailers], end_stream=True)
        else:
            self._talk.end_stream(number)
        self._flush()

    def until(self, number, check=lambda stream: stream.has_ended):
        """Wait until a stream is as it should be, or has ended, or the time is over."""
        stream = self._streams[number]
        deadline = time.monotonic() + self._timeout
        while not (check(stream) or stream.has_ended or self._has_ended):
            if time.monotonic() > deadline:
                break
            self._receive()
        return stream

    def ask(self, fields):
        """Send a request without a body, and wait for the end of its answer."""
        return self.until(self.begin(fields))

    def _flush(self):
        with contextlib.suppress(OSError):
            self._socket.sendall(self._talk.data_to_send())

    def _receive(self):
        try:
            received = self._socket.recv(65536)
        except OSError:
            received = b""
        self._has_ended = not received
        try:
            events = self._talk.receive_data(received) if received else ()
        except h2.exceptions.ProtocolError:
            # h2 takes no answer after GOAWAY, which the gateway says while its routes change.
            self._has_ended = True
            return
        for event in events:
            self._take(event)
        self._flush()

    def _take(self, event):
        stream = self._streams.get(getattr(event, "stream_id", None))
        match event:
            case h2.events.ConnectionTerminated():
                self._has_ended = True
            case h2.events.ResponseReceived():
                stream.headers = dict(event.headers)
            case h2.events.TrailersReceived():
                stream.trailers = dict(event.headers)
            case h2.events.DataReceived():
                stream.body += event.data
                self._talk.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded() | h2.events.StreamReset():
                stream.has_ended = True


class Calls(socketserver.BaseRequestHandler):
    """A handler for `echo.serving` that says each message of gRPC again as soon as it is there."""

    def handle(self):
        """Answer what is asked on one connection."""
        talk = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        talk.initiate_connection()
        with contextlib.suppress(OSError):
            self.request.sendall(talk.data_to_send())
            while received := self.request.recv(65536):
                for event in talk.receive_data(received):
                    self._answer(talk, event)
                self.request.sendall(talk.data_to_send())

    def _answer(self, talk, event):
        match event:
            case h2.events.RequestReceived():
                asked = dict(event.headers)
                self.server.asked.append({"path": asked[":path"], "headers": asked})
                talk.send_headers(event.stream_id, [(":status", "200"), _GRPC])
            case h2.events.DataReceived():
                talk.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                talk.send_data(event.stream_id, event.data)
            case h2.events.StreamEnded():
                talk.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)


def message(text):
    """Frame a message as gRPC does (gRPC over HTTP/2, Length-Prefixed-Message)."""
    return b"\0" + len(text).to_bytes(4, "big") + text
