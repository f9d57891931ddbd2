"""The commands of the operator, and the tasks that carry them out."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from . import lifecycle, operations, view
from .calls import CallError
from .state import Application, Model
from .store import Store
from .substrate import Substrate

logger = logging.getLogger(__name__)

IDLE = 10.0
"""Seconds after which a model is looked at again though nothing changed."""

RETRY = 2.0
"""Seconds after an error of the cluster."""


READING = ("models", "status", "show-unit", "show-operation", "debug-log")
"""Commands that change nothing."""


class Commands:
    """Runs commands on the models and keeps the cluster in step with them."""

    def __init__(self, store: Store, substrate: Substrate | None) -> None:
        self._store = store
        self._substrate = substrate
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._controller_uuid = str(uuid.uuid4())

    async def close(self) -> None:
        """End the tasks."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def run(self, name: str, given: dict[str, Any]) -> Any:
        """Run a command by its name, on the model and the application that it names."""
        method: Callable[..., Any] | None = getattr(self, f"_do_{name.replace('-', '_')}", None)
        if method is None:
            raise CallError(f"unknown command {name}")
        model = None
        if "model" in given:
            model = self._store.models.get(given["model"])
            if model is None:
                raise CallError(f'model "{given["model"]}" not found')
            given = {**given, "model": model}
            if "application" in given:
                given["application"] = operations.find_application(model, given["application"])
        result = method(**given)
        if asyncio.iscoroutine(result):
            result = await result
        if model and name not in READING:
            self._store.touch(model)
        return result

    async def list_pods(self, model: Model, application: Application) -> list[dict[str, Any]]:
        """Read an application's pods from the cluster; none where there is no cluster."""
        return await self._substrate.list_pods(model, application) if self._substrate else []

    async def _do_add_model(self, name: str, config: dict[str, Any]) -> None:
        if self._substrate:
            if name not in self._store.models and await self._substrate.has_namespace(name):
                raise CallError(f'failed to create model: namespace "{name}" already exists')
            config = {"cloud-version": await self._substrate.version(), **config}
        model = operations.add_model(self._store, name, self._controller_uuid, config)
        self._tasks[name] = asyncio.create_task(self._tend_forever(model), name=f"tend-{name}")

    def _do_models(self) -> list[str]:
        return sorted(self._store.models)

    async def _do_destroy_model(self, model: Model, force: bool) -> None:
        for application in model.applications.values():
            operations.remove_application(model, application, force=force)
        model.life = "dying"
        self._store.touch(model)
        while model.name in self._store.models:
            version = self._store.version(model.name)
            await self._store.wait_for_change(model.name, version, 1)

    def _do_model_config(self, model: Model, values: dict[str, Any]) -> None:
        model.config.update(values)

    def _do_deploy(self, model: Model, charm: str, **given: Any) -> str:
        return operations.deploy(model, Path(charm), **given).name

    def _do_fake_app(self, model: Model, name: str, script: dict[str, Any]) -> None:
        operations.fake_application(model, name, script)

    def _do_config(
        self, model: Model, application: Application, values: dict[str, str], reset: list[str]
    ) -> dict[str, Any]:
        del model
        operations.configure(application, values, reset)
        settings = application.settings()
        return {key: settings.get(key) for key in application.options}

    def _do_trust(self, model: Model, application: Application, remove: bool) -> None:
        del model
        application.trust = not remove

    def _do_integrate(self, model: Model, first: str, second: str) -> None:
        operations.integrate(model, first, second)

    def _do_remove_relation(self, model: Model, first: str, second: str) -> None:
        operations.remove_relation_between(model, first, second)

    def _do_add_unit(self, model: Model, application: Application, count: int) -> None:
        del model
        operations.add_units(application, count)

    def _do_remove_unit(self, model: Model, application: Application, count: int) -> None:
        operations.remove_units(model, application, count)

    def _do_refresh(
        self, model: Model, application: Application, charm: str, resources: dict[str, str]
    ) -> None:
        del model
        operations.refresh(application, Path(charm) if charm else None, resources)

    def _do_remove_application(self, model: Model, application: Application, force: bool) -> None:
        operations.remove_application(model, application, force=force)

    def _do_run(self, model: Model, target: str, action: str, parameters: dict[str, Any]) -> str:
        return operations.run_action(model, target, action, parameters).id

    def _do_show_operation(self, model: Model, number: str) -> dict[str, Any]:
        return msgspec.to_builtins(model.operations[number])

    def _do_resolved(self, model: Model, unit: str) -> None:
        operations.resolve(model, unit)

    def _do_lead(self, model: Model, unit: str) -> None:
        """Move leadership, as a lease that ran out would; Juju has no such command."""
        operations.find_application(model, unit.rpartition("/")[0]).leader = unit

    def _do_status(self, model: Model) -> dict[str, Any]:
        return view.status(model)

    def _do_show_unit(self, model: Model, unit: str) -> dict[str, Any]:
        return view.unit(model, unit)

    def _do_debug_log(self, model: Model) -> str:
        path = self._store.log_file(model.name)
        return path.read_text(errors="replace") if path.exists() else ""

    async def _tend_forever(self, model: Model) -> None:
        while model.name in self._store.models:
            version, pause = self._store.version(model.name), IDLE
            try:
                await self._step(model)
            except Exception:
                logger.exception("model %s", model.name)
                pause = RETRY
                await asyncio.sleep(pause)
            await self._store.wait_for_change(model.name, version, pause)

    async def _step(self, model: Model) -> None:
        if lifecycle.collect(model):
            self._store.touch(model)
        if self._substrate and model.life == "alive":
            await self._substrate.ensure_model(model)
        for application in list(model.applications.values()):
            await self._step_application(model, application)
        if model.life == "dying" and not model.applications:
            if self._substrate:
                await self._substrate.delete_model(model)
                while await self._substrate.has_namespace(model.name):  # noqa: ASYNC110  a cluster
                    await asyncio.sleep(1)
            self._store.forget(model)

    async def _step_application(self, model: Model, application: Application) -> None:
        is_real = self._substrate is not None and not application.is_scripted
        if application.life == "dead":
            if self._substrate and is_real:
                if application.is_forced:
                    await self._substrate.abandon_application(model, application)
                else:
                    await self._substrate.delete_application(model, application)
            del model.applications[application.name]
            self._store.touch(model)
        elif self._substrate and is_real:
            await self._substrate.ensure_application(model, application)
