"""Port-forward and exec down to the frames."""

from __future__ import annotations

import asyncio

import pytest
from sidecar_lifecycle.shell.kube import errors, streams

from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until

VIRTUAL_TIME = True


@pytest.fixture
def cluster(cluster: FakeApiserver) -> FakeApiserver:
    cluster.put("pods", pods.pod_json())
    return cluster


async def post(cluster: FakeApiserver, pod: str = "job-x") -> int:
    async with streams.port_forward(cluster.client, "kubeflow", pod, 15020, deadline=5) as forward:
        return await forward.post("/quitquitquit")


@pytest.mark.parametrize(("mode", "code"), [("ok", 200), ("403", 403), ("500", 500), ("204", 204)])
async def test_status_code_of_the_answer_is_returned(cluster: FakeApiserver, mode: str, code: int):
    cluster.proxies["job-x"].mode = mode
    assert await post(cluster) == code


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        pytest.param("refused", "connection refused", id="nobody-listens"),
        pytest.param("vanish", "ended", id="stream-closed"),
        pytest.param("no-http", "does not speak HTTP", id="not-http"),
    ],
)
async def test_stream_that_carries_no_answer_is_named(
    cluster: FakeApiserver, mode: str, message: str
):
    cluster.proxies["job-x"].mode = mode
    with pytest.raises(errors.StreamError, match=message):
        await post(cluster)


async def test_hang_ends_at_the_deadline(cluster: FakeApiserver):
    cluster.proxies["job-x"].mode = "hang"
    began = asyncio.get_running_loop().time()
    with pytest.raises(errors.Unreachable):
        await post(cluster)
    assert asyncio.get_running_loop().time() - began < 7


async def test_port_is_not_open_before_the_kubelet_says_so(cluster: FakeApiserver):
    """What comes after may compare the pod once more, and must not have to wait then."""
    cluster.proxies["job-x"].mode = "silent"
    opened = False
    with pytest.raises(errors.Unreachable):
        async with streams.port_forward(cluster.client, "kubeflow", "job-x", 15020, deadline=5):
            opened = True
    assert not opened


async def test_connections_end_behind_what_needed_them(cluster: FakeApiserver):
    async with streams.port_forward(cluster.client, "kubeflow", "job-x", 15020, deadline=5):
        assert cluster.streams == ["job-x"]
    await until(lambda: not cluster.streams)
    cluster.proxies["job-x"].exec_mode = "hang"
    with pytest.raises(errors.Unreachable):
        await streams.run_command(
            cluster.client, "kubeflow", "job-x", "istio-proxy", ["pilot-agent"], deadline=5
        )
    await until(lambda: not cluster.streams)
    await until(lambda: not cluster.client.closing)


async def test_absent_pod_is_the_apis_404(cluster: FakeApiserver):
    with pytest.raises(errors.StatusError) as raised:
        await post(cluster, "nobody")
    assert raised.value.code == 404


async def test_refusal_keeps_the_time_to_wait(cluster: FakeApiserver):
    cluster.failures = [("/portforward", 429, {"Retry-After": "9"})]
    with pytest.raises(errors.StatusError) as raised:
        await post(cluster)
    assert (raised.value.code, raised.value.retry_after) == (429, 9)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("exit-1", "command terminated with non-zero exit code: exit status 1: no admin port"),
        ("missing", "executable file not found: OK"),
        ("garbage", "{]: OK"),
    ],
)
async def test_command_that_does_not_succeed_is_an_error(
    cluster: FakeApiserver, mode: str, message: str
):
    cluster.proxies["job-x"].exec_mode = mode
    with pytest.raises(errors.StreamError) as raised:
        await streams.run_command(
            cluster.client, "kubeflow", "job-x", "istio-proxy", ["pilot-agent"], deadline=5
        )
    assert str(raised.value) == message


async def test_command_that_never_stops_talking_is_given_up_at_once(cluster: FakeApiserver):
    cluster.proxies["job-x"].exec_mode = "talks"
    with pytest.raises(errors.StreamError, match="says more"):
        await streams.run_command(
            cluster.client, "kubeflow", "job-x", "istio-proxy", ["pilot-agent"], deadline=5
        )


async def test_status_code_of_thousands_of_digits_is_no_http(cluster: FakeApiserver):
    cluster.proxies["job-x"].mode = "digits"
    with pytest.raises(errors.StreamError, match="does not speak HTTP"):
        await post(cluster)
