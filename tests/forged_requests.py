"""Requests by which somebody who may not see `/pipeline/x` of a host may try to: none leads there.

`/dex/` is a path that is open to everybody.
"""

import pytest

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
    "//pipeline/x",
    "///pipeline/x",
    "/./pipeline/x",
    "/dex/../pipeline/x",
    "/dex/./../pipeline/x",
    "/dex/%2e%2e/pipeline/x",
    "/dex/%2E%2E/pipeline/x",
    "/dex/.%2e/pipeline/x",
    "/dex%2f..%2fpipeline/x",
    "/dex/..%2fpipeline/x",
    "/dex/%252e%252e/pipeline/x",
    "/dex/..%5cpipeline/x",
    "/dex\\..\\pipeline\\x",
    "/dex/..;/pipeline/x",
    "/dex;/../pipeline/x",
    "/dex/%00/../../pipeline/x",
    "/dex/%c0%ae%c0%ae/pipeline/x",
    "/pipeline;x/y",
    "/pipeline;/dex/x",
    "/pipeline/x?/dex/",
    "/pipeline/x%3f/dex/",
    "/pipeline/x%23/dex/",
    "/pipeline/x/../../pipeline/dex",
    "/PIPELINE/x",
    "/pipeline%2fx",
    "/%70ipeline/x",
    "\\pipeline\\x",
    "/\\pipeline/x",
    "/%09/pipeline/x",
    "/dex//../pipeline/x",
    "/dex/..//pipeline/x",
    "//dex//..//pipeline/x",
    "/dex/%2e/%2E%2e/pipeline/x",
    "/dex%2F%2E%2E%2Fpipeline%2Fx",
    "/dex/%5c..%5cpipeline/x",
    "/dex/..%ef%bc%8fpipeline/x",
    "/dex/%252f..%252f..%252fpipeline/x",
    "/dex/x#/../pipeline/x",
    "/pipeline/x#/dex/",
    "/pipeline/./x",
    "/pipeline/dex/../x",
    "/pipeline//x",
    "/dex/../../../pipeline/x",
    "/Pipeline/X",
    "/pipeline/x?/../../dex/",
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
"""What ends a body in chunks, and goes on with a request."""
_BARE = f"GET {TARGET} HTTP/1.0\r\nHost: {HOST}\r\n\r\n"


def _hidden(*lines):
    """Write a request with another in its body, for who reads the body's length differently."""
    return head("/dex/none", method="POST", more=lines) + _BODY


