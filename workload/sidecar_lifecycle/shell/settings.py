"""The settings of the service, as its file has them now."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from integrator_contract import names, namespaces, service
from sidecar_lifecycle.decide import eligible, finished, stale
from sidecar_lifecycle.shell import InputError

log = structlog.get_logger(__name__)

LOOK = 1.0
"""Seconds between looks at the file."""

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(service.Options):
    """What the charm writes, and what the rules need of it."""

    @property
    def proxy(self) -> stale.Proxy:
        """What new pods get, to tell which ones have an old proxy."""
        return stale.Proxy(revision=self.proxy_revision, version=self.proxy_version)

    @property
    def rules(self) -> finished.Policy:
        """What the rules need beside a pod, as if proxy-shutdown were on everywhere."""
        return finished.Policy(**service.values(service.Rules, self))

    def scope(self, namespace_labels: Mapping[str, str]) -> eligible.Scope:
        """Return what the rules need to decide about a pod of the model."""
        return eligible.Scope(
            namespace_labels=namespace_labels, **service.values(service.Eligibility, self)
        )

    def served(self) -> namespaces.Served:
        """Return which namespaces are served."""
        return namespaces.Served(
            model=self.model,
            mesh_namespace=self.mesh_namespace,
            owner=names.owner(self.model, self.application),
            kinds=self.served_namespaces,
        )


def read(path: Path) -> Settings:
    """Read the file.

    Raises:
        InputError: It has no settings, or the file can't be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from error


class Live:
    """The settings at this moment, and their changes in a file, if there is one."""

    def __init__(self, current: Settings, path: Path | None = None) -> None:
        self.current = current
        self._path = path
        self._changed = asyncio.Event()

    def change(self, settings: Settings) -> None:
        """Go on with other settings."""
        changed, self._changed = self._changed, asyncio.Event()
        self.current = settings
        changed.set()

    async def follow(self) -> None:
        """Go on with what the file says, from within a moment of its being written, for ever.

        While it can't be read, the settings before stay.
        """
        complaint = ""
        while self._path is not None:
            try:
                settings = read(self._path)
                complaint = ""
                if settings != self.current:
                    self.change(settings)
            except InputError as error:
                if str(error) != complaint:
                    complaint = str(error)
                    log.warning("settings can't be read", error=complaint)
            await asyncio.sleep(LOOK)

    async def changes(self, of: Callable[[Settings], _T]) -> AsyncGenerator[_T]:
        """Yield what a function makes of the settings, now and whenever it is another value."""
        last: list[_T] = []
        while True:
            changed, now = self._changed, of(self.current)
            if last != [now]:
                last = [now]
                yield now
            await changed.wait()

    async def restart(
        self, of: Callable[[Settings], _T], part: Callable[[_T], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a part of the service, and start it anew when what it depends on changes."""
        task: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            async for now in self.changes(of):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
                task = tasks.create_task(part(now))


def but_facts(settings: Settings) -> Settings:
    """Return settings without what hooks find anew and what is expected of the gateway."""
    return dataclasses.replace(settings, facts=None, expected=None)
