"""Keep the models in memory, write their logs, and wake up the calls that wait for a change."""

import asyncio
import contextlib
import time
from pathlib import Path

from .state import Model


class Store:
    """All models of the controller. They end with it; only their logs are files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models: dict[str, Model] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._versions: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def version(self, model: str) -> int:
        """Return a number that grows with each change of a model."""
        return self._versions.get(model, 0)

    def touch(self, model: Model) -> None:
        """Note that a model has changed, and wake up the calls that wait for it."""
        self._versions[model.name] = self.version(model.name) + 1
        if event := self._changed.pop(model.name, None):
            event.set()

    async def wait_for_change(self, model: str, seen: int, seconds: float) -> None:
        """Return when the model's version is no longer the one seen, or after some seconds."""
        if self.version(model) != seen:
            return
        event = self._changed.setdefault(model, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def forget(self, model: Model) -> None:
        """Remove a model."""
        self.models.pop(model.name, None)
        self.touch(model)

    def log_file(self, model: str) -> Path:
        """Return the file of a model's log."""
        return self.folder / f"{model}.log"

    def log(self, model: str, entity: str, level: str, module: str, message: str) -> None:
        """Append lines to a model's log in the form of `juju debug-log`."""
        stamp = time.strftime("%H:%M:%S", time.gmtime())
        tag = f"unit-{entity.replace('/', '-')}" if "/" in entity else entity
        with self.log_file(model).open("a") as file:
            file.writelines(
                f"{tag}: {stamp} {level} {module} {line}\n"
                for line in message.splitlines() or [""]
            )
