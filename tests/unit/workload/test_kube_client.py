"""Credentials that rotate on disk, paths, and errors by what to do about them."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sidecar_lifecycle.shell.kube import client, errors, streams

from testbed import certificates
from tests.unit.cases import cases
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver


def test_delays_grow_to_a_limit_and_are_spread():
    for failures, least in zip((1, 2, 3, 4, 5, 1000), (1, 2, 4, 8, 8, 8), strict=True):
        delays = [errors.compute_delay(failures, initial=1, maximum=8) for _ in range(50)]
        assert least <= min(delays)
        assert least + 1 < max(delays) <= least + 2
        assert len(set(delays)) > 1


@cases(
    ("host", "want"),
    ipv4=("10.152.183.1", "https://10.152.183.1:443"),
    ipv6=("fd98::1", "https://[fd98::1]:443"),
)
def test_pod_gets_in_by_its_service_account(
    host: str, want: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    authority = certificates.Authority(tmp_path)
    (tmp_path / "ca.crt").write_text(authority.pair.certificate.read_text())
    (tmp_path / "token").write_text("the token\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    found = client.connect_from_pod(tmp_path)

    assert found.server == want
    assert found._make_headers() == {"Authorization": "Bearer the token"}
    tls = found._tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert tls.check_hostname
    # The cluster's authority, and none of the public ones.
    (trusted,) = tls.get_ca_certs()
    assert trusted["subject"] == trusted["issuer"]

    (tmp_path / "token").unlink()
    with pytest.raises(ValueError, match=r"no cluster to connect to: .*token"):
        client.connect_from_pod(tmp_path)


async def ask(connection: client.Client) -> None:
    await connection.request("GET", "/api/v1/pods")


async def watch(connection: client.Client) -> None:
    async with connection.open_stream("/api/v1/pods", params={}, idle=60):
        pass


async def forward(connection: client.Client) -> None:
    async with streams.open_port_forward(connection, "kf", "job-x", 15020, deadline=5):
        pass


@pytest.mark.parametrize("use", [ask, watch, forward])
async def test_token_that_is_renewed_on_disk_is_used_by_the_next_request(
    cluster: FakeApiserver, tmp_path: Path, use: Callable[[client.Client], Awaitable[None]]
):
    cluster.put("pods", pods.pod_json())
    path = tmp_path / "token"
    path.write_text(f"{cluster.token}\n")
    connection = client.Client(cluster.address, token=path.read_text)
    await use(connection)

    path.unlink()
    with pytest.raises(errors.Unreachable):
        await use(connection)

    cluster.token = "second"
    path.write_text(cluster.token)
    await use(connection)
    await connection.close()
