"""Tell the charm that something changed, by Pebble notices."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import aiohttp
import structlog

from integrator_contract import names

log = structlog.get_logger(__name__)

GAPS: Mapping[str, float] = {names.MESH_NOTICE: 2.0, names.PROGRESS_NOTICE: 10.0}
"""Seconds between two notices of a key: each one runs a hook of the charm.

Juju runs such hooks before those of changed options, so a whole convergence full of progress would
keep the unit from them.
"""
SETTLING: Mapping[str, float] = {names.PROGRESS_NOTICE: 3.0}
"""Seconds from the wish for a notice to sending it, in which a hook that is under way ends."""
TIMEOUT = aiohttp.ClientTimeout(total=10.0)


class Notifier:
    """Sends notices, many requests within the gap as one, where there is a Pebble to tell."""

    def __init__(
        self, *, gaps: Mapping[str, float] = GAPS, settling: Mapping[str, float] = SETTLING
    ) -> None:
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
            pebble = os.environ.get("PEBBLE_SOCKET")
            if not pebble or not self._is_news[key]():
                continue
            try:
                await _send(pebble, key)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.warning("notice not sent", key=key, error=repr(error))
            await asyncio.sleep(self._gaps[key])


async def _send(pebble: str, key: str) -> None:
    """Do what `pebble notify` does."""
    notice = {"action": "add", "type": "custom", "key": key}
    connector = aiohttp.UnixConnector(pebble)
    async with aiohttp.ClientSession(connector=connector, raise_for_status=True) as session:
        await session.post("http://pebble/v1/notices", json=notice, timeout=TIMEOUT)
