"""Admission on a real node while istiod is away.

The model is of its own. Meanwhile the applications that the main job needs grow a minute old.
"""

import asyncio
import json
import time

import pytest

from testbed import kubernetes, mesh
from testbed.kit import juju, observer, timeline

pytestmark = [
    pytest.mark.cluster("tomorrow"),
    pytest.mark.usefixtures("prepared"),
    pytest.mark.timeout(400),
]

MODEL = "admission"
APP = juju.APPLICATION
PREFIX = "istio-integrator.charmhub.io/"
APPLIED = f"{PREFIX}applied"
WEBHOOK_PODS = f"{PREFIX}component=admission-webhook"
SERVERS = f"{APP}-admission"
CONFIG = "proxy.istio.io/config"


def pod():
    spec = {"containers": [{"name": "main", "image": "never-created.invalid/app"}]}
    metadata = {"generateName": "tried-", "namespace": MODEL}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def is_held(api):
    """Have a pod created without keeping it; whether it waits for its proxy."""
    annotations = (await api.create(pod(), dry_run=True))["metadata"].get("annotations", {})
    return APPLIED in annotations and json.loads(annotations[CONFIG]) != {}


@pytest.fixture
async def charm(node, api):
    """The charm in its model, with the webhook at work."""
    controller = node.juju(MODEL)
    if not await api.find("Namespace", MODEL):
        await controller.add_model()
        await controller.deploy(node.charms.integrator, APP)
    await controller.wait_for("active", 120, words="admission: webhook")
    return controller


async def settings(api):
    """Read what the webhook's servers are told, and its version."""
    found = await api.get("ConfigMap", SERVERS, MODEL)
    return found["metadata"]["resourceVersion"], json.loads(found["data"]["settings.json"])


async def restarted(api, labels, *, within=90):
    """Delete all pods of a kind and wait until as many new ones are Ready."""
    before = {item["metadata"]["uid"] for item in await api.list("Pod", MODEL, labels=labels)}
    for item in await api.list("Pod", MODEL, labels=labels):
        await api.delete("Pod", item["metadata"]["name"], MODEL)

    async def are_back():
        found = await api.list("Pod", MODEL, labels=labels)
        ready = [item for item in found if timeline.is_ready(item)]
        new = [item for item in ready if item["metadata"]["uid"] not in before]
        return new if len(new) >= len(before) else None

    return await observer.eventually(are_back, within, f"pods {labels} again")


async def test_without_istiod_our_own_pods_restart_and_others_are_refused_by_it(node, api, charm):
    before = await settings(api)
    assert before[1]["native"] is True
    await asyncio.to_thread(mesh.stop, node.testbed)
    try:
        await charm.wait_for("waiting", 60, words="new pods are refused")
        kinds = (
            "operator.juju.is/name=modeloperator",
            f"app.kubernetes.io/name={APP}",
            WEBHOOK_PODS,
        )
        for labels in kinds:
            started = time.monotonic()
            for item in await restarted(api, labels):
                assert item["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
            print(f"{labels}: back after {time.monotonic() - started:.1f} s")
        with pytest.raises(kubernetes.ApiError) as refused:
            await api.create(pod(), dry_run=True)
        said = refused.value.message
        assert 'failed calling webhook "namespace.sidecar-injector.istio.io"' in said
        assert "istio-integrator" not in said
        # The charm's agent came back with its pod and has looked at everything again.
        await charm.wait_for("waiting", 90, words="new pods are refused")
        assert await settings(api) == before
    finally:
        await asyncio.to_thread(mesh.start, node.testbed)
    await charm.wait_for("active", 90)
    assert await settings(api) == before
    assert await is_held(api)
