"""The reconciler on the small apiserver, for the modules that try it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.kube import client, events
from sidecar_lifecycle.shell.shutdown import controller as shutdown

from tests.unit.workload.fake_apiserver import FakeApiserver, running_task

NAMESPACE = "kubeflow"
OWNED = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]


def settings(unit: int = 0, **extra: Any) -> options.ServiceSettings:
    """Return the settings of a unit; the first one is Juju's leader."""
    told = {"leader": unit == 0, **extra}
    name = "istio-integrator"
    return options.ServiceSettings(
        model=NAMESPACE, application=name, unit=f"{name}/{unit}", **told
    )


@contextlib.asynccontextmanager
async def reconciler(
    cluster: FakeApiserver, *, unit: int = 0, connection: client.Client | None = None, **extra: Any
) -> AsyncIterator[shutdown.ShutdownController]:
    connection = connection or cluster.client
    recorder = events.Recorder(connection)
    controller = shutdown.ShutdownController(
        connection, options.Live(settings(unit, **extra)), recorder
    )
    async with running_task(controller.run()):
        yield controller


def phase(cluster: FakeApiserver, name: str = "job-x", namespace: str = NAMESPACE) -> str:
    return cluster.get("pods", namespace, name)["status"]["phase"]


def event_reasons(cluster: FakeApiserver) -> list[str]:
    return sorted(each["reason"] for each in cluster.all("events"))


def opened(cluster: FakeApiserver, name: str = "job-x") -> list[str]:
    """By which ways the proxy of a pod was opened, used or not."""
    ends = (f"/pods/{name}/portforward", f"/pods/{name}/exec")
    return [path.rpartition("/")[2] for _, path in cluster.requests if path.endswith(ends)]


def counted(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"sidecar_lifecycle_{name}", labels) or 0
