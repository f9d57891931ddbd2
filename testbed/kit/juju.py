"""The testbed's stand-in for Juju, with waits that fit the demo and the tests."""

import asyncio
import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from juju_standin import bootstrap, client
from testbed import cluster
from testbed.kit import observer

JujuError = client.JujuError

APPLICATION = "istio-integrator"
_IN_MESH = re.compile(r"(\d+)/(\d+) pods? in mesh")


@dataclasses.dataclass(frozen=True)
class Deployable:
    """A packed charm, and how it is deployed here."""

    path: pathlib.Path
    # Image references by resource.
    resources: Mapping[str, str]
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)
    trust: bool = False


@dataclasses.dataclass(frozen=True)
class Status:
    """What `juju status` says of one application."""

    current: str
    message: str
    # Whether each unit that the application should have is Active, its agent idle.
    is_settled: bool = False

    @property
    def in_mesh(self) -> tuple[int, int] | None:
        """The counts of pods in the mesh, and of those that should be."""
        found = _IN_MESH.search(self.message)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def is_complete(self) -> bool:
        """Active, with every pod in the mesh."""
        counts = self.in_mesh
        return self.current == "active" and counts is not None and counts[0] == counts[1]

    def __str__(self) -> str:
        return f"{self.current}: {self.message}" if self.message else self.current


def parse_status(document: Any, application: str) -> Status | None:
    """Read an application's status from `juju status --format json`; None when it is not there."""
    found = document.get("applications", {}).get(application)
    if found is None:
        return None
    units = found.get("units") or {}
    # A charm sets its unit's status; the application's own follows it only by the leader's word.
    shown = units[min(units)]["workload-status"] if units else found.get("application-status", {})
    is_settled = 0 < len(units) == found.get("scale") and all(
        unit["workload-status"]["current"] == "active" and unit["juju-status"]["current"] == "idle"
        for unit in units.values()
    )
    return Status(shown.get("current", ""), shown.get("message", ""), is_settled)


def count_hooks(log: str, application: str, hook: str) -> int:
    """Count in a model's log how often a hook of an application's first unit has succeeded."""
    return sum(
        line.startswith(f"unit-{application}-0") and f'ran "{hook}" hook' in line
        for line in log.splitlines()
    )


class Juju:
    """A model on the testbed's stand-in for Juju."""

    def __init__(self, testbed: cluster.Testbed, model: str) -> None:
        self.model = model
        self._testbed = testbed
        self._client: client.Juju | None = None

    async def do(self, command: str, *arguments: Any, **options: Any) -> Any:
        """Run a command of `juju_standin.client`, such as `add_unit`, in a thread of its own."""

        def run() -> Any:
            if self._client is None:
                self._client = bootstrap.juju(self._testbed, self.model)
            return getattr(self._client, command)(*arguments, **options)

        try:
            return await asyncio.to_thread(run)
        except OSError as error:
            raise JujuError(f"the controller does not answer: {error}") from error

    async def add_model(self, config: Mapping[str, str] | None = None) -> None:
        """Add the model, with some of its settings."""
        await self.do("add_model", config)

    async def deploy(self, charm: Deployable, application: str, *, trust: bool = True) -> None:
        """Deploy a packed charm."""
        await self.do(
            "deploy",
            charm.path,
            application,
            config=charm.config,
            resources=charm.resources,
            trust=trust and charm.trust,
        )

    async def config(self, application: str, **values: str) -> None:
        """Set options and wait until the unit's agent has run the hook for them, and is idle.

        A hook that runs already may read the options; the one for them may come after it.
        """
        before = await self.count_hooks(application, "config-changed")
        were = await self.do("config", application)
        if await self.set(application, **values) == were:
            # Juju runs no hook for what does not change.
            return

        async def has_run() -> bool:
            ran = await self.count_hooks(application, "config-changed")
            return ran > before and await self._is_idle(application)

        await observer.eventually(has_run, 180, f"config-changed after {values}", every=0.25)

    async def set(self, application: str, **values: str) -> dict[str, Any]:
        """Set options without waiting for anything; returns all of them."""
        options = {key.replace("_", "-"): value for key, value in values.items()}
        return await self.do("config", application, options)

    async def remove(self, application: str, *, force: bool = False) -> None:
        """Remove an application, by force without its hooks, and wait until Juju forgot it."""
        await self.do("remove_application", application, force=force)

        async def is_gone() -> bool:
            return await self.status(application) is None

        await observer.eventually(is_gone, 120, f"{application} removed")

    async def status(self, application: str = APPLICATION) -> Status | None:
        """Ask for an application's status."""
        return parse_status(await self.do("status"), application)

    async def report(self) -> str:
        """The whole model's status and log, as text."""
        return f"{json.dumps(await self.do('status'), indent=2)}\n\n{await self.do('debug_log')}"

    async def until(
        self,
        fits: Callable[[Status], object],
        within: float,
        what: str,
        application: str = APPLICATION,
    ) -> Status:
        """Wait until the application's status fits, and return it."""
        last: Status | None = None

        async def fitting() -> Status | None:
            nonlocal last
            last = await self.status(application)
            return last if last is not None and fits(last) else None

        try:
            return await observer.eventually(fitting, within, f"{application} {what}", every=0.25)
        except observer.NotObserved as error:
            raise observer.NotObserved(f"{error}, status is {last}") from None

    async def wait_for(
        self, current: str, within: float, application: str = APPLICATION, words: str = ""
    ) -> Status:
        """Wait until the status is this one and its message contains the words."""

        def fits(status: Status) -> bool:
            return status.current == current and words in status.message

        return await self.until(fits, within, f"{current} {words}".strip(), application)

    async def wait_until_in_mesh(self, within: float, application: str = APPLICATION) -> Status:
        """Wait until the charm says that every pod is in the mesh."""
        what = "with all pods in the mesh"
        return await self.until(lambda status: status.is_complete, within, what, application)

    async def wait_until_settled(
        self, within: float, in_mesh: int, application: str = APPLICATION
    ) -> Status:
        """Wait until every unit is Active and idle, and says that so many pods are in the mesh."""

        def fits(status: Status) -> bool:
            return status.is_settled and status.in_mesh == (in_mesh, in_mesh)

        return await self.until(fits, within, f"settled, {in_mesh} in the mesh", application)

    async def _is_idle(self, application: str) -> bool:
        """Return whether no hook of the first unit runs or is about to."""
        found = (await self.do("status"))["applications"][application]["units"]
        return found[f"{application}/0"]["juju-status"]["current"] == "idle"

    async def count_hooks(self, application: str, hook: str) -> int:
        """Count how often a hook of the first unit has succeeded."""
        return count_hooks(await self.do("debug_log"), application, hook)
