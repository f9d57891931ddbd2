"""The reconciler against a real apiserver; no kubelet runs, so nothing answers a stop."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import lightkube
import pytest
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Pod, PodStatus
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import run
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.kube import client as kube
from sidecar_lifecycle.shell.kube import watch

from tests import workload_access
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import running_task, until

Cluster = lightkube.Client

pytestmark = pytest.mark.usefixtures("unreachable_node")


@pytest.fixture
async def admin(kubeconfig: Path) -> AsyncIterator[kube.Client]:
    connection = workload_access.connect(kubeconfig)
    yield connection
    await connection.close()


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


def decisions(subject: run.Program) -> dict[str, str]:
    return {each.pod.metadata.name: each.decision.action for each in subject.shutdown.view}


async def test_restarted_apiserver_costs_nothing_but_time(
    client: Cluster, kubeconfig: Path, namespace: str, control_plane: Any
):
    create(client, pods.pod_json(pods.running(), name="busy", namespace=namespace))
    connection = workload_access.connect(kubeconfig)
    live = options.Live(options.ServiceSettings(model=namespace, application="app", unit="app/0"))
    subject = run.Program(connection, live, listen=("127.0.0.1", 0), port=0)
    async with running_task(subject.run()):
        await until(lambda: decisions(subject) == {"busy": "wait"}, 20)
        await asyncio.to_thread(control_plane.restart, "kube-apiserver")
        done = pods.pod_json(name="busy", namespace=namespace)

        def reported() -> bool:
            try:
                report(client, namespace, "busy", done["status"])
            except (httpx2.HTTPError, ApiError):
                return False
            return True

        await until(reported, seconds=60)
        await until(lambda: decisions(subject) == {"busy": "stop"}, seconds=60)
        await until(lambda: all(subject.ready().values()), seconds=60)


async def test_watch_lists_follows_and_resumes(
    client: Cluster, admin: kube.Client, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kube, "PAGE", 2)
    for number in range(5):
        create(client, pods.pod_json(name=f"pod-{number}", namespace=namespace))
    request = admin.stream

    def stream(path: str, *, params: dict[str, str], idle: float) -> Any:
        # The server ends the watch each second, so that following means resuming.
        return request(path, params={**params, "timeoutSeconds": "1"}, idle=idle)

    monkeypatch.setattr(admin, "stream", stream)
    said: list[str] = []

    async def follow() -> None:
        async for change in watch.Watch(admin, types.Pod, namespace=namespace).changes():
            what = change.object.metadata.name if change.object else ""
            said.append(f"{change.kind} {what}".strip())

    task = asyncio.create_task(follow())
    await until(lambda: "synced" in said, 20)
    assert said == [*(f"added pod-{number}" for number in range(5)), "synced"]
    await asyncio.sleep(2.5)
    client.delete(Pod, "pod-3", namespace=namespace, grace_period=0)
    await until(lambda: said[-1] == "deleted pod-3", 20)
    assert said.count("synced") == 1
    task.cancel()
