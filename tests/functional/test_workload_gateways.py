"""What wakes the charm, as a real apiserver tells it to the shipped roles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sidecar_lifecycle.shell.kube import client as kube
from sidecar_lifecycle.shell.observers import gateways

from istio_integrator.kube import cluster as charm_cluster
from tests import workload_access
from tests.functional import istiod_world
from tests.unit.workload.fake_apiserver import running_task

LABELS = {"istio": "gateway"}
PROXY = {"name": "istio-proxy", "image": "none", "args": ["proxy", "router"]}
POD = {"metadata": {"labels": LABELS}, "spec": {"containers": [PROXY]}}
WORKLOAD = {"selector": {"matchLabels": LABELS}, "template": POD}


class Told:
    """Whether the charm has been told something."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def __call__(self) -> None:
        self._changed.set()

    async def again(self, seconds: float = 30) -> None:
        """Wait until it is told something."""
        async with asyncio.timeout(seconds):
            await self._changed.wait()
        self._changed.clear()


@pytest.fixture
def api(client: Any) -> charm_cluster.Cluster:
    """An API server that serves Istio's kinds."""
    return istiod_world.install_definitions(client)


@pytest.fixture
async def told(api: charm_cluster.Cluster, namespace: str, untrusted: Any) -> AsyncIterator[Told]:
    """Observe with exactly the shipped roles."""
    told = Told()
    connection = kube.Client(workload_access.of_context(untrusted))
    observer = gateways.Observer(
        connection,
        model="kubeflow",
        owner=f"{namespace}.istio-integrator",
        named=f"{namespace}/gateway",
        changed=told,
    )
    async with running_task(observer.run()):
        yield told
    await connection.close()


def made(kind: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    api_version, name = kind.rsplit("/", 1)
    metadata = {"name": "gateway", "namespace": namespace}
    return {"apiVersion": api_version, "kind": name, "metadata": metadata, "spec": spec}


async def test_shipped_roles_let_the_charm_be_woken_by_everything_that_a_gateway_is(
    api: charm_cluster.Cluster, namespace: str, told: Told
) -> None:
    ports = [{"name": "http2", "port": 80}]
    objects = [
        made("apps/v1/Deployment", namespace, {"replicas": 0, **WORKLOAD}),
        made("apps/v1/DaemonSet", namespace, WORKLOAD),
        made("v1/Service", namespace, {"selector": LABELS, "ports": ports}),
    ]
    for obj in objects:
        await asyncio.to_thread(api.create, obj)
        try:
            await told.again(5)
        except TimeoutError:
            # What is there when a kind is listed for the first time wakes nobody.
            await asyncio.to_thread(api.delete, obj)
            await told.again()
            await asyncio.to_thread(api.create, obj)
            await told.again()
    for obj in reversed(objects):
        await asyncio.to_thread(api.delete, obj)
        await told.again()
