"""Port-forward and exec down to their ends; what answers come to is said in test_shutdown."""

from __future__ import annotations

import asyncio

import pytest
from sidecar_lifecycle.shell.kube import errors, streams

from tests.unit.cases import cases
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until

VIRTUAL_TIME = True
JOB = ("kubeflow", "job-x")


@pytest.fixture
def cluster(cluster: FakeApiserver) -> FakeApiserver:
    cluster.put("pods", pods.pod_json())
    return cluster


async def test_port_is_not_open_before_the_kubelet_says_so(cluster: FakeApiserver):
    """What comes after may compare the pod once more, and must not have to wait then."""
    cluster.proxies["job-x"].mode = "silent"
    with pytest.raises(errors.Unreachable):
        async with streams.port_forward(cluster.client, *JOB, 15020, deadline=5):
            pytest.fail("the port is not open")


async def test_connections_end_behind_what_needed_them(cluster: FakeApiserver):
    async with streams.port_forward(cluster.client, *JOB, 15020, deadline=5):
        assert cluster.streams == ["job-x"]
    await until(lambda: not cluster.streams)
    await streams.run_command(cluster.client, *JOB, "istio-proxy", ["pilot-agent"], deadline=5)
    await until(lambda: not cluster.streams)


@cases(
    ("mode", "words"),
    fails=("exit-1", "command terminated with non-zero exit code: exit status 1: no admin port"),
    missing=("missing", "executable file not found: OK"),
    garbage=("garbage", "{]: OK"),
    never_stops_talking=("talks", "the command says more than can be listened to"),
    hangs=("hang", ""),
)
async def test_command_that_does_not_succeed_is_an_error(
    cluster: FakeApiserver, mode: str, words: str
):
    cluster.proxies["job-x"].exec_mode = mode
    began = asyncio.get_running_loop().time()
    with pytest.raises(errors.KubeError) as raised:
        await streams.run_command(cluster.client, *JOB, "istio-proxy", ["pilot-agent"], deadline=5)
    assert words in str(raised.value)
    assert isinstance(raised.value, errors.StreamError) is bool(words)
    assert asyncio.get_running_loop().time() - began < 7
    await until(lambda: not cluster.streams and not cluster.client.closing)