HEADS = [
    pytest.param(head(version="HTTP/1.0"), id="HTTP/1.0"),
    pytest.param(_BARE, id="HTTP/1.0, no more"),
    pytest.param(head(host=f"{HOST}:80"), id="host with port"),
    pytest.param(head(host=f"{HOST}:9999"), id="host with another port"),
    pytest.param(head(host=HOST.upper()), id="upper case"),
    pytest.param(head(host=f"{HOST.upper()}:80"), id="upper case with port"),
    pytest.param(head(host=f"{HOST}."), id="dot at the end"),
    pytest.param(head(host=f"{HOST}\r\nHost: {TENANT}"), id="two hosts"),
    pytest.param(head(host=f"{TENANT}\r\nHost: {HOST}"), id="two hosts, turned"),
    pytest.param(head(f"http://{HOST}{TARGET}", TENANT), id="absolute form"),
    pytest.param(head(f"HTTP://{HOST.upper()}:80{TARGET}", TENANT), id="absolute, upper case"),
    pytest.param(head(f"http://user@{HOST}{TARGET}", TENANT), id="absolute, with a user"),
    pytest.param(head(more=_ELSEWHERE), id="host and path in headers"),
    pytest.param(head(method="POST"), id="another method"),
    pytest.param(head(method="OPTIONS"), id="preflight"),
    pytest.param(head("*", method="OPTIONS"), id="asterisk"),
    pytest.param(head(f"{HOST}:80", method="CONNECT"), id="tunnel"),
    pytest.param(head(more=_UPGRADE), id="upgrade to h2c"),
    pytest.param(head(more=_WEBSOCKET), id="WebSocket"),
    pytest.param(f"GET {TARGET}\r\n\r\n", id="HTTP/0.9"),
    pytest.param(f"GET {TARGET} HTTP/1.0\r\n\r\n", id="HTTP/1.0 without a host"),
    pytest.param(head(version="HTTP/1.0", host=f"{HOST}:80"), id="HTTP/1.0, host with port"),
    pytest.param(head(host=f"{HOST}.:80"), id="dot at the end, with port"),
    pytest.param(head(host=f"{HOST}:80:80"), id="host with two ports"),
    pytest.param(head(host=f"user@{HOST}"), id="host with a user"),
    pytest.param(head(host=f"{HOST}/dex/"), id="host with a path"),
    pytest.param(head(host=""), id="empty host"),
    pytest.param(head(f"https://{HOST}{TARGET}", TENANT), id="absolute, https"),
    pytest.param(head(f"http://{HOST}.{TARGET}", TENANT), id="absolute, dot at the end"),
    pytest.param(head(f"http://{HOST}/dex/..{TARGET}", TENANT), id="absolute, with dots"),
    pytest.param(head(f"http://{HOST}/{TARGET}", TENANT), id="absolute, with two slashes"),
    pytest.param(head(f"http://{HOST}{TARGET}", version="HTTP/1.0"), id="absolute, HTTP/1.0"),
    pytest.param(head(method="get"), id="method in lower case"),
    pytest.param(head(method="HEAD"), id="HEAD"),
    pytest.param(head(method="TRACE"), id="TRACE"),
    pytest.param(head(more=("kubeflow-userid : admin",)), id="header with a space"),
    pytest.param(head(more=("X-A: b", " kubeflow-userid: admin")), id="folded header"),
    pytest.param(_hidden("Content-Length: 0", "Transfer-Encoding: chunked"), id="two lengths"),
    pytest.param(_hidden("Content-Length: 0", "Content-Length: 5"), id="two other lengths"),
    pytest.param(_hidden("Transfer-Encoding: x", "Content-Length: 5"), id="unknown coding"),
    pytest.param(_hidden("Transfer-Encoding: chunked, x"), id="coding after chunks"),
    pytest.param(_hidden("Transfer_Encoding: chunked", "Content-Length: 0"), id="_ in length"),
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

FRAMES = [
    *(pytest.param(fields(path), id=path) for path in PATHS),
    pytest.param(fields(host=f"{HOST}:9999"), id="another port"),
    pytest.param(fields(host=HOST.upper()), id="upper case"),
    pytest.param(fields(host=f"{HOST}."), id="dot at the end"),
    pytest.param(fields(host=f"user@{HOST}"), id="with a user"),
    pytest.param(fields(host=TENANT, more=[("host", HOST)]), id="host beside authority"),
    pytest.param(fields(more=[("host", TENANT)]), id="another host beside authority"),
    pytest.param(_without(":authority", ("host", HOST)), id="host before pseudo-headers"),
    pytest.param([*_without(":authority"), ("host", HOST)], id="host in place of authority"),
    pytest.param(_without(":authority", (":authority", TENANT), (":authority", HOST)), id="two"),
    pytest.param(_without(":path", *_TWO_PATHS), id="two paths"),
    pytest.param(_without(":path", *reversed(_TWO_PATHS)), id="two paths, turned"),
    pytest.param(_without(":path"), id="no path"),
    pytest.param(fields(f"http://{HOST}{TARGET}", TENANT), id="absolute form"),
    pytest.param(fields(TARGET[1:]), id="no slash"),
    pytest.param(_without(":scheme", (":scheme", "https")), id="https"),
    pytest.param(_without(":scheme", (":scheme", "x")), id="unknown scheme"),
    pytest.param(fields(method="POST", more=[("content-length", "5")]), id="no body"),
    pytest.param(fields(method="CONNECT", more=[(":protocol", "websocket")]), id="WebSocket"),
    pytest.param([(":method", "CONNECT"), (":authority", f"{HOST}:80")], id="tunnel"),
    pytest.param(fields(more=[_CLAIM, _CLAIM]), id="claimed twice"),
    pytest.param(fields(more=[("Kubeflow-UserID", "admin")]), id="claimed in upper case"),
    pytest.param(fields(more=[("kubeflow_userid", "admin")]), id="claimed with _"),
    pytest.param(fields(more=[("kubeflow_groups", "admin"), _CLAIM]), id="claimed groups"),
    pytest.param(fields(more=[("kubeflow-userid ", "admin")]), id="claimed with a space"),
    pytest.param(fields(more=[("kubeflow-userid:", "admin")]), id="claimed with a colon"),
    pytest.param(fields(more=[("x-a", "b\r\nkubeflow-userid: admin")]), id="claimed in a value"),
    pytest.param(fields(more=[("x-a: b\r\nkubeflow-userid", "admin")]), id="claimed in a name"),
    pytest.param(fields(more=[("connection", "kubeflow-userid"), _CLAIM]), id="hop by hop"),
    pytest.param(fields(more=[("transfer-encoding", "chunked"), _CLAIM]), id="chunks"),
    pytest.param(fields(more=[("trailer", "kubeflow-userid"), _CLAIM]), id="trailer"),
]
"""The same in HTTP/2, which a client that checks what it sends would not send."""
