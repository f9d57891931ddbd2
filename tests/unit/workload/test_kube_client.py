"""Credentials that rotate on disk, paths, and errors by what to do about them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell.kube import client, errors, streams

from testbed import certificates
from tests import workload_access
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until


def credentials(token_file: Path | None, token: str | None = None) -> client.Access:
    return client.Access(server="", token=token, token_file=token_file)


def test_token_file_is_read_again_after_the_api_refused_it(tmp_path: Path):
    path = tmp_path / "token"
    path.write_text("first\n")
    subject = credentials(path)
    assert subject.headers() == {"Authorization": "Bearer first"}

    path.write_text("second\n")
    assert subject.headers() == {"Authorization": "Bearer first"}
    subject.expire()
    assert subject.headers() == {"Authorization": "Bearer second"}


def test_token_file_is_read_again_with_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "token"
    path.write_text("first")
    subject = credentials(path)
    subject.headers()
    path.write_text("second")
    subject._read_at -= client.TOKEN_MAX_AGE + 1
    assert subject.headers() == {"Authorization": "Bearer second"}


def test_token_file_that_is_away_for_a_moment_keeps_the_old_token(tmp_path: Path):
    path = tmp_path / "token"
    path.write_text("first")
    subject = credentials(path)
    subject.headers()
    path.unlink()
    subject.expire()
    assert subject.headers() == {"Authorization": "Bearer first"}


def test_user_without_token_sends_no_header():
    assert credentials(None).headers() == {}


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param((types.Pod,), "/api/v1/pods", id="all"),
        pytest.param((types.Pod, "ns", "x"), "/api/v1/namespaces/ns/pods/x", id="one"),
        pytest.param(
            (types.Pod, "ns", "x", "exec"), "/api/v1/namespaces/ns/pods/x/exec", id="subresource"
        ),
        pytest.param((types.Namespace, None, "ns"), "/api/v1/namespaces/ns", id="global"),
        pytest.param(
            (resources.Deployment, "ns", "d"),
            "/apis/apps/v1/namespaces/ns/deployments/d",
            id="group",
        ),
    ],
)
def test_path_of_a_resource(arguments: tuple[object, ...], want: str):
    assert client.path(*arguments) == want  # type: ignore[arg-type]


def test_access_outside_of_a_pod_says_so():
    with pytest.raises(errors.NoAccess, match="no pod with a ServiceAccount"):
        client.of_pod()


@pytest.mark.parametrize("error", [TimeoutError(), OSError("gone"), ConnectionResetError()])
def test_errors_of_the_network_become_unreachable(error: Exception):
    with pytest.raises(errors.Unreachable), errors.mapped():
        raise error


def test_answer_that_is_no_status_keeps_its_beginning():
    error = errors.from_response(502, b"<html>bad gateway</html>", "soon")
    assert (error.code, error.retry_after) == (502, None)
    assert "bad gateway" in error.message


def test_delays_grow_to_a_limit_and_are_spread():
    for failures, least in zip((1, 2, 3, 4, 5, 1000), (1, 2, 4, 8, 8, 8), strict=True):
        delays = [errors.delay(failures, initial=1, maximum=8) for _ in range(50)]
        assert least <= min(delays)
        assert least + 1 < max(delays) <= least + 2
        assert len(set(delays)) > 1


@pytest.mark.parametrize(
    ("host", "want"),
    [
        pytest.param("10.152.183.1", "https://10.152.183.1:443", id="IPv4"),
        pytest.param("fd98::1", "https://[fd98::1]:443", id="IPv6"),
    ],
)
def test_pod_gets_in_by_its_service_account(
    host: str, want: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    authority = certificates.Authority(tmp_path)
    (tmp_path / "ca.crt").write_text(authority.pair.certificate.read_text())
    (tmp_path / "token").write_text("the token\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    found = client.of_pod(tmp_path)

    assert (found.server, found.token, found.token_file) == (want, "the token", tmp_path / "token")
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert found.tls.check_hostname
    # The cluster's authority, and none of the public ones.
    assert [each["subject"] for each in found.tls.get_ca_certs()] == [
        each["issuer"] for each in found.tls.get_ca_certs()
    ]
    assert len(found.tls.get_ca_certs()) == 1


@pytest.fixture
async def deaf(tmp_path: Path) -> AsyncIterator[client.Client]:
    """A client of an API server that starts an answer and reads nothing more, not a goodbye."""
    authority = certificates.Authority(tmp_path)
    pair = authority.server("server", ["localhost"], ["127.0.0.1"])
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(pair.certificate, pair.key)
    leave = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await writer.drain()
        writer.transport.pause_reading()
        await leave.wait()
        writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=served)
    port = server.sockets[0].getsockname()[1]
    user = authority.client("user", "someone")
    address = f"https://127.0.0.1:{port}"
    text = certificates.kubeconfig(address, authority.pair.certificate, user)
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    yield workload_access.connect(file)
    leave.set()
    server.close()
    await server.wait_closed()


async def ask(connection: client.Client) -> None:
    await connection.request("GET", "/api/v1/pods")


async def watch(connection: client.Client) -> None:
    async with connection.stream("/api/v1/pods", params={}, idle=60):
        pass


async def forward(connection: client.Client) -> None:
    async with streams.port_forward(connection, "kubeflow", "job-x", 15020, deadline=5):
        pass


@pytest.fixture
def cluster(cluster: FakeApiserver) -> FakeApiserver:
    cluster.put("pods", pods.pod_json())
    return cluster


@pytest.mark.parametrize("use", [ask, watch, forward])
async def test_token_that_is_refused_is_read_anew_for_the_next_try(
    cluster: FakeApiserver, tmp_path: Path, use: Callable[[client.Client], Awaitable[None]]
):
    path = tmp_path / "token"
    path.write_text(cluster.token)
    way_in = client.Access(server=cluster.client.server, token=cluster.token, token_file=path)
    connection = client.Client(way_in)
    await use(connection)

    path.write_text("second")
    cluster.failures = [("/pods", 403, {})]
    with pytest.raises(errors.StatusError):
        await use(connection)
    await use(connection)  # what is forbidden is so to whoever the token says

    cluster.token = "second"
    with pytest.raises(errors.StatusError) as raised:
        await use(connection)
    assert raised.value.code == 401
    await use(connection)
    await connection.close()


@pytest.mark.parametrize("use", [ask, watch])
async def test_answers_from_300_on_are_errors(
    cluster: FakeApiserver, use: Callable[[client.Client], Awaitable[None]]
):
    cluster.failures = [("/pods", 299, {}), ("/pods", 300, {})]
    await use(cluster.client)
    with pytest.raises(errors.StatusError) as raised:
        await use(cluster.client)
    assert raised.value.code == 300


async def test_server_of_no_known_authority_is_checked_by_those_of_the_system():
    connector = client.Connector(None)
    assert connector._ssl is True
    await connector.close()


async def test_request_without_an_answer_ends(deaf: client.Client):
    async with asyncio.timeout(5):
        with pytest.raises(errors.Unreachable):
            await deaf.request("GET", "/asked", timeout=0.05)
    await deaf.close()


async def test_closing_leaves_no_connection_to_a_server_that_says_no_goodbye(
    deaf: client.Client, monkeypatch: pytest.MonkeyPatch
):
    opened: list[asyncio.trsock.TransportSocket] = []
    connect = asyncio.get_running_loop().create_connection

    async def connected(*args: Any, **options: Any) -> Any:
        transport, protocol = await connect(*args, **options)
        opened.append(transport.get_extra_info("socket"))
        return transport, protocol

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connected)
    async with deaf.stream("/watched", params={}, idle=60) as content:
        assert await content.readany()
    waiting = asyncio.create_task(deaf.request("GET", "/asked"))
    await until(lambda: len(opened) == 2)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting

    await deaf.close()

    assert [each for each in opened if each.fileno() != -1] == []
