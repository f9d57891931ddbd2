"""What a follower of a collection is told, whatever the server does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube import client, errors, watch

from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True


class Follower:
    """Keeps what a watch said, and the state that follows from it."""

    def __init__(self, cluster: FakeApiserver, **selectors: Any) -> None:
        self.said: list[str] = []
        self.names: dict[str, str] = {}
        self.watch = watch.Watch(cluster.client, types.Pod, **selectors)

    async def run(self) -> None:
        async for change in self.watch.changes():
            if change.object is None:
                self.said.append("synced")
                continue
            meta = change.object.metadata
            self.said.append(f"{change.kind} {meta.name}")
            if change.kind == "deleted":
                self.names.pop(meta.uid)
            else:
                self.names[meta.uid] = meta.name


@contextlib.asynccontextmanager
async def following(cluster: FakeApiserver, **selectors: Any) -> AsyncIterator[Follower]:
    follower = Follower(cluster, **selectors)
    async with running_task(follower.run()):
        await until(lambda: "synced" in follower.said)
        yield follower


def pod(name: str, **extra: Any) -> dict[str, Any]:
    return pods.pod_json(name=name, uid=f"uid-{name}", **extra)


async def test_forgotten_version_is_listed_again_with_tombstones(cluster: FakeApiserver):
    for name in "abcd":
        cluster.put("pods", pod(name))
    async with following(cluster) as follower:
        cluster.delete("pods", "kubeflow", "d")
        await until(lambda: follower.said[-1] == "deleted d")
        cluster.end_watches()
        cluster.delete("pods", "kubeflow", "a")
        recreated = pods.pod_json(name="b", uid="uid-b2")
        cluster.put("pods", recreated)
        cluster.compact()
        await until(lambda: follower.said.count("synced") == 2)
        assert follower.names == {"uid-b2": "b", "uid-c": "c"}
        assert follower.said[6:] == [
            "deleted b",
            "added b",
            "modified c",
            "deleted a",
            "synced",
        ]


@pytest.mark.parametrize("status", [500, 503, 429, 401])
async def test_passing_failures_are_waited_out(cluster: FakeApiserver, status: int):
    cluster.failures = [("/pods", status, {})] * 3
    cluster.put("pods", pod("a"))
    async with following(cluster) as follower:
        assert follower.said == ["added a", "synced"]


async def test_server_that_asks_for_patience_gets_it(cluster: FakeApiserver):
    cluster.failures = [("/pods", 429, {"Retry-After": "77"})]
    began = asyncio.get_running_loop().time()
    async with following(cluster):
        assert asyncio.get_running_loop().time() - began >= 77


async def test_watch_that_is_resumed_after_a_failure_is_live_again(cluster: FakeApiserver):
    async with following(cluster) as follower:
        cluster.failures = [("/pods", 500, {})]
        cluster.end_watches()
        await until(lambda: not follower.watch.live)
        await until(lambda: follower.watch.live)
        assert follower.said.count("synced") == 1


async def test_quiet_watch_that_ends_is_resumed_at_its_bookmark_without_a_pause(
    cluster: FakeApiserver,
):
    async with following(cluster) as follower:
        for number in range(9):
            await until(lambda: cluster.watchers)
            (ended,) = cluster.watchers
            cluster.namespace(f"other-{number}")
            cluster.compact()
            cluster.bookmark()
            await asyncio.sleep(0.1)
            cluster.end_watches()
            await until(lambda: {*cluster.watchers} - {ended}, seconds=0.1)  # noqa: B023
        assert follower.said == ["synced"]


@pytest.mark.parametrize("code", [403, 404])
async def test_what_waiting_does_not_heal_is_raised(cluster: FakeApiserver, code: int):
    cluster.failures = [("/pods", code, {})]
    with pytest.raises(errors.StatusError) as raised:
        await Follower(cluster).run()
    assert raised.value.code == code


async def test_patient_watch_tells_what_has_gone_while_it_was_forbidden(cluster: FakeApiserver):
    cluster.put("pods", pod("a"))
    async with following(cluster, is_patient=True) as follower:
        cluster.denied = lambda _, path: path.endswith("/pods")
        cluster.end_watches()
        await until(lambda: not follower.watch.live)
        cluster.delete("pods", "kubeflow", "a")
        cluster.compact()
        await asyncio.sleep(3 * watch.ASK_AGAIN)
        assert cluster.requests.count(("GET", "/api/v1/pods")) < 8
        cluster.denied = lambda _, path: False
        await until(lambda: follower.said[-2:] == ["deleted a", "synced"])


async def test_peer_that_has_gone_silent_is_left_for_another(cluster: FakeApiserver):
    async with following(cluster) as follower:
        await until(lambda: cluster.watchers)
        # As behind a firewall that forgot the connection: it stands, and nothing comes.
        cluster.watchers.clear()
        asked = len(cluster.requests)
        await asyncio.sleep(70)
        assert len(cluster.requests) == asked, "bookmarks come every minute"
        cluster.put("pods", pod("a"))
        await until(lambda: "added a" in follower.said, seconds=120)


async def test_list_that_breaks_off_is_asked_for_from_its_beginning(
    cluster: FakeApiserver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(client, "PAGE", 2)
    for name in "abc":
        cluster.put("pods", pod(name))
    lists: list[int] = []

    def expire(method: str, path: str) -> None:
        lists.append(1)
        if len(lists) == 2:
            cluster.failures = [("/pods", 410, {})]

    cluster.before_answer = expire
    async with following(cluster) as follower:
        assert follower.said == [
            *("added a", "added b"),
            *("modified a", "modified b", "added c", "synced"),
        ]


class EndsAtOnce(client.Client):
    """Stands for an apiserver whose watches say just this."""

    def __init__(self, said: bytes) -> None:
        super().__init__("")
        self.client = self
        self.said = self.each = said
        self.opened: list[float] = []

    async def request(self, *_: Any, **__: Any) -> bytes:
        return b'{"metadata": {"resourceVersion": "7"}}'

    @contextlib.asynccontextmanager
    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        self.opened.append(asyncio.get_running_loop().time())
        assert len(self.opened) < 1000, "the server is asked without a pause"
        self.said = self.each
        yield self

    async def readline(self, **_: int) -> bytes:
        said, self.said = self.said, b""
        return said


@pytest.mark.parametrize("said", [b"", b'{"type": "ERROR", "object": {"code": 410}}\n'])
async def test_server_that_ends_each_watch_at_once_is_asked_ever_more_slowly(said: bytes):
    server = EndsAtOnce(said)
    async with running_task(Follower(server).run()) as following_it:  # type: ignore[arg-type]
        await asyncio.sleep(300)
        assert not following_it.done()

    pauses = [
        after - before for before, after in zip(server.opened, server.opened[1:], strict=False)
    ]
    assert 5 <= len(pauses) < 60
    # The first end may be the usual one, and costs no time.
    assert pauses[0] < 0.1
    assert min(pauses[-5:]) > 10


async def test_object_of_a_megabyte_is_one_event_as_any_other(cluster: FakeApiserver):
    async with following(cluster) as follower:
        await until(lambda: cluster.watchers)
        cluster.put("pods", pod("a", annotations={"filler": "x" * 3_000_000}))
        cluster.put("pods", pod("b"))
        await until(lambda: follower.said[1:] == ["added a", "added b"])
