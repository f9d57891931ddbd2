"""Settings of the service and of admission, read from files and reloaded."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from integrator_contract import names, namespaces, pods, service
from sidecar_lifecycle.decide import eligible, finished, stale
from sidecar_lifecycle.shell import InputError

log = structlog.get_logger(__name__)

LOOK = 1.0
"""Seconds between two checks of a file."""

_T = TypeVar("_T")
_V = TypeVar("_V")


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
        return finished.Policy(**service.select_fields(service.Rules, self))

    def make_scope(self, namespace_labels: Mapping[str, str]) -> eligible.Scope:
        """Return the inputs of the rules for pods of the model."""
        return eligible.Scope(
            namespace_labels=namespace_labels, **service.select_fields(service.Eligibility, self)
        )

    def served(self) -> namespaces.Served:
        """Return the rules that select the served namespaces."""
        return namespaces.Served(
            model=self.model,
            mesh_namespace=self.mesh_namespace,
            owner=names.name_owner(self.model, self.application),
            kinds=self.served_namespaces,
        )


def read(path: Path) -> ServiceSettings:
    """Read the settings of the service.

    Raises:
        InputError: The file can't be read, or its settings are invalid.
    """
    return _read_file(path, ServiceSettings)


def read_results(path: Path) -> service.Results | None:
    """Read the results of the last hook; None without a file.

    Raises:
        InputError: The file can't be read, or its values are invalid.
    """
    return _read_file(path, service.Results) if path.exists() else None


def _read_file(path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from error


def read_admission(path: Path) -> pods.Settings:
    """Read the settings of admission.

    Raises:
        InputError: The file can't be read, or its settings are invalid.
    """
    try:
        return parse_admission(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def parse_admission(text: bytes | str) -> pods.Settings:
    """Read settings of admission from JSON.

    Raises:
        ValueError: The text is not JSON, or a setting has an unknown name or an invalid value.
    """
    try:
        return msgspec.convert(pods.to_fields(msgspec.json.decode(text)), pods.Settings)
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


class Followed(Generic[_V]):
    """The current values of a file, which may be reloaded."""

    def __init__(self, current: _V, load: Callable[[], _V] | None = None) -> None:
        self.current = current
        self._load = load
        self._changed = asyncio.Event()

    def change(self, values: _V) -> None:
        """Replace the values and wake up those who wait for changes."""
        changed, self._changed = self._changed, asyncio.Event()
        self.current = values
        changed.set()

    def refresh(self) -> bool:
        """Reload the file; return whether the values changed.

        Raises:
            InputError: The file can't be read, or its values are invalid.
        """
        values = self._load() if self._load else self.current
        if values == self.current:
            return False
        self.change(values)
        return True

    async def changes(self, of: Callable[[_V], _T]) -> AsyncGenerator[_T]:
        """Yield a value computed from the values, now and after each change of the value."""
        last: list[_T] = []
        while True:
            changed, now = self._changed, of(self.current)
            if last != [now]:
                last = [now]
                yield now
            await changed.wait()

    async def restart(
        self, of: Callable[[_V], _T], part: Callable[[_T], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a part of the service, and restart it when a value of the file changes."""
        task: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            async for now in self.changes(of):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
                task = tasks.create_task(part(now))


Live = Followed[ServiceSettings]
"""The current settings of the service."""
Results = Followed[service.Results | None]
"""The results of the last hook; None before the first hook ends."""
