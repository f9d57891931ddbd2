"""Tell the charm that something changed, by Pebble notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from integrator_contract import names

log = structlog.get_logger(__name__)

PEBBLE = Path("/charm/bin/pebble")
GAPS: Mapping[str, float] = {names.MESH_NOTICE: 2.0, names.PROGRESS_NOTICE: 10.0}
"""Seconds between two notices of a key: each one runs a hook of the charm.

Juju runs such hooks before those of changed options, so a whole convergence full of progress would
keep the unit from them.
"""
SETTLING: Mapping[str, float] = {names.PROGRESS_NOTICE: 3.0}
"""Seconds from the wish for a notice to sending it, in which a hook that is under way ends."""
TIMEOUT = 10.0


class Notifier:
    """Sends notices, many requests within the gap as one, where there is a Pebble to tell."""

    def __init__(
        self,
        pebble: Path = PEBBLE,
        *,
        gaps: Mapping[str, float] = GAPS,
        settling: Mapping[str, float] = SETTLING,
    ) -> None:
        self._pebble = pebble
        self._gaps = gaps
        self._settling = settling
        self._wanted = {key: asyncio.Event() for key in gaps}
        self._is_news: dict[str, Callable[[], bool]] = {}

    def notify(self, key: str, is_news: Callable[[], bool] = lambda: True) -> None:
        """Ask for a notice to be sent soon, if then the charm does not know yet."""
        self._is_news[key] = is_news
        self._wanted[key].set()

    async def run(self) -> None:
        """Send what is asked for until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for key in self._wanted:
                tasks.create_task(self._send_all(key), name=f"notices {key}")

    async def _send_all(self, key: str) -> None:
        while True:
            await self._wanted[key].wait()
            await asyncio.sleep(self._settling.get(key, 0.0))
            self._wanted[key].clear()
            if not (self._pebble.exists() and os.environ.get("PEBBLE_SOCKET")):
                continue
            if self._is_news[key]():
                try:
                    async with asyncio.timeout(TIMEOUT):
                        await self._send(key)
                except (OSError, TimeoutError) as error:
                    log.warning("notice not sent", key=key, error=repr(error))
                await asyncio.sleep(self._gaps[key])

    async def _send(self, key: str) -> None:
        quiet, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            str(self._pebble), "notify", key, stdout=quiet, stderr=pipe
        )
        try:
            _, output = await process.communicate()
        finally:
            # It took too long, or we are to end ourselves.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            text = output.decode(errors="replace")[-200:].strip()
            log.warning("notice not sent", key=key, error=text)
