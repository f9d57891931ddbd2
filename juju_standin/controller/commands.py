"""The commands of the operator, and the tasks that carry them out."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


class Commands:
    """Runs commands on the models and keeps the cluster in step with them."""

    def __init__(self, store: Store, substrate: Substrate | None) -> None:
        self._store = store
        self._substrate = substrate
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._controller_uuid = str(uuid.uuid4())

    async def start(self) -> None:
        """Tend the models that the files already hold."""
        for model in self._store.models.values():
            self._controller_uuid = model.controller_uuid
            self._tend(model)

    async def close(self) -> None:
        """End the tasks."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def run(self, name: str, given: dict[str, Any]) -> Any:
        """Run a command by its name."""
        method: Callable[..., Any] | None = getattr(self, f"_do_{name.replace('-', '_')}", None)
        if method is None:
            raise CallError(f"unknown command {name}")
        result = method(**given)
        return await result if asyncio.iscoroutine(result) else result

    async def _do_add_model(self, name: str, config: dict[str, Any]) -> str:
        if self._substrate:
            if name not in self._store.models and await self._substrate.has_namespace(name):
                raise CallError(f'failed to create model: namespace "{name}" already exists')
            config = {"cloud-version": await self._substrate.version(), **config}
        model = operations.add_model(self._store, name, self._controller_uuid, config)
        self._tend(model)
        return model.uuid

    async def list_pods(self, model: Model, application: Application) -> list[dict[str, Any]]:
        """Read an application's pods from the cluster; none where there is no cluster."""
        return await self._substrate.list_pods(model, application) if self._substrate else []

    def _do_models(self) -> list[str]:
        return sorted(self._store.models)

    async def _do_destroy_model(self, model: str, force: bool) -> None:
        found = self._model(model)
        for application in found.applications.values():
            operations.remove_application(found, application, force=force)
        found.life = "dying"
        self._store.touch(found)
        await self._until(lambda: model not in self._store.models, model)

    def _do_model_config(
        self, model: str, values: dict[str, Any], reset: list[str]
    ) -> dict[str, Any]:
        found = self._model(model)
        found.config.update(values)
        for key in reset:
            found.config.pop(key, None)
        self._store.touch(found)
        return found.config

    def _do_deploy(
        self,
        *,
        model: str,
        charm: str,
        name: str,
        config: dict[str, str],
        resources: dict[str, str],
        trust: bool,
        units: int,
        charm_image: str = "",
    ) -> str:
        found = self._model(model)
        application = operations.deploy(
            found,
            Path(charm),
            name=name,
            config=config,
            resources=resources,
            trust=trust,
            units=units,
        )
        application.charm_image = charm_image
        self._store.touch(found)
        return application.name

    def _do_fake_app(self, model: str, name: str, script: dict[str, Any]) -> None:
        found = self._model(model)
        operations.fake_application(found, name, script)
        self._store.touch(found)

    def _do_config(
        self, model: str, application: str, values: dict[str, str], reset: list[str]
    ) -> dict[str, Any]:
        found, app = self._find(model, application)
        if values or reset:
            operations.configure(app, values, reset)
            self._store.touch(found)
        return {
            key: {**option, "value": app.settings().get(key)}
            for key, option in app.options.items()
        }

    def _do_trust(self, model: str, application: str, remove: bool) -> None:
        found, app = self._find(model, application)
        app.trust = not remove
        self._store.touch(found)

    def _do_integrate(self, model: str, first: str, second: str) -> int:
        found = self._model(model)
        relation = operations.integrate(found, first, second)
        self._store.touch(found)
        return relation.number

    def _do_remove_relation(self, model: str, first: str, second: str) -> None:
        found = self._model(model)
        operations.remove_relation_between(found, first, second)
        self._store.touch(found)

    def _do_add_unit(self, model: str, application: str, count: int) -> None:
        found, app = self._find(model, application)
        operations.add_units(app, count)
        self._store.touch(found)

    def _do_remove_unit(self, model: str, application: str, count: int) -> None:
        found, app = self._find(model, application)
        operations.remove_units(found, app, count)
        self._store.touch(found)

    def _do_refresh(
        self,
        model: str,
        application: str,
        charm: str,
        resources: dict[str, str],
        charm_image: str = "",
    ) -> None:
        found, app = self._find(model, application)
        operations.refresh(app, Path(charm) if charm else None, resources)
        if charm:
            app.charm_image = charm_image
        self._store.touch(found)

    def _do_remove_application(self, model: str, application: str, force: bool) -> None:
        found, app = self._find(model, application)
        operations.remove_application(found, app, force=force)
        self._store.touch(found)

    def _do_run(self, model: str, target: str, action: str, parameters: dict[str, Any]) -> str:
        found = self._model(model)
        run = operations.run_action(found, target, action, parameters)
        self._store.touch(found)
        return run.number

    def _do_show_operation(self, model: str, number: str) -> dict[str, Any]:
        return view.operation(self._model(model).operations[number])

    def _do_resolved(self, model: str, unit: str, no_retry: bool) -> None:
        found = self._model(model)
        known = found.unit(unit)
        if known is None:
            raise CallError(f'unit "{unit}" not found')
        if known.agent.status != "error":
            raise CallError(f'unit "{unit}" is not in an error state')
        known.resolved = "no-retry" if no_retry else "retry"
        self._store.touch(found)

    def _do_lead(self, model: str, unit: str) -> None:
        """Not Juju's: move leadership, as a lease that ran out would."""
        found, app = self._find(model, unit.rpartition("/")[0])
        if unit not in app.units:
            raise CallError(f'unit "{unit}" not found')
        app.leader = unit
        self._store.touch(found)

    def _do_status(self, model: str) -> dict[str, Any]:
        return view.status(self._model(model))

    def _do_show_unit(self, model: str, unit: str) -> dict[str, Any]:
        return view.unit(self._model(model), unit)

    def _do_debug_log(self, model: str, offset: int) -> dict[str, Any]:
        path = self._store.folder / f"{self._model(model).name}.log"
        if not path.exists():
            return {"text": "", "offset": 0}
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read().decode(errors="replace")
            return {"text": text, "offset": file.tell()}

    def _model(self, name: str) -> Model:
        model = self._store.models.get(name)
        if model is None:
            raise CallError(f'model "{name}" not found')
        return model

    def _find(self, model: str, application: str) -> tuple[Model, Application]:
        found = self._model(model)
        return found, operations.find_application(found, application)

    async def _until(self, is_over: Callable[[], bool], model: str) -> None:
        while not is_over():
            await self._store.wait_for_change(model, self._store.version(model), 1)

    def _tend(self, model: Model) -> None:
        self._tasks[model.name] = asyncio.create_task(
            self._tend_forever(model), name=f"tend-{model.name}"
        )

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
