"""Settings of the service and of admission, as their files have them now."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from integrator_contract import names, namespaces, pods, service
from sidecar_lifecycle.decide import eligible, finished, stale
from sidecar_lifecycle.shell import InputError

log = structlog.get_logger(__name__)

LOOK = 1.0
"""Seconds between two looks at a file."""

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServiceSettings(service.Options):
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


def read(path: Path) -> ServiceSettings:
    """Read the file.

    Raises:
        InputError: It has no settings, or the file can't be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServiceSettings)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from error


def read_admission(path: Path) -> pods.Settings:
    """Read the settings of admission.

    Raises:
        InputError: The file can't be read, or `admission` can't use it.
    """
    try:
        return admission(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def admission(text: bytes | str) -> pods.Settings:
    """Read settings of admission from JSON.

    Raises:
        ValueError: The text is no JSON, or a setting has a wrong name or value.
    """
    try:
        return msgspec.convert(pods.named(msgspec.json.decode(text)), pods.Settings)
    except RecursionError as error:
        raise ValueError(str(error)) from error


async def follow(
    files: Mapping[str, Callable[[], bool]],
    *,
    seconds: float = LOOK,
    count: Callable[[str, str], None] = lambda _file, _result: None,
) -> None:
    """Read files again and again, for ever; while one can't be read, what it had before stays.

    Each is read by a function that returns whether there was a change, and raises OSError or
    InputError. Results are counted by file and `ok` or `failed`.
    """
    reported: dict[str, str] = {}
    while True:
        for file, refresh in files.items():
            try:
                if refresh():
                    log.info("file read again", file=file)
                    count(file, "ok")
                reported.pop(file, None)
            except (OSError, InputError) as error:
                # Counted each time: that it goes on is what an alert is about.
                count(file, "failed")
                if reported.get(file) != str(error):
                    log.warning(
                        "file not read, going on with the old ones", file=file, error=str(error)
                    )
                reported[file] = str(error)
        await asyncio.sleep(seconds)


class Live:
    """The settings at this moment, and their changes in a file, if there is one."""

    def __init__(self, current: ServiceSettings, path: Path | None = None) -> None:
        self.current = current
        self._path = path
        self._changed = asyncio.Event()

    def change(self, settings: ServiceSettings) -> None:
        """Go on with other settings."""
        changed, self._changed = self._changed, asyncio.Event()
        self.current = settings
        changed.set()

    def refresh(self) -> bool:
        """Go on with what the file says; return whether that is something else, or raise."""
        settings = read(self._path) if self._path else self.current
        if settings == self.current:
            return False
        self.change(settings)
        return True

    async def changes(self, of: Callable[[ServiceSettings], _T]) -> AsyncGenerator[_T]:
        """Yield what a function makes of the settings, now and whenever it is another value."""
        last: list[_T] = []
        while True:
            changed, now = self._changed, of(self.current)
            if last != [now]:
                last = [now]
                yield now
            await changed.wait()

    async def restart(
        self, of: Callable[[ServiceSettings], _T], part: Callable[[_T], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a part of the service, and start it anew when what it depends on changes."""
        task: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            async for now in self.changes(of):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
                task = tasks.create_task(part(now))


def but_facts(settings: ServiceSettings) -> ServiceSettings:
    """Return settings without what hooks find anew and what is expected of the gateway."""
    return dataclasses.replace(settings, facts=None, expected=None)
