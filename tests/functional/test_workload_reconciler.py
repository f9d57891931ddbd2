"""The reconciler against a real apiserver; no kubelet runs, so nothing answers a stop."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import lightkube
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.core_v1 import Event, Pod, PodStatus, Secret, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import run
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.kube import client as kube
from sidecar_lifecycle.shell.kube import watch

from tests import workload_access
from tests.unit.workload import pods

Cluster = lightkube.Client

pytestmark = pytest.mark.usefixtures("unreachable_node")


@pytest.fixture
def account(client: Cluster, namespace: str) -> str:
    """The ServiceAccount that pods need, which nobody makes without a controller-manager."""
    with contextlib.suppress(ApiError):
        client.create(ServiceAccount(metadata=ObjectMeta(name="default", namespace=namespace)))
    return namespace


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


async def until(condition: Callable[[], Any], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions on plain state
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def program(connection: kube.Client, model: str, **extra: Any) -> AsyncIterator[run.Program]:
    settings = options.Settings(model=model, application="app", unit="app/0", **extra)
    live = options.Live(settings)
    subject = run.Program(connection, live, listen=("127.0.0.1", 0), port=0)
    task = asyncio.create_task(subject.run())
    try:
        yield subject
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def decisions(subject: run.Program) -> dict[str, str]:
    return {each.pod.metadata.name: each.decision.action for each in subject.shutdown.view}


async def test_pods_are_selected_and_judged_as_the_server_reports_them(
    client: Cluster, kubeconfig: Path, account: str
):
    create(client, pods.pod_json(pods.running(), name="busy", namespace=account))
    create(client, pods.pod_json(pods.running(), name="unlabelled", namespace=account, labels={}))
    create(client, pods.pod_json(name="always", policy="Always", namespace=account))
    web = pods.pod_json(pods.running(), name="web", namespace=account)
    del web["spec"]["containers"][1], web["status"]["containerStatuses"][1]
    create(client, web)
    connection = workload_access.connect(kubeconfig)
    async with program(connection, account) as subject:
        await until(lambda: all(subject.ready().values()))
        await until(lambda: decisions(subject) == {"busy": "wait", "unlabelled": "wait"})
        ended = pods.pod_json(name="busy", namespace=account)
        report(client, account, "busy", ended["status"])
        await until(lambda: decisions(subject) == {"busy": "stop", "unlabelled": "wait"})
        both = pods.pod_json(name="busy", namespace=account, proxy=pods.ended(), phase="Succeeded")
        report(client, account, "busy", both["status"])
        await until(lambda: decisions(subject) == {"unlabelled": "wait"})


def said(client: Cluster, namespace: str) -> list[str]:
    return [event.reason or "" for event in client.list(Event, namespace=namespace)]


async def test_restarted_apiserver_costs_nothing_but_time(
    client: Cluster, kubeconfig: Path, account: str, control_plane: Any
):
    create(client, pods.pod_json(pods.running(), name="busy", namespace=account))
    connection = workload_access.connect(kubeconfig)
    async with program(connection, account) as subject:
        await until(lambda: decisions(subject) == {"busy": "wait"})
        await asyncio.to_thread(control_plane.restart, "kube-apiserver")
        done = pods.pod_json(name="busy", namespace=account)

        def reported() -> bool:
            try:
                report(client, account, "busy", done["status"])
            except (httpx2.HTTPError, ApiError):
                return False
            return True

        await until(reported, seconds=60)
        await until(lambda: decisions(subject) == {"busy": "stop"}, seconds=60)
        await until(lambda: all(subject.ready().values()), seconds=60)


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming-list", "paged-list"])
async def test_watch_lists_follows_and_resumes(
    client: Cluster,
    admin: kube.Client,
    account: str,
    streaming: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(watch, "PAGE", 2)
    for number in range(5):
        create(client, pods.pod_json(name=f"pod-{number}", namespace=account))
    request = admin.stream

    def stream(path: str, *, params: dict[str, str], idle: float) -> Any:
        if not streaming:
            params = (
                {**params, "resourceVersionMatch": "Nonsense"}
                if ("sendInitialEvents" in params)
                else params
            )
        # The server ends the watch each second, so that following means resuming.
        return request(path, params={**params, "timeoutSeconds": "1"}, idle=idle)

    monkeypatch.setattr(admin, "stream", stream)
    said: list[str] = []

    async def follow() -> None:
        async for change in watch.watch(admin, types.Pod, namespace=account):
            what = change.object.metadata.name if change.object else ""
            said.append(f"{change.kind} {what}".strip())

    task = asyncio.create_task(follow())
    await until(lambda: "synced" in said)
    assert said == [*(f"added pod-{number}" for number in range(5)), "synced"]
    await asyncio.sleep(2.5)
    client.delete(Pod, "pod-3", namespace=account, grace_period=0)
    await until(lambda: said[-1] == "deleted pod-3")
    assert said.count("synced") == 1
    task.cancel()


def grant_the_model_alone(client: Cluster, namespace: str) -> None:
    """Rights in the model's namespace alone: no cluster-wide list, no namespaces."""
    rules = [
        PolicyRule(apiGroups=[""], resources=["pods"], verbs=["get", "list", "watch"]),
        PolicyRule(apiGroups=[""], resources=["events"], verbs=["create", "patch", "get"]),
    ]
    client.create(Role(metadata=ObjectMeta(name="narrow", namespace=namespace), rules=rules))
    client.create(
        RoleBinding(
            metadata=ObjectMeta(name="narrow", namespace=namespace),
            roleRef=RoleRef(apiGroup="rbac.authorization.k8s.io", kind="Role", name="narrow"),
            subjects=[Subject(kind="ServiceAccount", name="default", namespace=namespace)],
        )
    )


