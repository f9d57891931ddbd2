"""The reconciler against a real API server; without a kubelet no stop is answered."""

import asyncio
import contextlib
import copy
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import lightkube
import pytest
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Pod, PodStatus

from integrator_contract import namespaces
from tests import workload_access
from tests.unit.workload import pods, service_world
from tests.unit.workload.fake_apiserver import until
from tests.unit.workload.service_world import Service

Cluster = lightkube.Client

pytestmark = pytest.mark.usefixtures("unreachable_node")


@contextlib.asynccontextmanager
async def running(kubeconfig: Path, namespace: str) -> AsyncIterator[Service]:
    settings = dataclasses.replace(
        service_world.SETTINGS, model=namespace, served_namespaces=namespaces.MODEL_ONLY
    )
    connection = workload_access.connect(kubeconfig)
    async with service_world.serving(connection, settings) as service:
        yield service


def create(client: Cluster, body: dict[str, Any]) -> None:
    """Create a pod, and then its status as a kubelet would."""
    body = copy.deepcopy(body)
    status = body.pop("status")
    for key in ("uid", "resourceVersion"):
        body["metadata"].pop(key, None)
    body["spec"]["containers"] = [
        {**each, "image": "localhost/none:1"} for each in body["spec"]["containers"]
    ]
    # No kubelet runs: nothing may evict the pod for that, and nothing confirms its end.
    body["spec"]["tolerations"] = [{"operator": "Exists"}]
    body["spec"]["terminationGracePeriodSeconds"] = 0
    client.create(Pod.from_dict(body))
    report(client, body["metadata"]["namespace"], body["metadata"]["name"], status)


def report(client: Cluster, namespace: str, name: str, status: dict[str, Any]) -> None:
    statuses = [
        {"image": "x", "imageID": "x", "ready": False, "restartCount": 0, **each}
        for each in status["containerStatuses"]
    ]
    body = {"status": {"phase": status["phase"], "containerStatuses": statuses}}
    client.patch(PodStatus, name, body, namespace=namespace)


async def ended(service: Service) -> list[str]:
    return sorted(each["name"] for each in await service.get("/ended"))


async def test_restarted_apiserver_costs_nothing_but_time(
    client: Cluster, kubeconfig: Path, namespace: str, control_plane: Any
):
    create(client, pods.pod_json(pods.running(), name="busy", namespace=namespace))
    async with running(kubeconfig, namespace) as service:
        await until(service.is_ready, 20)
        assert await ended(service) == []
        await asyncio.to_thread(control_plane.restart, "kube-apiserver")
        done = pods.pod_json(name="busy", namespace=namespace)

        def reported() -> bool:
            try:
                report(client, namespace, "busy", done["status"])
            except (httpx2.HTTPError, ApiError):
                return False
            return True

        await until(reported, seconds=60)

        async def is_known() -> bool:
            return await ended(service) == ["busy"]

        await until(is_known, seconds=60)
        await until(service.is_ready, seconds=60)


async def test_watch_lists_follows_and_resumes(
    client: Cluster, kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    """Lists have pages of two pods, and the server ends each watch after a second."""
    request = aiohttp.ClientSession._request

    def limited(session: Any, method: str, url: Any, **options: Any) -> Any:
        params = options.get("params") or {}
        limits = {"limit": "2", "timeoutSeconds": "1"}
        options["params"] = params | {key: limits[key] for key in params if key in limits}
        return request(session, method, url, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", limited)
    for number in range(5):
        create(client, pods.pod_json(name=f"pod-{number}", namespace=namespace))
    async with running(kubeconfig, namespace) as service:
        await until(service.is_ready, 20)
        assert await ended(service) == [f"pod-{number}" for number in range(5)]
        before = await service.counted("relists_total")
        await asyncio.sleep(2.5)
        client.delete(Pod, "pod-3", namespace=namespace, grace_period=0)

        async def is_gone() -> bool:
            return "pod-3" not in await ended(service)

        await until(is_gone, 20)
        assert await service.shows(before, "relists_total")
