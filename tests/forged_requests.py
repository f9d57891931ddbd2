"""Requests that try to reach `/pipeline/x` without a session: none may reach it.

`/dex/` is a path that is open to everybody.
"""

from tests.gateway_client import HOST, TENANT

TARGET = "/pipeline/x"

CLAIMS = [
    "kubeflow-userid: admin",
    "Kubeflow-UserID: admin",
    # To WSGI and CGI applications it is the same name.
    "kubeflow_userid: admin",
    "kubeflow-userid: admin\r\nkubeflow-userid: admin",
    "Kubeflow_UserID: admin\r\nkubeflow-userid: admin",
    "kubeflow-userid:\tadmin",
    "Connection: kubeflow-userid\r\nkubeflow-userid: admin",
    "KUBEFLOW-USERID: admin",
    "kubeflow-userid:\r\nkubeflow-userid: admin",
    "kubeflow-userid: admin\r\nkubeflow-userid:",
    "kubeflow-groups: admin",
    "Kubeflow_Groups: admin\r\nKUBEFLOW-GROUPS: admin",
]
"""Headers by which a client says who it is."""

PATHS = [
    *("//pipeline/x", "///pipeline/x", "/./pipeline/x", "/dex/../pipeline/x"),
    *("/dex/./../pipeline/x", "/dex/%2e%2e/pipeline/x", "/dex/%2E%2E/pipeline/x"),
    *("/dex/.%2e/pipeline/x", "/dex%2f..%2fpipeline/x", "/dex/..%2fpipeline/x"),
    *("/dex/%252e%252e/pipeline/x", "/dex/..%5cpipeline/x", "/dex\\..\\pipeline\\x"),
    *("/dex/..;/pipeline/x", "/dex;/../pipeline/x", "/dex/%00/../../pipeline/x"),
    *("/dex/%c0%ae%c0%ae/pipeline/x", "/pipeline;x/y", "/pipeline;/dex/x", "/pipeline/x?/dex/"),
    *("/pipeline/x%3f/dex/", "/pipeline/x%23/dex/", "/pipeline/x/../../pipeline/dex"),
    *("/PIPELINE/x", "/pipeline%2fx", "/%70ipeline/x", "\\pipeline\\x", "/\\pipeline/x"),
    *("/%09/pipeline/x", "/dex//../pipeline/x", "/dex/..//pipeline/x", "//dex//..//pipeline/x"),
    *("/dex/%2e/%2E%2e/pipeline/x", "/dex%2F%2E%2E%2Fpipeline%2Fx", "/dex/%5c..%5cpipeline/x"),
    *("/dex/..%ef%bc%8fpipeline/x", "/dex/%252f..%252f..%252fpipeline/x", "/dex/x#/../pipeline/x"),
    *("/pipeline/x#/dex/", "/pipeline/./x", "/pipeline/dex/../x", "/pipeline//x"),
    *("/dex/../../../pipeline/x", "/Pipeline/X", "/pipeline/x?/../../dex/"),
]
"""Ways to write the path."""


def head(target=TARGET, host=HOST, *, version="HTTP/1.1", method="GET", more=()):
    """Write a request."""
    lines = [f"{method} {target} {version}", f"Host: {host}", "Connection: close", *more]
    return "\r\n".join(lines) + "\r\n\r\n"


_UPGRADE = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAAQCAAAA",
)
_WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
_ELSEWHERE = (
    f"X-Forwarded-Host: {TENANT}",
    f"Forwarded: host={TENANT}",
    "X-Envoy-Original-Path: /dex/auth",
    "X-Forwarded-Uri: /dex/auth",
    "X-Original-Url: /dex/auth",
    "X-Rewrite-Url: /dex/auth",
    "X-HTTP-Method-Override: GET",
)
_BODY = f"0\r\n\r\nGET {TARGET} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
"""A chunked body whose end is followed by a second request."""


def _hidden(*lines):
    """Write a request with another in its body, for who reads the body's length differently."""
    return head("/dex/none", method="POST", more=lines) + _BODY