async def new_token(admin: kube.Client, namespace: str, bound_to: Secret | None = None) -> str:
    """A token of the namespace's default account, valid as long as the Secret is there."""
    spec: dict[str, Any] = {}
    if bound_to is not None and bound_to.metadata is not None:
        meta = bound_to.metadata
        reference = {"apiVersion": "v1", "kind": "Secret", "name": meta.name, "uid": meta.uid}
        spec["boundObjectRef"] = reference
    answer = await admin.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token",
        body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
    )
    return json.loads(answer)["status"]["token"]


@pytest.mark.long
async def test_token_that_is_renewed_on_disk_is_used_when_the_old_one_ends(
    client: Cluster, admin: kube.Client, kubeconfig: Path, account: str, tmp_path: Path
):
    grant_the_model_alone(client, account)
    secrets = [
        client.create(Secret(metadata=ObjectMeta(name=name, namespace=account)))
        for name in ("first", "second")
    ]
    file = tmp_path / "token"
    file.write_text(await new_token(admin, account, secrets[0]))
    config = KubeConfig.from_file(kubeconfig).get()
    assert config is not None
    connection = kube.Client(
        workload_access.of_context(config._replace(user=User(token_file=str(file))))
    )

    async def is_refused() -> bool:
        """A raw request: the apiserver remembers a good token for some seconds."""
        bearer = {"Authorization": f"Bearer {old}"}
        async with connection.session().get(
            f"{connection.server}/api/v1/namespaces/{account}/pods", headers=bearer
        ) as response:
            return response.status == 401

    async with program(connection, account) as subject:
        await until(lambda: all(subject.ready().values()))
        old = file.read_text()
        file.write_text(await new_token(admin, account, secrets[1]))
        client.delete(Secret, "first", namespace=account)
        async with asyncio.timeout(40):
            while not await is_refused():  # noqa: ASYNC110 - the API has no event for it
                await asyncio.sleep(0.5)
        create(client, pods.pod_json(namespace=account))
        await until(lambda: decisions(subject) == {"job-x": "stop"})
        await until(lambda: "ProxyStopFailed" in said(client, account), seconds=30)
