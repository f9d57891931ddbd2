"""A collector of OpenTelemetry traces by HTTP, as small as it can be."""

import base64
import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2


class Collector:
    """The received traces, and the address that receives them."""

    def __init__(self) -> None:
        self.url = ""
        self.resources: list[dict[str, str]] = []
        self.spans: list[trace_pb2.Span] = []

    @property
    def base(self) -> str:
        """The URL as the relation `tracing` has it."""
        return self.url.removesuffix("/v1/traces")

    def traces(self, name: str) -> list[list[trace_pb2.Span]]:
        """Return the spans of each trace whose first span has a name."""
        ids = {span.trace_id for span in self.spans if span.name == name}
        return [[span for span in self.spans if span.trace_id == each] for each in ids]

    def take(self, body: bytes) -> None:
        """Read a request, in the JSON of OTLP."""
        request = trace_service_pb2.ExportTraceServiceRequest()
        json_format.ParseDict(json.loads(body, object_hook=_with_plain_ids), request)
        for each in request.resource_spans:
            self.resources.append(
                {one.key: one.value.string_value for one in each.resource.attributes}
            )
            self.spans += [span for scope in each.scope_spans for span in scope.spans]


def _with_plain_ids(obj: dict[str, Any]) -> dict[str, Any]:
    """Write ids as protobuf's own JSON does; that of OTLP has them in hexadecimal digits."""
    for key in obj.keys() & {"traceId", "spanId", "parentSpanId"}:
        obj[key] = base64.b64encode(bytes.fromhex(obj[key])).decode()
    return obj


@contextlib.contextmanager
def collecting(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Collector]:
    """Take traces while the block runs."""
    collector = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_json = self.headers["Content-Type"] == "application/json"
            if self.path == "/v1/traces" and is_json:
                collector.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as there
            """Say nothing."""

    server = http.server.ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    collector.url = f"{'https' if tls else 'http'}://{host}:{server.server_address[1]}/v1/traces"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
