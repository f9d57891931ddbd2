"""The charm is told when what it rests on changed, and not otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sidecar_lifecycle.shell.observers import observe

from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True
MESH = "istio-system"


def injector(name: str = "istio-sidecar-injector", **meta: Any) -> dict[str, Any]:
    service = {"namespace": MESH, "name": "istiod"}
    return {
        "metadata": {"name": name, "uid": name, "generation": 1, **meta},
        "webhooks": [{"name": "x", "clientConfig": {"service": service}}],
    }


def backend(*, ready: bool) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "istiod-1",
            "namespace": MESH,
            "labels": {"kubernetes.io/service-name": "istiod"},
        },
        "endpoints": [{"conditions": {"ready": ready}}],
    }


def deployment(name: str, namespace: str, ready: int, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "generation": 1, "labels": labels},
        "status": {"readyReplicas": ready},
    }


def ours(generation: int = 1, *, applied: str = "a", ready: int = 1) -> dict[str, Any]:
    """Return the Deployment of our webhook, after so many changes of its specification."""
    component = {"istio-integrator.charmhub.io/component": "admission-webhook"}
    made = deployment("x", "kubeflow", ready, **component)
    annotations = {"istio-integrator.charmhub.io/applied-hash": applied}
    made["metadata"].update(generation=generation, uid="x", annotations=annotations)
    return made


def refused() -> dict[str, Any]:
    """Return the Deployment of our webhook, whose pods are refused."""
    made = ours(ready=0)
    made["status"]["conditions"] = [{"type": "ReplicaFailure", "status": "True"}]
    return made


@contextlib.asynccontextmanager
async def observing(*present: tuple[str, dict[str, Any]]) -> AsyncIterator[Any]:
    cluster = FakeApiserver()
    told: list[int] = []
    async with cluster as client:
        cluster.namespace("kubeflow")
        for plural, item in present:
            cluster.put(plural, item)
        observer = observe.Mesh(client, "kubeflow", lambda: told.append(1))
        async with running_task(observer.run()):
            await until(lambda: len(cluster.watchers) >= 3)
            await asyncio.sleep(5)
            told.clear()
            yield cluster, told


@pytest.mark.parametrize(
    ("plural", "before", "after", "want"),
    [
        pytest.param("mutatingwebhookconfigurations", None, injector(), True, id="injector-comes"),
        pytest.param(
            "mutatingwebhookconfigurations", None, injector("other"), False, id="other-webhook"
        ),
        pytest.param(
            "mutatingwebhookconfigurations", injector(), injector(), False, id="same-injector"
        ),
        pytest.param(
            "mutatingwebhookconfigurations",
            injector(),
            injector(generation=2),
            True,
            id="injector-changed",
        ),
        pytest.param(
            "namespaces",
            None,
            {"metadata": {"name": "kubeflow", "labels": {"istio-injection": "enabled"}}},
            True,
            id="model-labelled",
        ),
        pytest.param(
            "namespaces",
            None,
            {"metadata": {"name": "kubeflow", "annotations": {"a": "b"}}},
            False,
            id="model-annotated",
        ),
        pytest.param(
            "deployments",
            None,
            deployment(
                "x",
                "kubeflow",
                1,
                **{"istio-integrator.charmhub.io/component": "admission-webhook"},
            ),
            True,
            id="our-webhook-ready",
        ),
        pytest.param("deployments", None, deployment("x", "kubeflow", 1), False, id="any-app"),
    ],
)
async def test_charm_is_told_of_a_change_that_matters(
    plural: str, before: dict[str, Any] | None, after: dict[str, Any], want: bool
):
    async with observing(*([(plural, before)] if before else [])) as (cluster, told):
        cluster.put(plural, after)
        await asyncio.sleep(5)
        assert bool(told) is want


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(None, ours(ready=0), False, id="made"),
        pytest.param(ours(ready=0), ours(), True, id="answers"),
        pytest.param(ours(), ours(ready=0), True, id="answers-no-more"),
        pytest.param(ours(ready=2), ours(ready=3), False, id="rolling"),
        pytest.param(ours(ready=0), refused(), True, id="refused"),
        pytest.param(refused(), refused(), False, id="refused-as-before"),
        pytest.param(ours(), ours(2, applied="b"), False, id="written-by-the-charm"),
        pytest.param(ours(), ours(2), True, id="edited-by-another"),
        pytest.param(ours(ready=0), ours(2, ready=0), True, id="edited-before-it-answers"),
    ],
)
async def test_charm_is_told_of_its_webhook_only_what_it_did_not_write(
    before: dict[str, Any] | None, after: dict[str, Any], want: bool
):
    async with observing(*([("deployments", before)] if before else [])) as (cluster, told):
        cluster.put("deployments", after)
        await asyncio.sleep(5)
        assert bool(told) is want


INJECTED = {"istio-injection": "enabled"}


def model(ours: dict[str, str] | str = "", **labels: str) -> dict[str, Any]:
    """Return the model's namespace, with what the charm wrote down of the labels it set."""
    said = ours if isinstance(ours, str) else json.dumps({"owner": "a.b", "set": ours})
    annotations = {"istio-integrator.charmhub.io/membership": said} if said else {}
    found = {key.replace("_", "-"): value for key, value in labels.items()}
    return {"metadata": {"name": "kubeflow", "labels": found, "annotations": annotations}}


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(model(), model(INJECTED, istio_injection="enabled"), False, id="joined"),
        pytest.param(model(INJECTED, istio_injection="enabled"), model({}), False, id="left"),
        pytest.param(
            model(INJECTED, istio_injection="enabled"), model(INJECTED), True, id="taken-away"
        ),
        pytest.param(
            model(INJECTED, istio_injection="enabled"),
            model(INJECTED, istio_injection="disabled"),
            True,
            id="changed-by-another",
        ),
        pytest.param(
            model(INJECTED, istio_injection="enabled"),
            model(INJECTED, istio_injection="enabled", team="a"),
            True,
            id="labelled-beside-ours",
        ),
        pytest.param(model(), model("no record", team="a"), True, id="no-record-can-be-read"),
        pytest.param(model(), model('{"set": [["a"]]}', team="a"), True, id="record-of-no-shape"),
    ],
)
async def test_charm_is_told_of_its_model_only_what_it_did_not_write(
    before: dict[str, Any], after: dict[str, Any], want: bool
):
    async with observing(("namespaces", before)) as (cluster, told):
        cluster.put("namespaces", after)
        await asyncio.sleep(5)
        assert bool(told) is want


