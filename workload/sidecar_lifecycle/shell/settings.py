"""Settings of the service and of admission, read from files and reloaded."""

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
"""Seconds between two checks of a file."""

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServiceSettings(service.Options):
    """The settings that the charm writes, and the inputs of the rules."""

    @property
    def proxy(self) -> stale.Proxy:
        """The proxy of new pods, to detect old ones."""
        return stale.Proxy(revision=self.proxy_revision, version=self.proxy_version)

    @property
    def rules(self) -> finished.Policy:
        """The policy for pods, as if proxy-shutdown were on in all namespaces."""
        return finished.Policy(**service.values(service.Rules, self))

    def scope(self, namespace_labels: Mapping[str, str]) -> eligible.Scope:
        """Return the inputs of the rules for pods of the model."""
        return eligible.Scope(
            namespace_labels=namespace_labels, **service.values(service.Eligibility, self)
        )

    def served(self) -> namespaces.Served:
        """Return the rules that select the served namespaces."""
        return namespaces.Served(
            model=self.model,
            mesh_namespace=self.mesh_namespace,
            owner=names.owner(self.model, self.application),
            kinds=self.served_namespaces,
        )


def read(path: Path) -> ServiceSettings:
    """Read the settings of the service.

    Raises:
        InputError: The file can't be read, or its settings are invalid.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServiceSettings)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from error


def read_admission(path: Path) -> pods.Settings:
    """Read the settings of admission.

    Raises:
        InputError: The file can't be read, or its settings are invalid.
    """
    try:
        return admission(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def admission(text: bytes | str) -> pods.Settings:
    """Read settings of admission from JSON.

    Raises:
        ValueError: The text is not JSON, or a setting has an unknown name or an invalid value.
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
    """Reload files periodically, forever; if a file can't be read, its old values stay in use.

    Each function reads a file and returns whether it changed, or raises OSError or InputError.
    `count` gets the file and `ok` or `failed`.
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
                # Count each failure, because an alert fires if they continue.
                count(file, "failed")
                if reported.get(file) != str(error):
                    log.warning(
                        "file not read, going on with the old ones", file=file, error=str(error)
                    )
                reported[file] = str(error)
        await asyncio.sleep(seconds)


class Live:
    """The current settings, reloaded from a file if there is one."""

    def __init__(self, current: ServiceSettings, path: Path | None = None) -> None:
        self.current = current
        self._path = path
        self._changed = asyncio.Event()

    def change(self, settings: ServiceSettings) -> None:
        """Replace the settings and wake up those who wait for changes."""
        changed, self._changed = self._changed, asyncio.Event()
        self.current = settings
        changed.set()

    def refresh(self) -> bool:
        """Reload the file; return whether the settings changed.

        Raises:
            InputError: The file can't be read, or its settings are invalid.
        """
        settings = read(self._path) if self._path else self.current
        if settings == self.current:
            return False
        self.change(settings)
        return True

    async def changes(self, of: Callable[[ServiceSettings], _T]) -> AsyncGenerator[_T]:
        """Yield a value computed from the settings, now and after each change of the value."""
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
        """Run a part of the service, and restart it when a value of the settings changes."""
        task: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            async for now in self.changes(of):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
                task = tasks.create_task(part(now))


def but_facts(settings: ServiceSettings) -> ServiceSettings:
    """Return settings without the facts of hooks and the expectation of the gateway."""
    return dataclasses.replace(settings, facts=None, expected=None)
