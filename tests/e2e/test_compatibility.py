"""The main job, the guard and the native decision on a node, with the switches of older Istios.

One istiod after the other takes the place of the last, and the model stays.
"""

import asyncio

import pytest

from testbed import mesh
from testbed.kit import observer, stage, training, workloads
from tests import echo, profiles
from tests.e2e import ingress_world as world
from tests.e2e import juju_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.cluster("tomorrow")]

MODEL = "lines"
CONSUMERS = ("kubeflow-dashboard", world.AUTH, "kfp-ui")
GUARDED = "/pipeline/x"
FIRST = "first"


@pytest.fixture(scope="module")
def place(node):
    """A model with data to train on, and routes behind the shared gateway."""
    with world.Place(node, MODEL) as found:
        found.deploy(node.charms.integrator)
        found.serve(CONSUMERS)
        found.integrate(CONSUMERS)
        yield found
    mesh.install(node.testbed, mesh.installation(classic_sidecars=not node.kind.native))


@pytest.fixture
async def on(place, node, api, watcher):
    """A stage for the training job, with its data."""
    found = stage.Stage(node.kind, api, node.juju(MODEL, roles=False), node.charms, watcher)
    await api.apply(*workloads.digits(MODEL, found.image))
    yield found
    await training.clear_jobs(api, MODEL)

    async def are_gone():
        pods = await api.list("Pod", MODEL)
        return all(each["spec"]["restartPolicy"] == "Always" for each in pods)

    # The next training job's have the same names.
    await observer.eventually(are_gone, 60, "the jobs' pods gone")


@pytest.mark.parametrize(("line", "native"), profiles.NATIVE.items())
async def test_main_job_and_guard_hold_on_a_node_with_the_profile(place, on, line, native):
    installation = mesh.installation(compatibility=line)
    await asyncio.to_thread(mesh.install, place.node.testbed, installation)

    async def decides():
        return (await juju_world.shown(on.api)).native == native

    await observer.eventually(decides, 60, f"istiod's own decision of {line}")
    await asyncio.to_thread(place.touch)
    said = "native sidecars" if native else "classic sidecars, native in Jobs"
    await on.juju.wait_for("active", 120, words=f" {said} ")
    await on.juju.wait_until_in_mesh(120)

    await on.observer.until(lambda: on.is_ready("digits", in_mesh=True), 120, "data to download")
    await on.api.apply(workloads.first_request(FIRST, MODEL, on.image))
    await training.run_jobs(on, MODEL)
    await on.observer.succeeded(MODEL, FIRST)
    (pod,) = on.observer.timeline.select(MODEL, {"job-name": FIRST})
    assert "istio-proxy" in {each["name"] for each in pod.pod["spec"]["initContainers"]}

    assert await asyncio.to_thread(place.is_open)
    stranger = await asyncio.to_thread(place.browser().get, GUARDED)
    assert (stranger.status, stranger.headers["location"]) == (302, echo.LOGIN)
