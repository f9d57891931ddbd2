"""Applications on a node that work without a sidecar and could not start with one."""

import pytest

from testbed.kit import juju, observer, workloads
from testbed.kit.timeline import PROXY, is_ready
from tests.e2e import pods

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.cluster("today")]

MISSING_IMAGE = "localhost/nowhere/proxyv2:9.9"


def sleeping(world, name, *, annotations=None, inits=()):
    """A Deployment of one pod that waits."""
    wait = ["python3", "-c", "import time; time.sleep(1e9)"]
    container = workloads.container("main", world.node.charms.payload_image, wait)
    template = workloads.template([container], annotations=annotations)
    template["spec"]["terminationGracePeriodSeconds"] = 1
    if inits:
        template["spec"]["initContainers"] = list(inits)
    return workloads.deployment(name, world.model, template)


async def until_ready(world, name, *, in_mesh, within=240):
    """Wait until a Deployment's only pod is Ready, with or without a sidecar; return it."""

    async def ready():
        found = await pods.live(world.api, world.model, f"app={name}")
        fits = [pod for pod in found if is_ready(pod) and pods.has_proxy(pod) is in_mesh]
        return fits[0] if len(found) == 1 and fits else None

    return await observer.eventually(ready, within, f"{name} Ready, in the mesh: {in_mesh}")


def helper(world):
    """A native helper whose startup probe istiod leads to the proxy."""
    probe = {
        "httpGet": {"path": "/", "port": 9801},
        "periodSeconds": 1,
        "failureThreshold": 30,
    }
    return workloads.container(
        "db-proxy",
        world.node.charms.payload_image,
        ["python3", "-m", "http.server", "9801"],
        restartPolicy="Always",
        startupProbe=probe,
    )


async def test_pod_that_cannot_start_with_a_classic_proxy_is_left_running(world):
    await world.api.apply(sleeping(world, "orders", inits=[helper(world)]))
    before = await until_ready(world, "orders", in_mesh=False)
    await world.deploy()
    await until_ready(world, "stays", in_mesh=True)
    await world.juju.until(lambda status: "orders" in status.message, 240, "names orders")
    (after,) = await pods.live(world.api, world.model, "app=orders")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert is_ready(after)


async def test_pod_that_cannot_start_with_a_classic_proxy_gets_a_native_one(world):
    await world.api.apply(sleeping(world, "orders", inits=[helper(world)]))
    await until_ready(world, "orders", in_mesh=False)
    await world.juju.do(
        "deploy",
        world.node.charms.integrator.path,
        juju.APPLICATION,
        resources=world.node.charms.integrator.resources,
        config={"job-sidecars": "auto"},
    )
    pod = await until_ready(world, "orders", in_mesh=True, within=300)
    assert PROXY not in [each["name"] for each in pod["spec"]["containers"]]


async def test_only_one_application_is_lost_where_no_replacement_starts(world):
    names = [f"app-{number}" for number in range(6)]
    image = {"sidecar.istio.io/proxyImage": MISSING_IMAGE}
    stays = {"spec": {"template": {"metadata": {"annotations": image}}}}
    await world.api.patch("Deployment", "stays", world.model, stays)
    await world.api.apply(*(sleeping(world, name, annotations=image) for name in names))
    before = {}
    for name in (*names, "stays"):
        before[name] = (await until_ready(world, name, in_mesh=False))["metadata"]["uid"]
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
