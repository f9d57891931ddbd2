"""However much happens, the charm is told of it in few notices: each runs a hook."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable

import pytest
from sidecar_lifecycle.shell.observers import notices

KEY = "example.com/changed"
GAP = 0.5


@pytest.fixture
def sent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count what a stand-in for Pebble was told."""
    monkeypatch.setenv("PEBBLE_SOCKET", "/nowhere")
    log = tmp_path / "log"
    log.touch()
    pebble = tmp_path / "pebble"
    pebble.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    pebble.chmod(0o755)
    return lambda: log.read_text().count(f"notify {KEY}\n")


@contextlib.asynccontextmanager
async def running(notifier: notices.Notifier) -> AsyncIterator[None]:
    task = asyncio.create_task(notifier.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a file tells it
            await asyncio.sleep(0.01)


async def test_many_changes_within_the_gap_are_one_notice(tmp_path, sent):
    notifier = notices.Notifier(tmp_path / "pebble", gaps={KEY: GAP})
    async with running(notifier):
        for _ in range(50):
            notifier.notify(KEY)
            await asyncio.sleep(0)
        await until(lambda: sent() > 0)
        first = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < first + GAP / 2:
            notifier.notify(KEY)
            await asyncio.sleep(0.01)
        assert sent() == 1
        await until(lambda: sent() > 1)
        await asyncio.sleep(2 * GAP)
        assert sent() == 2
