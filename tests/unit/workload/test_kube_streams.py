"""Port-forward and exec down to the frames."""

from __future__ import annotations

import asyncio

import msgspec
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
    await until(lambda: not streams._closing)


async def test_absent_pod_is_the_apis_404(cluster: FakeApiserver):
    with pytest.raises(errors.StatusError) as raised:
        await post(cluster, "nobody")
    assert raised.value.code == 404


async def test_refusal_keeps_the_time_to_wait(cluster: FakeApiserver):
    cluster.failures = [("/portforward", 429, {"Retry-After": "9"})]
    with pytest.raises(errors.StatusError) as raised:
        await post(cluster)
    assert (raised.value.code, raised.value.retry_after) == (429, 9)


@pytest.mark.parametrize(("mode", "code"), [("ok", 0), ("exit-1", 1)])
async def test_command_returns_its_exit_code(cluster: FakeApiserver, mode: str, code: int):
    cluster.proxies["job-x"].exec_mode = mode
    result = await streams.run_command(
        cluster.client, "kubeflow", "job-x", "istio-proxy", ["pilot-agent", "x"], deadline=5
    )
    assert result.exit_code == code
    assert result.stdout == "OK\n"


async def test_command_that_can_not_be_started_is_an_error(cluster: FakeApiserver):
    cluster.proxies["job-x"].exec_mode = "missing"
    with pytest.raises(errors.StreamError, match="not found"):
        await streams.run_command(
            cluster.client, "kubeflow", "job-x", "istio-proxy", ["pilot-agent"], deadline=5
        )


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


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        pytest.param({"status": "Success"}, 0, id="success"),
        pytest.param(
            {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": "137"}]},
            },
            137,
            id="exit-code",
        ),
        pytest.param(
            {"details": {"causes": [{"reason": "ExitCode", "message": "4294967295"}]}},
            4294967295,
            id="largest",
        ),
    ],
)
def test_last_frame_of_exec_tells_the_exit_code(payload: object, code: int):
    assert streams.exit_code(msgspec.json.encode(payload)) == code


DIGITS = b'{"details":{"causes":[{"reason":"ExitCode","message":"%s"}]}}' % (b"1" * 5000)


@pytest.mark.parametrize(
    "payload",
    [
        *(b"not json", b'{"status": "Failure", "message": "no"}', b'{"a":' + b"[" * 2000, DIGITS),
        b'{"details":{"causes":[{"reason":"ExitCode","message":"10000000000"}]}}',
    ],
)
def test_last_frame_without_exit_code_is_an_error(payload: bytes):
    with pytest.raises(errors.StreamError):
        streams.exit_code(payload)