async def test_webhook_that_is_deleted_is_told():
    async with observing(("deployments", ours())) as (cluster, told):
        cluster.delete("deployments", "kubeflow", "x")
        await asyncio.sleep(5)
        assert told


async def test_istiod_behind_the_injector_is_observed_wherever_it_is():
    present = [
        ("mutatingwebhookconfigurations", injector()),
        ("endpointslices", backend(ready=True)),
        ("deployments", deployment("istiod", MESH, 1, app="istiod")),
    ]
    async with observing(*present) as (cluster, told):
        cluster.put("endpointslices", backend(ready=False))
        await until(lambda: len(told) == 1)
        cluster.put("deployments", deployment("istiod", MESH, 0, app="istiod"))
        await until(lambda: len(told) == 2)
        cluster.put("endpointslices", backend(ready=False))
        await asyncio.sleep(5)
        assert len(told) == 2


async def test_removed_injector_is_told_and_its_istiod_no_longer_observed():
    present = [("mutatingwebhookconfigurations", injector())]
    async with observing(*present) as (cluster, told):
        watching = len(cluster.watchers)
        cluster.delete("mutatingwebhookconfigurations", "", "istio-sidecar-injector")
        await until(lambda: told)
        await until(lambda: len(cluster.watchers) < watching)


async def test_what_may_not_be_watched_is_asked_for_again():
    async with observing() as (cluster, told):
        cluster.denied = lambda method, path: "mutatingwebhookconfigurations" in path
        cluster.end_watches()
        await asyncio.sleep(5)
        cluster.denied = lambda method, path: False
        cluster.put("mutatingwebhookconfigurations", injector())
        await until(lambda: told)


@pytest.mark.parametrize(
    ("joined", "ready", "want"),
    [
        pytest.param(False, 1, 1, id="waits-for-it"),
        pytest.param(False, 0, 0, id="not-ready"),
        pytest.param(True, 1, 0, id="joined"),
    ],
)
async def test_charm_that_waits_is_told_of_a_webhook_that_was_ready_before(
    joined: bool, ready: int, want: int
):
    told: list[int] = []
    cluster = FakeApiserver()
    async with cluster as client:
        cluster.namespace("kubeflow")
        cluster.put("deployments", ours(ready=ready))
        observer = observe.Mesh(client, "kubeflow", lambda: told.append(1), joined=joined)
        async with running_task(observer.run()):
            await until(lambda: len(cluster.watchers) >= 3)
            await asyncio.sleep(5)
            cluster.put("deployments", ours(ready=ready))
            await asyncio.sleep(5)
    assert len(told) == want
