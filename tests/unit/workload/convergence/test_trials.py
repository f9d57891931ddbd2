"""What dry-run pods tell: of the mesh, of a workload's next pod, and of other teams' policies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from sidecar_lifecycle.decide.convergence import facts
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.convergence import trials
from sidecar_lifecycle.shell.kube import fence
from sidecar_lifecycle.shell.settings import Live, Settings

from tests.unit import api_objects
from tests.unit.cases import cases
from tests.unit.workload import fake_apiserver, pods

MODEL = "kubeflow"
SETTINGS = Settings(
    model=MODEL, application="istio-integrator", unit="istio-integrator/0", joined=True
)
SCOPE = SETTINGS.scope({"istio-injection": "enabled"})
REPLICA = facts.Replica(name="web-0", uid="uid-1", created=0.0, workload="StatefulSet/web")
OWN_IMAGE = "localhost/testbed/charm:1"
POLICY = "ValidatingAdmissionPolicy 'no-overrides' with binding 'b' denied request: not allowed"


class Refused(Exception):  # noqa: N818
    """Raised by a test's admission: the code and message of the API's answer."""

    def __init__(self, message: str, code: int = 403) -> None:
        super().__init__(message)
        self.code = code


class Apiserver(fake_apiserver.FakeApiserver):
    """Whose admission may refuse a dry-run pod."""

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[dict[str, Any]] = []

    async def _single(self, request: Any, key: fake_apiserver.Key) -> Any:
        if not request.query.get("dryRun"):
            return await super()._single(request, key)
        pod = json.loads(await request.read())
        self.tried.append(pod)
        try:
            return web.json_response(self.admission(pod), status=201)
        except Refused as error:
            message = f'pods "x" is forbidden: {error}' if error.code == 403 else str(error)
            return web.json_response(api_objects.refusal(error.code, message), status=error.code)


def owned(kind: str, name: str) -> list[dict[str, Any]]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}"}
    return [{**owner, "controller": True}]


@pytest.fixture
async def cluster() -> AsyncIterator[Apiserver]:
    fake = Apiserver()
    async with fake:
        template = {"spec": {"containers": [{"name": "main", "image": "shop"}]}}
        for name in ("web", "istio-integrator"):
            metadata = {"name": name, "namespace": MODEL, "uid": f"uid-of-{name}"}
            spec = {"replicas": 1, "template": template}
            fake.put("statefulsets", {"metadata": metadata, "spec": spec})
            pod = pods.pod_json(
                name=f"{name}-0", uid=f"uid-{name}", ownerReferences=owned("StatefulSet", name)
            )
            if name == "istio-integrator":
                pod["spec"]["containers"][0]["image"] = OWN_IMAGE
            fake.put("pods", pod)
        yield fake


def subject(cluster: Apiserver) -> trials.Trials:
    return trials.Trials(cluster.client, SETTINGS)


def injected(pod: dict[str, Any]) -> dict[str, Any]:
    spec = pod["spec"]
    return {**pod, "spec": {**spec, "containers": [*spec["containers"], {"name": "istio-proxy"}]}}


def refuse(message: str, code: int = 403) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def admission(pod: dict[str, Any]) -> dict[str, Any]:
        raise Refused(message, code)

    return admission


AWAY = "Internal error occurred: failed calling webhook"
ISTIO = '"namespace.sidecar-injector.istio.io"'
RIGHT = 'User "x" cannot create resource "pods" in API group ""'


@cases(
    ("message", "code", "verdict", "says"),
    policy=(POLICY, 403, "refused", "ValidatingAdmissionPolicy no-overrides refuses: not allowed"),
    webhook_of_another_team_away=(
        f'{AWAY} "check.team.example": timed out',
        *(500, "refused", 'webhook "check.team.example" does not answer'),
    ),
    istiod_away=(f"{AWAY} {ISTIO}: timed out", 500, "down", "the injector does not answer"),
    api_away=("etcd is away", 500, "down", "pods can't be created now"),
    busy=("slow down", 429, "down", "pods can't be created now"),
    schema=("no image", 422, "refused", "the API refuses its next pod"),
    missing_right=(RIGHT, 403, "refused", "cannot create resource"),
)
async def test_refusal_of_a_trial_is_of_its_author(
    cluster: Apiserver, message: str, code: int, verdict: str, says: str
):
    cluster.admission = refuse(message, code)
    found, said = await subject(cluster).ask(REPLICA, SCOPE)
    assert found == verdict
    assert says in said


@cases(
    ("images", "verdict"),
    all=({"shop", OWN_IMAGE}, "injects"),
    others_only=({OWN_IMAGE}, "skips"),
    none=(set[str](), "down"),
)
async def test_injector_that_gives_others_a_sidecar_skips_this_workload(
    cluster: Apiserver, images: set[str], verdict: str
):
    cluster.admission = lambda pod: (
        injected(pod) if pod["spec"]["containers"][0]["image"] in images else pod
    )
    found, _ = await subject(cluster).ask(REPLICA, SCOPE)
    assert found == verdict


async def test_refusal_of_the_generic_trial_says_nothing_about_the_injector(cluster: Apiserver):
    def admission(pod: dict[str, Any]) -> dict[str, Any]:
        if pod["spec"]["containers"][0]["image"] == OWN_IMAGE:
            raise Refused(POLICY)
        return pod

    cluster.admission = admission
    found, said = await subject(cluster).ask(REPLICA, SCOPE)
    assert (found, "no-overrides" in said) == ("refused", True)


async def test_trial_with_another_first_container_is_told_apart(cluster: Apiserver):
    def proxy_first(pod: dict[str, Any]) -> dict[str, Any]:
        containers = [{"name": "istio-proxy"}, {"name": "charm"}]
        spec = {"initContainers": [{"name": "charm-init"}], "containers": containers}
        return {**pod, "spec": spec}

    cluster.admission = proxy_first
    found, said = await subject(cluster).ask(REPLICA, SCOPE)
    assert found == "wrong-order"
    assert said == "istio-proxy would be its first container instead of charm"


async def test_trial_that_could_never_start_is_told_apart(cluster: Apiserver):
    """An init container whose startup probe istiod leads to a proxy that starts after it."""
    probe = {"httpGet": {"path": "/app-health/sql-proxy/startupz", "port": 15020}}
    helper = {"name": "sql-proxy", "restartPolicy": "Always", "startupProbe": probe}

    def classic(pod: dict[str, Any]) -> dict[str, Any]:
        return injected({**pod, "spec": {**pod["spec"], "initContainers": [helper]}})

    cluster.admission = classic
    found, said = await subject(cluster).ask(REPLICA, SCOPE)
    assert (found, "sql-proxy would wait for istio-proxy" in said) == ("cannot-start", True)


async def test_pod_whose_workload_can_not_be_dealt_with_is_named(cluster: Apiserver):
    told: list[types.Object] = []
    reader = hands.Cluster(cluster.client, Live(SETTINGS), lambda: 0.0)
    reader.fence = fence.Fence(lambda item, _: told.append(item))
    metadata = {"name": "web", "namespace": MODEL, "uid": "uid-of-web"}
    cluster.put("statefulsets", {"metadata": metadata, "spec": {"template": 1}})

    assert (await reader.ask(REPLICA, SCOPE)).verdict == "refused"

    (pod,) = told
    assert (pod.metadata.namespace, pod.metadata.name) == (MODEL, "web-0")


def forbidding(key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A policy that forbids a label or an annotation on pods."""

    def admission(pod: dict[str, Any]) -> dict[str, Any]:
        meta = pod["metadata"]
        if key in meta.get("annotations", {}) or key in meta.get("labels", {}):
            raise Refused(POLICY)
        return pod

    return admission
