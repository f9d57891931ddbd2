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
)
_BARE = f"GET {TARGET} HTTP/1.0\r\nHost: {HOST}\r\n\r\n"

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
]
"""Ways to ask."""
