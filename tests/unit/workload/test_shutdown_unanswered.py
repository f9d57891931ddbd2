"""Stops whose connection ends before an answer: the proxy's exit decides what they were."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.shutdown import stop

from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.shutdown_world import (
    event_reasons,
    finished_pod,
    opened,
    phase,
    reconciler,
)

VIRTUAL_TIME = True


def attempts(result: stop.Result) -> float:
    """Return how many attempts by port-forward ended so."""
    return metrics.STOPS.labels(stop.Transport.PORT_FORWARD, result)._value.get()


async def test_proxy_whose_answer_is_cut_off_is_waited_for_and_asked_once(
    cluster: FakeApiserver, capsys: pytest.CaptureFixture[str]
):
    unanswered, refused = attempts(stop.Result.UNANSWERED), attempts(stop.Result.REFUSED)
    cluster.proxies["job-x"].mode = "cut"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: event_reasons(cluster) == ["ProxyStopped"])
        await asyncio.sleep(60)

    assert phase(cluster) == "Succeeded"
    assert opened(cluster) == 1
    assert attempts(stop.Result.UNANSWERED) - unanswered == 1
    assert attempts(stop.Result.REFUSED) == refused
    assert "warning" not in capsys.readouterr().out


async def test_log_says_how_a_try_ended_and_how_long_it_took(cluster: FakeApiserver):
    cluster.proxies["job-x"].mode = "hang"
    cluster.put("pods", finished_pod())
    with structlog.testing.capture_logs() as said:
        async with reconciler(cluster):
            await until(lambda: [one for one in said if one["event"] == "stop attempted"])

    told = next(one for one in said if one["event"] == "stop attempted")
    assert (told["pod"], told["log_level"]) == ("kubeflow/job-x", "warning")
    assert (told["transport"], told["result"]) == ("port-forward", "timeout")
    assert told["detail"]
    assert 1_000 <= told["milliseconds"] < 60_000


async def test_proxy_that_does_not_end_after_a_cut_off_answer_is_asked_another_way(
    cluster: FakeApiserver,
):
    cluster.proxies["job-x"].mode = "vanish"
    cluster.put("pods", finished_pod())
    loop = asyncio.get_running_loop()
    async with reconciler(cluster):
        await until(lambda: cluster.proxies["job-x"].requests)
        cut = loop.time()
        await until(lambda: phase(cluster) == "Succeeded")
        assert loop.time() - cut >= stop.CATCH_UP

    assert cluster.proxies["job-x"].requests == ["port-forward", "exec"]


async def test_proxy_that_never_ends_after_cut_off_answers_is_said_to_fail(
    cluster: FakeApiserver,
):
    proxy = cluster.proxies["job-x"]
    proxy.mode, proxy.exec_mode = "vanish", "exit-1"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: event_reasons(cluster) == ["ProxyStopFailed"], seconds=120)

    assert phase(cluster) == "Running"
