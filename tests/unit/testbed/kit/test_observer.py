import asyncio

import pytest

from testbed import kubernetes
from testbed.kit import observer


def job(*conditions):
    return {
        "kind": "Job",
        "metadata": {"uid": "1", "namespace": "ns", "name": "it"},
        "status": {"conditions": [{"type": c, "status": "True"} for c in conditions]},
    }


async def test_until_wakes_when_the_awaited_object_comes():
    watcher = observer.Observer()
    waiting = asyncio.create_task(watcher.until(lambda: watcher.job("ns", "it"), 5, "a job"))
    await asyncio.sleep(0)
    await watcher.add("ADDED", job())
    assert (await waiting).name == "it"


async def test_until_says_what_did_not_come():
    with pytest.raises(observer.NotObserved, match=r"not seen within 0.01 s: a job"):
        await observer.Observer().until(lambda: None, 0.01, "a job")


async def test_holds_ends_at_the_first_change_to_false():
    watcher = observer.Observer()
    await watcher.holds(lambda: not watcher.jobs, 0.01, "no job")
    waiting = asyncio.create_task(watcher.holds(lambda: not watcher.jobs, 5, "no job"))
    await asyncio.sleep(0)
    await watcher.add("ADDED", job())
    with pytest.raises(observer.NotObserved, match="did not last 5 s: no job"):
        await waiting


async def test_a_condition_is_dated_by_its_first_report():
    now = 0.0
    watcher = observer.Observer(clock=lambda: now)
    now = 1.0
    await watcher.add("MODIFIED", job("Running"))
    now = 2.0
    await watcher.add("MODIFIED", job("Running", "Succeeded"))
    line = watcher.job("ns", "it")
    assert line is not None
    assert (line.since("Running"), line.succeeded_at, line.failed_at) == (1.0, 2.0, None)


async def test_eventually_asks_until_the_answer_is_true():
    answers = iter([False, False, "yes"])

    async def ask():
        return next(answers)

    assert await observer.eventually(ask, 5, "yes", every=0) == "yes"


async def test_a_job_that_failed_is_told_from_one_that_succeeded():
    watcher = observer.Observer(clock=lambda: 1.0)
    await watcher.add("MODIFIED", job("Complete"))
    assert await watcher.succeeded("ns", "it") == 0.0
    failed = {**job("Failed"), "metadata": {"uid": "2", "namespace": "ns", "name": "other"}}
    await watcher.add("MODIFIED", failed)
    assert (await watcher.ended("ns", "other", 1)).has_ended
    with pytest.raises(observer.NotObserved, match="other failed"):
        await watcher.succeeded("ns", "other")


class Served:
    """An API server that serves Pods only, and answers a list of them like this."""

    def __init__(self, answer):
        self._answer = answer

    async def resource(self, kind, group=None):
        if kind != "Pod":
            raise LookupError(kind)
        return kubernetes.Resource("", "v1", kind, "pods", True, frozenset())

    async def follow(self, path):
        await self._answer()
        yield "BOOKMARK", {}


async def test_what_can_not_be_watched_is_named_with_its_cause():
    async def refuse():
        raise kubernetes.ApiError("GET", "/api/v1/pods", 403, "forbidden")

    with pytest.raises(observer.NotObserved, match="no Pod can be watched") as raised:
        async with observer.Observer().following(Served(refuse)):
            pytest.fail("entered before the first list")
    assert "403 forbidden" in str(raised.value.__cause__)


async def test_what_is_not_listed_in_time_is_named():
    with pytest.raises(observer.NotObserved, match=r"not listed within 0.01 s: Pod"):
        async with observer.Observer().following(Served(asyncio.Event().wait), within=0.01):
            pytest.fail("entered before the first list")
