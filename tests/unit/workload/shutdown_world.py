"""The reconciler on the small apiserver, for the modules that try it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.kube import events
from sidecar_lifecycle.shell.shutdown import controller as shutdown
from sidecar_lifecycle.shell.shutdown import slots

from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task

NAMESPACE = "kubeflow"


class AlwaysLeader:
    """Stands for a Leadership that has won."""

    is_elected = True
    reachable = True

    def __init__(self) -> None:
        self.elected = asyncio.Event()
        self.elected.set()
        self.deposed = asyncio.Event()

    async def wait_elected(self) -> None:
        await self.elected.wait()

    async def wait_deposed(self) -> None:
        await self.deposed.wait()


class Voted(AlwaysLeader):
    """Stands for a Leadership that wins and loses as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.depose()

    @property
    def is_elected(self) -> bool:  # type: ignore[override]
        return self.elected.is_set()

    def elect(self) -> None:
        self.deposed.clear()
        self.elected.set()

    def depose(self) -> None:
        self.elected.clear()
        self.deposed.set()


@contextlib.asynccontextmanager
async def reconciler(
    cluster: FakeApiserver,
    *,
    leadership: Any = None,
    limits: slots.Limits | None = None,
    **extra: Any,
) -> AsyncIterator[shutdown.Controller]:
    loop = asyncio.get_running_loop()
    settings = options.Settings(
        model=NAMESPACE, application="istio-integrator", unit="istio-integrator/0", **extra
    )
    live = options.Live(settings)
    controller = shutdown.Controller(
        cluster.client,
        live,
        leadership or AlwaysLeader(),
        events.Recorder(cluster.client, clock=loop.time),
        limits=limits,
    )
    async with running_task(controller.run()):
        yield controller


def phase(cluster: FakeApiserver, name: str = "job-x") -> str:
    return cluster.get("pods", NAMESPACE, name)["status"]["phase"]


def event_reasons(cluster: FakeApiserver) -> list[str]:
    return sorted(each["reason"] for each in cluster.all("events"))


def opened(cluster: FakeApiserver, name: str = "job-x") -> int:
    """How often a way to the proxy of a pod was opened, used or not."""
    ends = (f"/pods/{name}/portforward", f"/pods/{name}/exec")
    return sum(path.endswith(ends) for _, path in cluster.requests)


def finished_pod(**extra: Any) -> dict[str, Any]:
    return pods.pod_json(**extra)
