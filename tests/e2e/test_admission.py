"""Admission on a real node: without istiod, without its own servers, and while it changes.

The model is of its own. Meanwhile the applications that the main job needs grow a minute old.
"""

import asyncio
import contextlib
import dataclasses
import json
import ssl
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


@dataclasses.dataclass(frozen=True)
class Creation:
    """What became of one dry-run pod."""

    seconds: float
    held: bool = False
    injected: bool = False
    refused: str = ""


def pod(**labels):
    spec = {"containers": [{"name": "main", "image": "never-created.invalid/app"}]}
    metadata = {"generateName": "load-", "namespace": MODEL, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def create(api, **labels):
    """Have a pod created without keeping it."""
    started = time.monotonic()
    try:
        created = await api.create(pod(**labels), dry_run=True)
    except kubernetes.ApiError as error:
        return Creation(time.monotonic() - started, refused=error.message)
    annotations = created["metadata"].get("annotations", {})
    names = [one["name"] for one in created["spec"]["containers"]]
    names += [one["name"] for one in created["spec"].get("initContainers", [])]
    held = APPLIED in annotations and json.loads(annotations[CONFIG]) != {}
    return Creation(time.monotonic() - started, held, "istio-proxy" in names)


@contextlib.asynccontextmanager
async def load(api, workers=4, pause=0.02):
    """Create pods all the time while the block runs."""
    done: list[Creation] = []
    stop = asyncio.Event()

    async def work():
        while not stop.is_set():
            done.append(await create(api))
            await asyncio.sleep(pause)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(workers):
            tasks.create_task(work())
        try:
            yield done
        finally:
            stop.set()


async def more(done, count=50):
    """Wait until so many more pods were created."""
    want = len(done) + count

    async def are_created():
        return len(done) >= want

    await observer.eventually(are_created, 60, f"{count} more pods created", every=0.1)


def summary(name, done):
    seconds = sorted(one.seconds for one in done)
    print(
        f"{name}: {len(done)} pods, {sum(one.held for one in done)} held,"
        f" {sum(bool(one.refused) for one in done)} refused,"
        f" median {seconds[len(seconds) // 2] * 1000:.0f} ms, longest {seconds[-1]:.2f} s"
    )


@pytest.fixture(scope="module")
def charm(node):
    """The charm in its model, with the webhook at work."""

    async def deploy():
        async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
            controller = node.juju(MODEL)
            if not await api.find("Namespace", MODEL):
                await controller.add_model()
                await controller.deploy(node.charms.integrator, APP)
            await controller.wait_for("active", 120, words="admission: webhook")

    asyncio.run(deploy())
    return node.juju(MODEL)


@pytest.fixture
async def settings(api, charm):
    """Read what the webhook's servers are told, and its version."""

    async def read():
        found = await api.get("ConfigMap", SERVERS, MODEL)
        return found["metadata"]["resourceVersion"], json.loads(found["data"]["settings.json"])

    return read


async def ready_pods(api, labels):
    """The pods of a kind that are Ready and not on their way out."""
    return [
        item for item in await api.list("Pod", MODEL, labels=labels) if timeline.is_ready(item)
    ]


async def restarted(api, labels, *, within=90):
    """Delete all pods of a kind and wait until as many new ones are Ready."""
    before = {item["metadata"]["uid"] for item in await api.list("Pod", MODEL, labels=labels)}
    for item in await api.list("Pod", MODEL, labels=labels):
        await api.delete("Pod", item["metadata"]["name"], MODEL)

    async def are_back():
        found = await ready_pods(api, labels)
        new = [item for item in found if item["metadata"]["uid"] not in before]
        return new if len(new) >= len(before) else None

    return await observer.eventually(are_back, within, f"pods {labels} again")


async def test_without_istiod_our_own_pods_restart_and_others_are_refused_by_it(
    node, api, charm, settings
):
    before = await settings()
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
        other = await create(api)
        assert 'failed calling webhook "namespace.sidecar-injector.istio.io"' in other.refused
        assert "istio-integrator" not in other.refused
        # The charm's agent came back with its pod and has looked at everything again.
        await charm.wait_for("waiting", 90, words="new pods are refused")
        assert await settings() == before
    finally:
        await asyncio.to_thread(mesh.start, node.testbed)
    await charm.wait_for("active", 90)
    assert await settings() == before
    assert (await create(api)).held


@contextlib.asynccontextmanager
async def at_zero(api):
    """Have no servers while the block runs, whatever the charm does about it."""

    async def insist():
        while True:
            await api.patch("Deployment", SERVERS, MODEL, {"spec": {"replicas": 0}})
            await asyncio.sleep(0.2)

    task = asyncio.create_task(insist())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_without_its_servers_pods_are_created_as_if_we_were_not_there(api, charm):
    async with load(api, workers=2) as done:
        async with at_zero(api):

            async def is_seen():
                return sum(not one.held for one in done) > 50

            await observer.eventually(is_seen, 40, "pods that nobody prepared")

        async def is_repaired():
            return len(await ready_pods(api, WEBHOOK_PODS)) == 2 and (await create(api)).held

        # The charm is told, and repairs it.
        started = time.monotonic()
        await observer.eventually(is_repaired, 60, "the webhook's pods again")
        print(f"repaired after {time.monotonic() - started:.1f} s")
    summary("servers at zero", done)
    summary("of these unprepared", [one for one in done if not one.held])
    assert not [one.refused for one in done if one.refused]
    # Without our own limit the API server waits ten seconds for a webhook.
    assert max(one.seconds for one in done) < 9
    assert all(one.injected for one in done)
    await charm.wait_for("active", 60, words="webhook")


async def serial(api):
    """The certificates that the servers show."""
    shown = set()
    for item in await ready_pods(api, WEBHOOK_PODS):
        address = item["status"]["podIP"], 8443
        shown.add(await asyncio.to_thread(ssl.get_server_certificate, address))
    return shown


@pytest.mark.long
async def test_certificates_rotate_while_pods_are_created_and_none_is_skipped(node, api, charm):
    before = await serial(api)
    async with load(api) as done:
        await more(done)
        started = time.monotonic()
        await node.juju(MODEL).do("run", f"{APP}/0", "rotate-certificates")

        async def is_shown():
            return not (await serial(api) & before)

        await observer.eventually(is_shown, 120, "the new certificate on every server")
        print(f"every server shows the new certificate after {time.monotonic() - started:.1f} s")
        await more(done)
    summary("rotation", done)
    assert len(done) > 100
    assert [one for one in done if not one.held] == []
