"""However much happens, the charm is told of it in few notices: each runs a hook."""

import asyncio
import contextlib
import os
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


@pytest.mark.parametrize("finds_out", [True, False])
async def test_what_a_hook_finds_out_meanwhile_is_no_notice(tmp_path, sent, finds_out):
    notifier = notices.Notifier(tmp_path / "pebble", gaps={KEY: GAP}, settling={KEY: GAP})
    known = False
    async with running(notifier):
        notifier.notify(KEY, lambda: not known)
        await asyncio.sleep(GAP / 2)
        assert sent() == 0
        known = finds_out
        # What is news later is sent, whatever became of the first.
        await asyncio.sleep(2 * GAP)
        notifier.notify(KEY)
        await until(lambda: sent() == 2 - finds_out)


async def test_no_notice_outlives_who_sends_it(tmp_path, sent):
    started = tmp_path / "started"
    (tmp_path / "pebble").write_text(
        f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}; exec sleep 60\n"
    )
    notifier = notices.Notifier(tmp_path / "pebble", gaps={KEY: GAP})
    async with running(notifier):
        notifier.notify(KEY)
        await until(started.exists)
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