_HOSTS = (
    *(f"{HOST}:80", f"{HOST}:9999", HOST.upper(), f"{HOST.upper()}:80", f"{HOST}.", f"{HOST}.:80"),
    *(f"{HOST}\r\nHost: {TENANT}", f"{TENANT}\r\nHost: {HOST}"),
    *(f"{HOST}:80:80", f"user@{HOST}", f"{HOST}/dex/", ""),
)
_ABSOLUTE = (
    *(
        f"http://{HOST}{TARGET}",
        f"HTTP://{HOST.upper()}:80{TARGET}",
        f"http://user@{HOST}{TARGET}",
    ),
    *(f"https://{HOST}{TARGET}", f"http://{HOST}.{TARGET}", f"http://{HOST}/{TARGET}"),
    f"http://{HOST}/dex/..{TARGET}",
)
_LENGTHS = (
    ("Content-Length: 0", "Transfer-Encoding: chunked"),
    ("Content-Length: 0", "Content-Length: 5"),
    ("Transfer-Encoding: x", "Content-Length: 5"),
    ("Transfer-Encoding: chunked, x",),
    ("Transfer_Encoding: chunked", "Content-Length: 0"),
)
_METHODS = ("POST", "OPTIONS", "get", "HEAD", "TRACE")
HEADS = [
    *(head(host=host) for host in _HOSTS),
    *(head(target, TENANT) for target in _ABSOLUTE),
    *(head(method=method) for method in _METHODS),
    *(_hidden(*lines) for lines in _LENGTHS),
    head(version="HTTP/1.0"),
    head(version="HTTP/1.0", host=f"{HOST}:80"),
    head(f"http://{HOST}{TARGET}", version="HTTP/1.0"),
    f"GET {TARGET} HTTP/1.0\r\nHost: {HOST}\r\n\r\n",
    f"GET {TARGET} HTTP/1.0\r\n\r\n",
    f"GET {TARGET}\r\n\r\n",
    head("*", method="OPTIONS"),
    head(f"{HOST}:80", method="CONNECT"),
    head(more=_ELSEWHERE),
    head(more=_UPGRADE),
    head(more=_WEBSOCKET),
    head(more=("kubeflow-userid : admin",)),
    head(more=("X-A: b", " kubeflow-userid: admin")),
]
"""Ways to ask."""


def fields(target=TARGET, host=HOST, *, method="GET", more=()):
    """Write a request of HTTP/2."""
    pseudo = {":method": method, ":scheme": "http", ":authority": host, ":path": target}
    return [*pseudo.items(), *more]


def _without(name, *more):
    return [*more, *(field for field in fields() if field[0] != name)]


_CLAIM = ("kubeflow-userid", "admin")
_TWO_PATHS = ((":path", "/dex/none"), (":path", TARGET))

_MORE = (
    *([("host", TENANT)], [_CLAIM, _CLAIM], [("kubeflow_groups", "admin"), _CLAIM]),
    *([("Kubeflow-UserID", "admin")], [("kubeflow_userid", "admin")]),
    *([("kubeflow-userid ", "admin")], [("kubeflow-userid:", "admin")]),
    [("x-a", "b\r\nkubeflow-userid: admin")],
    [("x-a: b\r\nkubeflow-userid", "admin")],
    [("connection", "kubeflow-userid"), _CLAIM],
    [("transfer-encoding", "chunked"), _CLAIM],
    [("trailer", "kubeflow-userid"), _CLAIM],
)
FRAMES = [
    *(fields(path) for path in PATHS),
    *(fields(host=host) for host in (f"{HOST}:9999", HOST.upper(), f"{HOST}.", f"user@{HOST}")),
    *(fields(more=more) for more in _MORE),
    fields(host=TENANT, more=[("host", HOST)]),
    fields(f"http://{HOST}{TARGET}", TENANT),
    fields(TARGET[1:]),
    fields(method="POST", more=[("content-length", "5")]),
    fields(method="CONNECT", more=[(":protocol", "websocket")]),
    _without(":authority", ("host", HOST)),
    [*_without(":authority"), ("host", HOST)],
    _without(":authority", (":authority", TENANT), (":authority", HOST)),
    _without(":path", *_TWO_PATHS),
    _without(":path", *reversed(_TWO_PATHS)),
    _without(":path"),
    _without(":scheme", (":scheme", "https")),
    _without(":scheme", (":scheme", "x")),
    [(":method", "CONNECT"), (":authority", f"{HOST}:80")],
]
"""The same in HTTP/2, which a client that checks what it sends would not send."""
