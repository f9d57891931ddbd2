"""Istio is upgraded, uninstalled and installed again, and the charm follows where it stands."""

import asyncio
import json
import subprocess

import pytest

from testbed import istio, mesh, programs
from testbed.kit import istiod, juju, observer, workloads
from tests import rights
from tests.e2e import life_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.cluster("tomorrow")]

CANARY = "canary"
OLD = "2 with an old proxy: restart-stale"


@pytest.fixture
async def world(node, api, request):
    """A model of the test's own, gone afterwards, and the cluster's Istio as it was."""
    async with life_world.model(node, api, request.node.name) as made:
        image = node.charms.payload_image
        wait = ["python3", "-c", "import time; time.sleep(1e9)"]
        template = workloads.template([workloads.container("main", image, wait)])
        await api.apply(workloads.deployment("goes", made.model, template))
        try:
            yield made
        finally:
            for item in (*canary(), *await tag(api)):
                metadata = item["metadata"]
                await api.delete(item["kind"], metadata["name"], metadata.get("namespace", ""))
            installation = mesh.installation(classic_sidecars=not node.kind.native)
            await asyncio.to_thread(mesh.install, node.testbed, installation)


def canary():
    """What the second istiod has for itself; the gateway and the kinds are there already."""
    manifests = istio.render(mesh.installation(revision=CANARY))
    items = [
        item
        for path in (manifests.settings, manifests.workloads)
        for item in json.loads(path.read_text())["items"]
    ]
    return [
        item
        for item in items
        if CANARY in item["metadata"]["name"]
        and item["metadata"].get("namespace") in (None, istio.SYSTEM)
    ]


async def tag(api):
    """The webhook configuration of the tag, if there is one."""
    kind, name = "MutatingWebhookConfiguration", "istio-revision-tag-default"
    found = await api.find(kind, name)
    return [{"kind": kind, **found}] if found else []


def istioctl(testbed, *arguments):
    """Run istioctl as an operator would."""
    charts = programs.directory("istio") / "share" / "manifests"
    command = [programs.binary("istioctl"), *arguments, f"--manifests={charts}"]
    subprocess.run(command, env=testbed.environment, check=True, capture_output=True, text=True)


async def settled(world, words="", without="\0", within=240):
    """Wait until the unit is Active and says so."""

    def fits(status):
        return status.is_complete and words in status.message and without not in status.message

    return await world.juju.until(fits, within, f"Active, {words}")


async def revisions(world):
    """The revision of each application's proxy."""
    return {
        pod["metadata"]["labels"]["app"]: json.loads(
            pod["metadata"]["annotations"]["sidecar.istio.io/status"]
        )["revision"]
        for pod in await world.api.list("Pod", world.model, "app")
        if "deletionTimestamp" not in pod["metadata"]
    }


async def renew(world, revision):
    """Have old proxies renewed by the action, first only as a rehearsal."""
    before = await revisions(world)
    unit = f"{juju.APPLICATION}/0"
    rehearsal = await world.juju.do("run", unit, "restart-stale", {"dry-run": True})
    assert all(name in json.dumps(rehearsal["results"]) for name in ("stays", "goes"))
    assert await revisions(world) == before
    outcome = await world.juju.do("run", unit, "restart-stale")
    assert outcome["status"] == "completed"
    await settled(world, without="old proxy", within=300)
    assert await revisions(world) == {"stays": revision, "goes": revision}


async def incarnation(world):
    """What changes when the unit's pod is replaced or a container of it starts again."""
    pod = await world.pod()
    restarts = {each["name"]: each["restartCount"] for each in pod["status"]["containerStatuses"]}
    return pod["metadata"]["uid"], restarts


async def test_canary_upgrade_and_a_new_installation_are_followed(world, api, node):
    names = {name: f"{name}-{CANARY}" for name in ("istio", "istio-sidecar-injector")}
    roles = rights.roles(world.model, also=names)
    await asyncio.to_thread(node.testbed.kubectl, "apply", "-f", "-", text=roles)
    await world.deploy()
    await world.active(in_mesh=2)
    before = await incarnation(world)
    assert await revisions(world) == {"stays": "default", "goes": "default"}

    await api.apply(*canary())
    await available(api, f"istiod-{CANARY}")
    await settled(world, "istio-system/istiod ", without="old proxy")
    await asyncio.to_thread(
        istioctl, node.testbed, "tag", "set", "default", "--revision", CANARY, "--overwrite", "-y"
    )
    status = await settled(world, OLD)
    assert f"istio-system/istiod-{CANARY}" in status.message
    # Ready for a minute before it may be replaced, as everything else.
    await renew(world, CANARY)

    old = istiod.Istiod(api)
    await old.remove()
    await settled(world, f"istiod-{CANARY}")
    for item in (*canary(), *await tag(api)):
        metadata = item["metadata"]
        await api.delete(item["kind"], metadata["name"], metadata.get("namespace", ""))
    await world.juju.wait_for("waiting", 60, words="istiod")
    installation = mesh.installation(classic_sidecars=not node.kind.native)
    await asyncio.to_thread(mesh.install, node.testbed, installation)
    status = await settled(world, OLD)
    assert "istio-system/istiod " in status.message
    await renew(world, "default")
    assert await incarnation(world) == before
    await world.no_surprises()


async def available(api, name):
    """Wait until a Deployment of Istio's serves."""

    async def is_available():
        found = await api.find("Deployment", name, istio.SYSTEM)
        return found and found.get("status", {}).get("availableReplicas")

    await observer.eventually(is_available, 90, f"{name} available")
