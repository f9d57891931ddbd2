"""The charm without trust, with exactly the roles that are shipped: all of the main job."""

import json

import pytest

from testbed.kit import juju, objects, observer, workloads
from tests import rights

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]

MODEL = "roles"


async def others_are_done(api, model):
    """Whether the webhook configurations that Juju and istiod write when they are up are there."""
    juju_webhook = await api.find("MutatingWebhookConfiguration", f"juju-model-admission-{model}")
    validator = "istio-validator-istio-system"
    istio_webhook = await api.find("ValidatingWebhookConfiguration", validator)
    closed = istio_webhook and istio_webhook["webhooks"][0]["failurePolicy"] == "Fail"
    return juju_webhook is not None and closed


@pytest.mark.cluster("today", "tomorrow")
async def test_shipped_roles_are_enough_within_the_policy_from_deployment_to_removal(
    node, api, watcher
):
    controller = node.juju(MODEL, roles=False)
    await controller.add_model()
    roles = "\n---\n".join((rights.roles(MODEL), rights.admission_policy(MODEL)))
    node.testbed.kubectl("apply", "-f", "-", text=roles)
    image = node.charms.payload_image
    sleep = workloads.container("main", image, ["python3", "-c", "import time; time.sleep(9999)"])
    early = workloads.deployment("early", MODEL, workloads.template([sleep]))
    await api.apply(early)
    await observer.eventually(lambda: others_are_done(api, MODEL), 60, "Juju and istiod at rest")
    before = await objects.snapshot(api)
    try:
        await controller.deploy(node.charms.integrator, juju.APPLICATION, trust=False)
        status = await controller.wait_until_in_mesh(200)
        assert status.in_mesh == (1, 1)
        pods = await api.list("Pod", MODEL, "app=early")
        (pod,) = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        assert "sidecar.istio.io/status" in pod["metadata"]["annotations"]

        classic = workloads.CLASSIC if node.kind.native else {}
        await api.apply(workloads.sleeper("done", MODEL, image, seconds=2, annotations=classic))

        async def is_complete():
            job = await api.get("Job", "done", MODEL)
            return job.get("status", {}).get("succeeded")

        await observer.eventually(is_complete, 60, "the classic Job complete")
        await api.delete("Job", "done", MODEL)
        unit = f"{juju.APPLICATION}/0"
        diagnosed = await controller.do("run", unit, "diagnose")
        assert "not known" not in json.dumps(diagnosed), diagnosed
        log = await controller.report()
        assert "Traceback" not in log
        await controller.remove(juju.APPLICATION)
        await objects.until_same(api, before, 90)
    finally:
        node.testbed.kubectl("delete", "-f", "-", text=roles)
        await api.delete("Namespace", MODEL)
