"""The service's view of watched pods, whatever the API server does."""

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.unit.cases import cases
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.service_world import MODEL
from tests.unit.workload.shutdown_world import phase, unit

PODS = "/api/v1/pods"


def pod(name: str, **extra: Any) -> dict[str, Any]:
    return pods.pod_json(pods.running(), name=name, uid=f"uid-{name}", **extra)


def asked(cluster: FakeApiserver, path: str = PODS) -> int:
    """Return how often pods were listed or watched."""
    return cluster.requests.count(("GET", path))


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("status", [500, 503, 429, 401])
async def test_passing_failures_are_waited_out(
    cluster: FakeApiserver, status: int, capsys: pytest.CaptureFixture[str]
):
    cluster.failures = [(PODS, status, {})] * 3
    cluster.put("pods", pods.pod_json())
    async with unit(cluster):
        await until(lambda: phase(cluster) == "Succeeded")
    assert not cluster.failures
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = [each for each in lines if each["message"] == "watch interrupted"]
    found = [(each["resource"], each["error"]) for each in told]
    assert found == [(PODS, f"{status} : Injected")] * 3


async def test_slow_list_is_awaited_and_one_without_an_answer_retried(cluster: FakeApiserver):
    def hang(method: str, path: str) -> Awaitable[None] | None:
        return asyncio.sleep(1e6 if asked(cluster) == 1 else 50) if path == PODS else None

    cluster.before_answer = hang
    async with unit(cluster) as service:
        await until(service.is_ready)


async def test_server_that_asks_for_patience_gets_it(cluster: FakeApiserver):
    # A date is an answer, too.
    date = "Fri, 31 Dec 1999 23:59:59 GMT"
    cluster.failures = [(PODS, 429, {"Retry-After": each}) for each in (date, "77")]
    began = now()
    async with unit(cluster) as service:
        await until(service.is_ready)
        assert now() - began >= 77


async def test_watch_that_is_resumed_after_a_failure_is_live_again(cluster: FakeApiserver):
    async with unit(cluster) as service:
        await until(service.is_ready)
        relists = await service.counted("relists_total")
        cluster.failures = [(PODS, 500, {})] * 5
        cluster.say("pods", "ERROR", b'{"code": 500, "reason": "InternalError"}')
        await asyncio.sleep(1)
        assert not await service.is_ready()
        await until(service.is_ready)
        assert await service.shows(relists, "relists_total")


async def test_quiet_watch_that_ends_is_resumed_at_its_bookmark_without_a_pause(
    cluster: FakeApiserver,
):
    async with unit(cluster) as service:
        await until(service.is_ready)
        relists = await service.counted("relists_total")
        for number in range(9):
            await asyncio.sleep(1)
            before = asked(cluster)
            cluster.namespace(f"other-{number}")
            cluster.compact()
            cluster.bookmark()
            await asyncio.sleep(0.1)
            began = now()
            cluster.end_watches()
            await until(lambda: asked(cluster) == before + 1)  # noqa: B023
            assert now() - began < 0.1
        assert await service.shows(relists, "relists_total")


async def test_pods_that_go_while_they_must_not_be_listed_are_forgotten(cluster: FakeApiserver):
    cluster.denied = lambda _, path: path == PODS
    where = "/api/v1/namespaces/team/pods"
    async with unit(cluster) as service:
        await until(service.is_ready)
        kept = await service.counted("pods")
        cluster.put("pods", pod("a", namespace="team"))
        cluster.namespace("team", labels={"istio-integrator.charmhub.io/served": "enabled"})
        await until(lambda: service.shows(kept + 1, "pods"))
        cluster.denied = lambda _, path: path.endswith("/pods")
        cluster.end_watches()
        cluster.delete("pods", "team", "a")
        cluster.compact()
        await asyncio.sleep(180)
        assert asked(cluster, where) < 8
        cluster.denied = lambda _, path: path == PODS
        await until(lambda: service.shows(kept, "pods"))
        await until(lambda: [*cluster.watchers.values()].count("pods") == 2)
        cluster.denied = lambda *_: False
        await asyncio.sleep(90)
        assert [*cluster.watchers.values()].count("pods") == 1, "there is one for all namespaces"


