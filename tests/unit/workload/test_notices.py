"""However much happens, the charm is told of it in few notices: each runs a hook."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from sidecar_lifecycle.shell.observers import notices

from tests.unit.workload.fake_apiserver import running_task, until

KEY = "example.com/changed"
GAP = 0.5


class Pebble:
    """Stands for Pebble, as far as it takes notices (internals/daemon/api_notices.go)."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.status = 200

    async def take(self, request: web.Request) -> web.Response:
        self.sent.append(await request.json())
        return web.json_response({"result": {"id": "1"}}, status=self.status)


@pytest.fixture
async def pebble(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pebble]:
    fake = Pebble()
    app = web.Application()
    app.router.add_post("/v1/notices", fake.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "socket").start()
    monkeypatch.setenv("PEBBLE_SOCKET", str(tmp_path / "socket"))
    yield fake
    await runner.cleanup()


@contextlib.asynccontextmanager
async def running(**seconds: float) -> AsyncIterator[notices.Notifier]:
    gaps = {name: {KEY: value} for name, value in seconds.items()}
    notifier = notices.Notifier(**gaps)
    async with running_task(notifier.run()):
        yield notifier


async def test_many_changes_within_the_gap_are_one_notice(pebble: Pebble):
    async with running(gaps=GAP) as notifier:
        for _ in range(50):
            notifier.notify(KEY)
            await asyncio.sleep(0)
        await until(lambda: pebble.sent)
        first = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < first + GAP / 2:
            notifier.notify(KEY)
            await asyncio.sleep(0.01)
        assert pebble.sent == [{"action": "add", "type": "custom", "key": KEY}]
        await until(lambda: len(pebble.sent) > 1)
        await asyncio.sleep(2 * GAP)
        assert len(pebble.sent) == 2


@pytest.mark.parametrize("finds_out", [True, False])
async def test_what_a_hook_finds_out_meanwhile_is_no_notice(pebble: Pebble, finds_out: bool):
    known = False
    async with running(gaps=GAP, settling=GAP) as notifier:
        notifier.notify(KEY, lambda: not known)
        await asyncio.sleep(GAP / 2)
        assert not pebble.sent
        known = finds_out
        # What is news later is sent, whatever became of the first.
        await asyncio.sleep(2 * GAP)
        notifier.notify(KEY)
        await until(lambda: len(pebble.sent) == 2 - finds_out)


async def test_notice_that_pebble_refuses_does_not_end_the_service(pebble: Pebble):
    pebble.status = 500
    async with running(gaps=GAP) as notifier:
        notifier.notify(KEY)
        await until(lambda: pebble.sent)
        notifier.notify(KEY)
        await until(lambda: len(pebble.sent) == 2)


async def test_service_without_a_pebble_goes_on(
    pebble: Pebble, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PEBBLE_SOCKET", str(tmp_path / "none"))
    async with running(gaps=GAP) as notifier:
        notifier.notify(KEY)
        await asyncio.sleep(2 * GAP)
        monkeypatch.setenv("PEBBLE_SOCKET", str(tmp_path / "socket"))
        notifier.notify(KEY)
        await until(lambda: pebble.sent)
