"""Juju's modeloperator and its admission webhook go on, whatever the mesh asks of its members.

The webhook lets everything pass that it does not see, so what shows that it works is the label
which it puts on what an application's account changes.
"""

import asyncio
import json
import re

import msgspec
import pytest

from istio_integrator.situation.model import Pod
from juju_standin import client
from testbed import istio, kubernetes, mesh
from testbed.kit import juju, observer, workloads
from tests.e2e import juju_world, pods
from tests.e2e.juju_world import BARE, MEMBER, MODELOPERATOR, WEB

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]

MODEL = BARE
CREATED_BY = "app.juju.is/created-by"


STRICT = workloads.istio("PeerAuthentication", "default", istio.SYSTEM, mtls={"mode": "STRICT"})
CLOSED = workloads.istio("AuthorizationPolicy", "nothing", istio.SYSTEM)
CLOSED_MODEL = workloads.istio("AuthorizationPolicy", "nothing", MEMBER)


async def removed(api, *policies):
    """Take policies away."""
    for one in policies:
        await api.delete(one["kind"], one["metadata"]["name"], one["metadata"]["namespace"])


@pytest.fixture
async def models(cni_node, cni_api):
    """Both models, istiod at work, and no policy left behind."""
    await juju_world.set_up(cni_node, cni_api)
    await juju_world.set_mesh(cni_node.testbed, cni_api, juju_world.Mesh(cni=True, native=True))
    yield cni_node
    mesh.start(cni_node.testbed)
    for kind in ("PeerAuthentication", "AuthorizationPolicy"):
        for one in await cni_api.list(kind):
            await removed(cni_api, {**one, "kind": kind})


def is_called(testbed, model):
    """Tell whether Kubernetes gets an answer of the model's webhook."""
    account = ("serviceaccount", WEB, f"--namespace={model}")
    uid = testbed.kubectl("get", *account, "--output=jsonpath={.metadata.uid}").stdout
    patched = testbed.kubectl(
        "patch",
        "service",
        WEB,
        f"--namespace={model}",
        f"--as=system:serviceaccount:{model}:{WEB}",
        f"--as-uid={uid}",
        "--type=merge",
        '--patch={"metadata": {"annotations": {"seen": "yes"}}}',
        "--dry-run=server",
        "--output=json",
    )
    return json.loads(patched.stdout)["metadata"]["labels"].get(CREATED_BY) == WEB


async def until_called(testbed, model, want=True, within=60):
    """Wait until calls of the webhook arrive, or don't, twice in a row."""

    async def is_so():
        for _ in range(2):
            if await asyncio.to_thread(is_called, testbed, model) is not want:
                return False
        return True

    await observer.eventually(is_so, within, f"webhook of {model} called: {want}", every=0.2)


async def until_open(api, model, want):
    """Wait until the web server of a model answers those outside of the mesh, or does not."""
    path = f"/api/v1/namespaces/{model}/pods/{WEB}-0:8080/proxy/"

    async def is_so():
        try:
            await api.request("GET", path, accept="*/*")
        except kubernetes.ApiError:
            return not want
        return want

    await observer.eventually(is_so, 30, f"{model}'s web server open: {want}")


def is_in_mesh(pod):
    return msgspec.convert(pod, Pod).is_in_mesh


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(STRICT, id="strict"),
        pytest.param(CLOSED, id="closed-mesh"),
        pytest.param(CLOSED_MODEL, id="closed-model"),
    ],
)
async def test_webhook_is_called_behind_any_policy_and_after_a_reschedule(models, cni_api, policy):
    await until_open(cni_api, MEMBER, True)
    await cni_api.apply(policy)
    await until_open(cni_api, MEMBER, False)
    await until_called(models.testbed, MEMBER)
    (pod,) = await pods.renewed(cni_api, MEMBER, MODELOPERATOR)
    assert not is_in_mesh(pod)
    await until_called(models.testbed, MEMBER)


async def test_modeloperator_is_rescheduled_and_called_while_istiod_is_down(models, cni_api):
    await cni_api.apply(STRICT, CLOSED)
    await asyncio.to_thread(mesh.stop, models.testbed)
    await until_called(models.testbed, MEMBER)
    (pod,) = await pods.renewed(cni_api, MEMBER, MODELOPERATOR)
    assert not is_in_mesh(pod)
    await until_called(models.testbed, MEMBER)
    # Where nobody keeps pods outside, none is created.
    with pytest.raises(kubernetes.ApiError, match="failed calling webhook"):
        await juju_world.tried(cni_api, BARE)


@pytest.fixture
async def inside(models, cni_api):
    """The bare model's modeloperator with a sidecar."""
    (pod,) = await pods.renewed(cni_api, BARE, MODELOPERATOR)
    assert is_in_mesh(pod)
    return pod


async def test_status_names_the_policy_and_its_command_helps(models, cni_api, inside):
    await cni_api.apply(STRICT)
    await until_called(models.testbed, BARE, False)
    controller = models.juju(BARE)
    await controller.deploy(models.charms.integrator, juju.APPLICATION)
    try:
        status = await controller.wait_for("blocked", 240, words=" is in the mesh and ")
        assert f"PeerAuthentication {istio.SYSTEM}/default requires mutual TLS" in status.message
        assert status.message.startswith("run: juju run istio-integrator/leader diagnose; ")
        with pytest.raises(client.ActionFailedError) as failed:
            await controller.do("run", f"{juju.APPLICATION}/leader", "diagnose")
        report = failed.value.outcome["results"]["report"]
        command = re.search(r"kubectl (-n \S+ delete pod \S+)", report)
        models.testbed.kubectl(*command[1].split())
        await until_called(models.testbed, BARE)
        await controller.wait_until_in_mesh(120)
    finally:
        await removed(cni_api, STRICT)
        await controller.remove(juju.APPLICATION)
        await juju_world.label(cni_api, BARE, "enabled")