async def test_pods_that_go_between_two_ways_of_watching_are_forgotten(cluster: FakeApiserver):
    async with unit(cluster) as service:
        await until(service.is_ready)
        kept = await service.counted("pods")
        for name, is_denied in (("a", True), ("b", False)):
            cluster.put("pods", pod(name))
            await until(lambda: service.shows(kept + 1, "pods"))
            # The watch that knows the pod hears nothing of its end.
            cluster.end_watches()
            cluster.watchers.clear()
            cluster.delete("pods", MODEL, name)
            cluster.compact()
            cluster.denied = lambda _, path, denied=is_denied: denied and path == PODS
            await until(lambda: service.shows(kept, "pods"))


async def test_peer_that_has_gone_silent_is_left_for_another(cluster: FakeApiserver):
    async with unit(cluster) as service:
        await until(service.is_ready)
        kept = await service.counted("pods")
        # As behind a firewall that forgot the connection: it stands, and nothing comes.
        cluster.watchers.clear()
        before = asked(cluster)
        await asyncio.sleep(70)
        assert asked(cluster) == before, "bookmarks come every minute"
        cluster.put("pods", pod("a"))
        await until(lambda: service.shows(kept + 1, "pods"), seconds=120)


@pytest.mark.parametrize("status", [410, 500])
async def test_list_that_breaks_off_is_asked_for_from_its_beginning(
    cluster: FakeApiserver, status: int
):
    async with unit(cluster) as service:
        await until(service.is_ready)
        kept, calls = await service.counted("pods"), itertools.count(1)

        def expire(method: str, path: str) -> None:
            # A watch that has to list, its first page, and its second one.
            if path == PODS and next(calls) == 3:
                cluster.before_answer = lambda *_: None
                cluster.failures = [(PODS, status, {})]

        cluster.watchers.clear()
        cluster.put("pods", pod("a"))
        cluster.before_answer = expire
        cluster.compact()
        await until(lambda: service.shows(kept + 1, "pods"))
        assert next(calls) > 3
        assert not cluster.failures


class EndsAtOnce(dict[Any, str]):
    """Watches that end as soon as they have begun."""

    def __setitem__(self, queue: Any, plural: str) -> None:
        super().__setitem__(queue, plural)
        queue.put_nowait(None)


@cases("is_forgotten", ends=False, is_too_old=True)
async def test_server_that_ends_each_watch_at_once_is_asked_ever_more_slowly(
    cluster: FakeApiserver, is_forgotten: bool
):
    cluster.watchers = EndsAtOnce()
    cluster.compacted = sys.maxsize if is_forgotten else 0
    moments: list[float] = []

    def note(method: str, path: str) -> Awaitable[None] | None:
        if path == PODS:
            moments.append(now())
        # Requests without a pause would stop the clock, and with it every wait.
        return asyncio.sleep(1e6) if len(moments) >= 100 else None

    cluster.before_answer = note
    async with unit(cluster):
        await asyncio.sleep(300)

    assert 5 <= len(moments) < 100
    # The first end may be the usual one, and costs no time.
    assert moments[2] - moments[0] < 0.2
    assert len([each for each in moments if each > moments[0] + 200]) <= 20


async def test_answer_that_is_no_list_is_asked_for_ever_more_slowly(cluster: FakeApiserver):
    cluster.answers = {"/api/v1/nodes": b"<html>"}
    async with unit(cluster):
        await asyncio.sleep(300)
    assert 10 <= asked(cluster, "/api/v1/nodes") < 50


async def test_object_of_a_megabyte_is_one_event_as_any_other(cluster: FakeApiserver):
    async with unit(cluster) as service:
        await until(service.is_ready)
        relists, kept = await service.counted("relists_total"), await service.counted("pods")
        cluster.put("pods", pod("a", annotations={"filler": "x" * 3_000_000}))
        cluster.put("pods", pod("b"))
        await until(lambda: service.shows(kept + 2, "pods"))
        assert await service.shows(relists, "relists_total")
