"""The testbed's stand-in for Juju, driven by its command line as an operator would."""

import asyncio
import dataclasses
import json
import pathlib
import re
import sys
from typing import Any

from demo import observer

APPLICATION = "istio-integrator"
_IN_MESH = re.compile(r"(\d+)/(\d+) pods? in mesh")


class JujuError(Exception):
    """A juju command failed."""


@dataclasses.dataclass(frozen=True)
class Status:
    """What `juju status` says of one application."""

    current: str
    message: str
    # Of the unit's agent: idle, executing, …
    agent: str = ""
    # When the agent's status was last written, as text.
    since: str = ""

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
    agent = unit.get("juju-status", {})
    return Status(
        workload.get("current", ""),
        workload.get("message", ""),
        agent.get("current", ""),
        agent.get("since", ""),
    )


@dataclasses.dataclass(frozen=True)
class Juju:
    """The controller of one testbed, and a model on it."""

    # Name of the testbed.
    testbed: str
    model: str

    async def run(self, *args: str) -> str:
        """Run `testbed juju …` and return its output."""
        argv = [sys.executable, "-m", "testbed", "--name", self.testbed, "juju", *args]
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=pathlib.Path(__file__).parents[1],
        )
        out, err = await process.communicate()
        if process.returncode:
            raise JujuError(f"juju {' '.join(args)}: {(err or out).decode().strip()[-2000:]}")
        return out.decode()

    async def add_model(self) -> None:
        """Add the model."""
        await self.run("add-model", self.model)

    async def deploy(self, charm: pathlib.Path, application: str, *flags: str) -> None:
        """Deploy a packed charm."""
        await self.run("deploy", str(charm), application, "--model", self.model, *flags)

    async def config(self, application: str, **values: str) -> None:
        """Set options and wait until the unit's agent has run its hook."""
        before = await self.status(application)
        pairs = [f"{key.replace('_', '-')}={value}" for key, value in values.items()]
        await self.run("config", "--model", self.model, application, *pairs)

        async def has_run() -> bool:
            now = await self.status(application)
            return now is not None and now.agent == "idle" and now.since != (before or now).since

        await observer.eventually(has_run, 60, f"config-changed after {pairs}", every=0.3)

    async def remove(self, application: str) -> None:
        """Remove an application and wait until Juju has forgotten it."""
        await self.run("remove-application", "--model", self.model, application)

        async def is_gone() -> bool:
            return await self.status(application) is None

        await observer.eventually(is_gone, 120, f"{application} removed")

    async def status(self, application: str = APPLICATION) -> Status | None:
        """Ask for an application's status."""
        text = await self.run("status", "--model", self.model, "--format", "json")
        return parse_status(json.loads(text), application)

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
