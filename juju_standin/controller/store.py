"""Keep the models: in memory, in one file each, and tell those who wait for a change."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from .state import Model

logger = logging.getLogger(__name__)

SAVE_AFTER = 0.3
"""Seconds that changes are gathered before the file is written."""


class Store:
    """All models of the controller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models: dict[str, Model] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._versions: dict[str, int] = {}
        self._unsaved: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.json")):
            model = msgspec.json.decode(path.read_bytes(), type=Model)
            self.models[model.name] = model

    def version(self, model: str) -> int:
        """A number that grows with each change of a model."""
        return self._versions.get(model, 0)

    def touch(self, model: Model) -> None:
        """Note that a model has changed: it is saved soon, and those who wait wake up."""
        self._unsaved.add(model.name)
        self._wake(model.name)

    async def wait_for_change(self, model: str, seen: int, seconds: float) -> None:
        """Return when the model's version is no longer the one seen, or after some seconds."""
        if self.version(model) != seen:
            return
        event = self._changed.setdefault(model, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def forget(self, model: Model) -> None:
        """Remove a model and its files."""
        self.models.pop(model.name, None)
        self._unsaved.discard(model.name)
        (self.folder / f"{model.name}.json").unlink(missing_ok=True)
        self._wake(model.name)

    def _wake(self, model: str) -> None:
        self._versions[model] = self.version(model) + 1
        event = self._changed.pop(model, None)
        if event:
            event.set()

    def save(self) -> None:
        """Write what has changed."""
        for name in tuple(self._unsaved):
            model = self.models.get(name)
            self._unsaved.discard(name)
            if model is None:
                continue
            path = self.folder / f"{name}.json"
            partial = path.with_suffix(".partial")
            partial.write_bytes(msgspec.json.encode(model))
            partial.replace(path)

    @contextlib.asynccontextmanager
    async def saving(self) -> AsyncIterator[None]:
        """Save in the background while the context lasts, and once more at its end."""

        async def save_often() -> None:
            while True:
                await asyncio.sleep(SAVE_AFTER)
                self.save()

        task = asyncio.create_task(save_often(), name="save")
        try:
            yield
        finally:
            task.cancel()
            self.save()

    def log(self, model: str, entity: str, level: str, module: str, message: str) -> None:
        """Append lines to a model's log in the form of `juju debug-log`."""
        stamp = time.strftime("%H:%M:%S", time.gmtime())
        tag = f"unit-{entity.replace('/', '-')}" if "/" in entity else entity
        with (self.folder / f"{model}.log").open("a") as file:
            file.writelines(
                f"{tag}: {stamp} {level} {module} {line}\n"
                for line in message.splitlines() or [""]
            )
