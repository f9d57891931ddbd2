"""An istiod outside of the cluster, which calls its injector by URL: the model joins all the same.

One model goes through all of it: it is deployed in the worst order, trains, and is brought into
the mesh a second time while istiod is cut off, killed, and given another authority.
"""

import asyncio
import contextlib
import dataclasses
import json

import pytest

from testbed import istio, kubernetes, mesh
from testbed.juju import client
from testbed.kit import bundle, clusters, istiod, juju, objects, observer, training, workloads
from tests.e2e import conftest

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

UNIT = f"{juju.APPLICATION}/0"
LATE = ("late-a", "late-b", "late-c", "late-d")
"""Workloads that come while there is no injector."""
AUTHORITY = "istio-ca-secret"
"""Where istiod keeps the key of its own authority."""
AT_ONCE = 2
"""The default of convergence-max-unavailable."""


@pytest.fixture(scope="module")
def external_node(root):
    """A cluster like today's whose istiod is elsewhere."""
    kind = dataclasses.replace(clusters.KINDS["today"], name="external")
    options = dataclasses.replace(kind.options, external_istiod=True)
    with conftest.running(kind, options) as found:
        yield found


@pytest.fixture(scope="module")
def deployed(external_node):
    """The charm, deployed in the worst order; the stage that this left."""
    return conftest.played(external_node, bundle.prepare, bundle.worst_order)


@pytest.fixture
async def on(external_node, deployed):
    """A stage for the steps that demo and tests share."""
    async with kubernetes.Api.from_kubeconfig(external_node.testbed.kubeconfig) as api:
        watching = observer.Observer()
        async with watching.following(api):
            yield conftest.make_stage(external_node, api, watching)


async def test_nothing_of_istiod_is_in_the_cluster_but_its_url(on, external_node):
    assert await on.api.list("Deployment", istio.SYSTEM) == []
    assert await on.api.list("Service", istio.SYSTEM) == []
    assert await on.api.find("ConfigMap", "istio", istio.SYSTEM) is None
    assert await on.api.find("ConfigMap", "istio-ca-root-cert", on.model)


async def test_deployed_in_the_worst_order_everything_is_in_the_mesh(on, external_node):
    status = await on.juju.wait_until_in_mesh(60)
    assert status.in_mesh == (3, 3)
    assert f"https://{external_node.testbed.plan.istiod}:15017/inject" in status.message
    assert on.kind.backend in status.message


async def test_training_job_succeeds_without_a_failed_download(on):
    await training.with_us(on)
    await training.clear_jobs(on.api, on.model)


async def test_diagnose_names_what_is_not_known_from_here(on):
    try:
        outcome = await on.juju.do("run", UNIT, "diagnose", {"format": "json"})
    except client.ActionFailedError as error:
        outcome = error.outcome
    found = json.loads(outcome["results"]["report"])
    said = {each["check"]: (each["level"], each["seen"], each["next"]) for each in found}
    assert said["istiod"][0] == "fine"
    (level, seen, command) = said["settings"]
    assert level == "doubtful"
    assert "it is not known whether sidecars let charms call Juju's controller" in seen
    assert [each for each in found if each["level"] == "broken"] == []
    option, _, value = command.partition("istio-integrator ")[2].partition("=")
    await on.juju.config(juju.APPLICATION, **{option: value.strip("'")})
    outcome = await on.juju.do("run", UNIT, "diagnose", {"format": "json"})
    checks = [each["check"] for each in json.loads(outcome["results"]["report"])]
    assert "settings" not in checks
    await on.juju.config(juju.APPLICATION, **{option: ""})


async def test_model_converges_while_istiod_is_cut_off_killed_and_given_another_authority(
    on, external_node
):
    testbed = external_node.testbed
    await on.istiod.remove()
    await on.api.apply(*(sleeping(on, name) for name in LATE))
    await on.observer.until(lambda: all(map(on.is_ready, LATE)), 90, "the late ones Ready")
    await on.istiod.install()

    def bare():
        found = (pod for name in LATE for pod in on.pods_of(name))
        return {pod.uid for pod in found if pod.proxy is None}

    def inside():
        return [name for name in LATE if on.is_ready(name, in_mesh=True)]

    before = bare()
    assert len(before) == len(LATE)
    await on.observer.until(lambda: len(bare()) < len(LATE), 240, "the first eviction")
    await asyncio.to_thread(mesh.stop, testbed)
    try:
        left = bare()
        await on.juju.set(juju.APPLICATION, log_level="debug")
        await on.juju.wait_for("waiting", 120, words="does not inject")
        # What was evicted before the cut may be missing, and nothing more is taken meanwhile.
        assert len(left - bare()) <= AT_ONCE
    finally:
        await asyncio.to_thread(mesh.start, testbed)
    await on.observer.until(inside, 240, "one of them in the mesh")
    await killed(testbed)
    known = await authority(on)
    async with another_authority(on, testbed):
        await on.observer.until(lambda: inside() == list(LATE), 300, "all of them in the mesh")
        assert await authority(on) != known
    await on.juju.config(juju.APPLICATION, log_level="info")
    status = await on.juju.wait_until_in_mesh(120)
    assert status.in_mesh == (3 + len(LATE), 3 + len(LATE))
    for name in LATE:
        await on.api.delete("Deployment", name, on.model)


async def killed(testbed):
    """Kill istiod, and wait until it is back."""
    count = testbed.components()["istiod"]["restarts"]
    await asyncio.to_thread(testbed.restart, "istiod")

    async def is_back():
        found = testbed.components()["istiod"]
        return found["restarts"] > count and found["ready"]

    await observer.eventually(is_back, 60, "istiod killed and back")


@contextlib.asynccontextmanager
async def another_authority(on, testbed):
    """Have istiod make itself a new authority, and give it the old one back."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        **await on.api.get("Secret", AUTHORITY, istio.SYSTEM),
    }
    await on.api.delete("Secret", AUTHORITY, istio.SYSTEM)
    await killed(testbed)
    yield
    await on.api.delete("Secret", AUTHORITY, istio.SYSTEM)
    await on.api.create(istiod.creatable(secret))
    await killed(testbed)


async def authority(on):
    """The authority by which the API server knows the injector."""
    found = await on.api.get("MutatingWebhookConfiguration", "istio-sidecar-injector")
    return found["webhooks"][0]["clientConfig"]["caBundle"]


def sleeping(on, name):
    """A workload that waits, with nothing to keep it from being replaced."""
    wait = ["python3", "-c", "import time; time.sleep(1e9)"]
    template = workloads.template([workloads.container("main", on.image, wait)])
    return workloads.deployment(name, on.model, template)


async def test_removal_leaves_the_cluster_as_it_was(on, deployed):
    await on.juju.remove(juju.APPLICATION)
    again = [*deployed.istiod.keys, objects.Key("", "Secret", istio.SYSTEM, AUTHORITY)]
    await objects.until_same(on.api, deployed.before, 90, recreated=again)
