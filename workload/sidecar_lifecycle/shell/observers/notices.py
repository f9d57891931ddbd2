"""Pebble notices, which make Juju run a hook of the charm."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping

import aiohttp
import structlog

from integrator_contract import names

log = structlog.get_logger(__name__)

GAPS: Mapping[str, tuple[float, float]] = {
    names.MESH_NOTICE: (2.0, 60.0),
    names.PROGRESS_NOTICE: (10.0, 10.0),
}
"""Minimum of seconds between two notices of a key, as each one runs a hook of the charm.

It doubles from the first to the second number with each notice, because tenants can cause changes
without end. It is the first number again after `QUIET`. Juju runs hooks of notices before
`config-changed`. Frequent notices of progress would delay the latter for as long as pods are being
replaced.
"""
SETTLING: Mapping[str, float] = {names.PROGRESS_NOTICE: 3.0}
"""Seconds from the request for a notice to sending it, in which a running hook can end."""
QUIET = 15.0
"""Seconds without a request, after the gap, that end a series of notices."""
TIMEOUT = aiohttp.ClientTimeout(total=10.0)


class Notifier:
    """Sends notices if Pebble runs; requests within the gap are combined to one notice."""

    def __init__(
        self,
        *,
        gaps: Mapping[str, tuple[float, float]] = GAPS,
        settling: Mapping[str, float] = SETTLING,
    ) -> None:
        self._gaps = gaps
        self._settling = settling
        self._wanted = {key: asyncio.Event() for key in gaps}
        self._is_news: dict[str, Callable[[], bool]] = {}

    def notify(self, key: str, is_news: Callable[[], bool] = lambda: True) -> None:
        """Request a notice, which is sent soon if `is_news` then returns True."""
        self._is_news[key] = is_news
        self._wanted[key].set()

    async def run(self) -> None:
        """Send the requested notices until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for key in self._wanted:
                tasks.create_task(self._send_all(key), name=f"notices {key}")

    async def _send_all(self, key: str) -> None:
        first, longest = self._gaps[key]
        gap = first
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted[key].wait(), QUIET)
            if not self._wanted[key].is_set():
                gap = first
            await self._wanted[key].wait()
            await asyncio.sleep(self._settling.get(key, 0.0))
            self._wanted[key].clear()
            pebble = os.environ.get("PEBBLE_SOCKET")
            if not pebble or not self._is_news[key]():
                continue
            try:
                await _send(pebble, key)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.warning("notice not sent", key=key, error=repr(error))
            await asyncio.sleep(gap)
            gap = min(2 * gap, longest)


async def _send(pebble: str, key: str) -> None:
    """Send a notice as `pebble notify` does."""
    notice = {"action": "add", "type": "custom", "key": key}
    connector = aiohttp.UnixConnector(pebble)
    async with aiohttp.ClientSession(connector=connector, raise_for_status=True) as session:
        await session.post("http://pebble/v1/notices", json=notice, timeout=TIMEOUT)
