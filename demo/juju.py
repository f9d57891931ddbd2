"""The testbed's stand-in for Juju, with waits that fit the demo and the tests."""

import asyncio
import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from demo import observer
from testbed import cluster
from testbed.juju import bootstrap, client

T = TypeVar("T")
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
    status = found.get("application-status", {})
    units = found.get("units") or {}
    unit = units[min(units)] if units else {}
    # A charm sets its unit's status; the application's own follows it only by the leader's word.
    workload = unit.get("workload-status", status)
    return Status(workload.get("current", ""), workload.get("message", ""))


def is_settled(document: Any, application: str) -> bool:
    """Whether each unit that an application should have is Active, its agent idle."""
    found = document.get("applications", {}).get(application) or {}
    units = (found.get("units") or {}).values()
    return (
        bool(units)
        and len(units) == found["scale"]
        and all(
            unit["workload-status"]["current"] == "active"
            and unit["juju-status"]["current"] == "idle"
            for unit in units
        )
    )


class Juju:
    """A model on the testbed's stand-in for Juju."""

    def __init__(self, testbed: cluster.Testbed, model: str) -> None:
        self.model = model
        self._testbed = testbed
        self._client: client.Juju | None = None

    async def add_model(self, config: Mapping[str, str] | None = None) -> None:
        """Add the model, with some of its settings."""
        await self._call(lambda juju: juju.add_model(config))

    async def deploy(self, charm: Deployable, application: str, *, trust: bool = True) -> None:
        """Deploy a packed charm."""
        await self._call(
            lambda juju: juju.deploy(
                charm.path,
                application,
                config=charm.config,
                resources=charm.resources,
                trust=trust and charm.trust,
            )
        )

    async def trust(self, application: str) -> None:
        """Give an application the whole cluster."""
        await self._call(lambda juju: juju.trust(application))

    async def config(self, application: str, **values: str) -> None:
        """Set options and wait until the unit's agent has run the hook for them."""
        options = {key.replace("_", "-"): value for key, value in values.items()}
        before = await self._hooks(application, "config-changed")
        were = await self._call(lambda juju: juju.config(application))
        if await self._call(lambda juju: juju.config(application, options)) == were:
            # Juju runs no hook for what does not change.
            return

        async def has_run() -> bool:
            return await self._hooks(application, "config-changed") > before

        await observer.eventually(has_run, 60, f"config-changed after {options}", every=0.25)

    async def set(self, application: str, **values: str) -> None:
        """Set options without waiting for anything."""
        options = {key.replace("_", "-"): value for key, value in values.items()}
        await self._call(lambda juju: juju.config(application, options))

    async def remove(self, application: str, *, force: bool = False) -> None:
        """Remove an application, by force without its hooks, and wait until Juju forgot it."""
        await self._call(lambda juju: juju.remove_application(application, force=force))

        async def is_gone() -> bool:
            return await self.status(application) is None

        await observer.eventually(is_gone, 120, f"{application} removed")

    async def status(self, application: str = APPLICATION) -> Status | None:
        """Ask for an application's status."""
        return parse_status(await self._call(lambda juju: juju.status()), application)

    async def document(self) -> dict[str, Any]:
        """The whole of `juju status --format json`."""
        return await self._call(lambda juju: juju.status())

    async def add_unit(self, application: str, count: int = 1) -> None:
        """Add units."""
        await self._call(lambda juju: juju.add_unit(application, count))

    async def report(self) -> str:
        """The whole model's status and log, as text."""
        document = await self._call(lambda juju: juju.status())
        log = await self._call(lambda juju: juju.debug_log())
        return f"{json.dumps(document, indent=2)}\n\n{log}"

    async def _hooks(self, application: str, hook: str) -> int:
        """Count how often a hook of the first unit has succeeded."""
        log = await self._call(lambda juju: juju.debug_log())
        return sum(
            line.startswith(f"unit-{application}-0") and f'ran "{hook}" hook' in line
            for line in log.splitlines()
        )

    async def _call(self, action: Callable[[client.Juju], T]) -> T:
        def run() -> T:
            if self._client is None:
                self._client = bootstrap.juju(self._testbed, self.model)
            return action(self._client)

        try:
            return await asyncio.to_thread(run)
        except OSError as error:
            raise JujuError(f"the controller does not answer: {error}") from error

    async def wait_for(
        self, current: str, within: float, application: str = APPLICATION, words: str = ""
    ) -> Status:
        """Wait until the status is this one and its message contains the words."""
        last: Status | None = None

        async def matches() -> Status | None:
            nonlocal last
            last = await self.status(application)
            is_it = last is not None and last.current == current and words in last.message
            return last if is_it else None

        try:
            return await observer.eventually(
                matches, within, f"{application} {current} {words}".strip()
            )
        except observer.NotObserved as error:
            raise observer.NotObserved(f"{error}, status is {last}") from None

    async def wait_until_in_mesh(self, within: float, application: str = APPLICATION) -> Status:
        """Wait until the charm says that every pod is in the mesh."""
        last: Status | None = None

        async def is_complete() -> Status | None:
            nonlocal last
            last = await self.status(application)
            return last if last is not None and last.is_complete else None

        try:
            return await observer.eventually(is_complete, within, "all pods in the mesh", every=1)
        except observer.NotObserved as error:
            raise observer.NotObserved(f"{error}, status is {last}") from None
