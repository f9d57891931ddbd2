"""Applications on a node that work without a sidecar and do not start with one."""

import pytest

from testbed.kit import observer, workloads
from testbed.kit.timeline import is_ready
from tests.e2e import pods

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.cluster("today")]

MISSING_IMAGE = "localhost/nowhere/proxyv2:9.9"


def sleeping(world, name, annotations):
    """A Deployment of one pod that waits."""
    wait = ["python3", "-c", "import time; time.sleep(1e9)"]
    container = workloads.container("main", world.node.charms.payload_image, wait)
    template = workloads.template([container], annotations=annotations)
    template["spec"]["terminationGracePeriodSeconds"] = 1
    return workloads.deployment(name, world.model, template)


async def until_ready(world, name):
    """Wait until a Deployment's only pod is Ready without a sidecar; return it."""

    async def ready():
        found = await pods.live(world.api, world.model, f"app={name}")
        fits = [pod for pod in found if is_ready(pod) and not pods.has_proxy(pod)]
        return fits[0] if len(found) == 1 and fits else None

    return await observer.eventually(ready, 240, f"{name} Ready without a sidecar")


async def test_only_one_application_is_lost_where_no_replacement_starts(world):
    names = [f"app-{number}" for number in range(6)]
    image = {"sidecar.istio.io/proxyImage": MISSING_IMAGE}
    stays = {"spec": {"template": {"metadata": {"annotations": image}}}}
    await world.api.patch("Deployment", "stays", world.model, stays)
    await world.api.apply(*(sleeping(world, name, image) for name in names))
    before = {}
    for name in (*names, "stays"):
        before[name] = (await until_ready(world, name))["metadata"]["uid"]
    await world.deploy()
    status = await world.juju.wait_for("blocked", 400)
    lost = []
    for name, uid in before.items():
        found = await pods.live(world.api, world.model, f"app={name}")
        if [pod["metadata"]["uid"] for pod in found if is_ready(pod)] != [uid]:
            lost.append(name)
    assert len(lost) == 1
    assert lost[0] in status.message
    assert "Image" in status.message
    # Once the cause is mended convergence goes on by itself.
    mended = {"spec": {"template": {"metadata": {"annotations": {next(iter(image)): None}}}}}
    for name in before:
        await world.api.patch("Deployment", name, world.model, mended)
    await world.active(within=400, in_mesh=len(before))
