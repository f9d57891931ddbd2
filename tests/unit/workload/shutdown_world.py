"""The reconciler on the small apiserver, for the modules that try it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.kube import client, events
from sidecar_lifecycle.shell.shutdown import controller as shutdown
from sidecar_lifecycle.shell.shutdown import slots

from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task

NAMESPACE = "kubeflow"


def settings(unit: int = 0, **extra: Any) -> options.Settings:
    """Return the settings of a unit; the first one is Juju's leader."""
    told = {"leader": unit == 0, **extra}
    name = "istio-integrator"
    return options.Settings(model=NAMESPACE, application=name, unit=f"{name}/{unit}", **told)


@contextlib.asynccontextmanager
async def reconciler(
    cluster: FakeApiserver,
    *,
    unit: int = 0,
    limits: slots.Limits | None = None,
    connection: client.Client | None = None,
    **extra: Any,
) -> AsyncIterator[shutdown.Controller]:
    loop = asyncio.get_running_loop()
    connection = connection or cluster.client
    live = options.Live(settings(unit, **extra))
    controller = shutdown.Controller(
        connection,
        live,
        events.Recorder(connection, clock=loop.time),
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
