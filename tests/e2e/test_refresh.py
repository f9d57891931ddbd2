"""A charm and an image of two builds, one after the other, under requests; then removed.

The builds have different contracts. At each step no container is started anew, and the unit says
what it misses.
"""

import dataclasses
import io
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest
import yaml

from testbed import pack
from testbed.kit import juju, workloads
from tests import gateway_client, waiting
from tests.e2e import ingress_world as world

MODEL = "ai"
APP = world.APP
ROOT = pathlib.Path(__file__).parents[2]
BUILD = ROOT / "build" / "e2e"
CONTRACT = "lib/integrator_contract/service.py"
LOAD = """
import sys
from testbed import cluster
print(cluster.Testbed(sys.argv[1]).load_images(["workload"])["workload"])
"""
READY = f"{len(world.CONSUMERS)} routes served by istio-ingress/istio-ingressgateway"
pytestmark = [pytest.mark.cluster("tomorrow"), pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def before(node):
    """A build of the charm and the image whose contract has one more word."""
    source = BUILD / "before"
    shutil.rmtree(source, ignore_errors=True)
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(source, filter="data")
    with (source / CONTRACT).open("a") as file:
        file.write('Word = Literal["of-another-build"]\n')
    argv = [sys.executable, "-c", LOAD, node.testbed.name]
    loaded = subprocess.run(argv, cwd=source, capture_output=True, text=True, check=True)
    image = loaded.stdout.split()[-1]
    assert image != node.charms.integrator.resources["lifecycle-image"]
    return dataclasses.replace(
        node.charms.integrator,
        path=pack.pack(source, source / "build"),
        resources={"lifecycle-image": image},
    )


@pytest.fixture(scope="module")
def opened(node, before):
    """The first build behind a shared gateway, related in the order of a bundle.

    From before it is deployed a tenant and several intruders ask without a pause.
    """
    with world.shared(node, MODEL) as found:
        # What comes before it would be replaced for its sidecar's sake.
        found.deploy(before)
        found.serve(world.CONSUMERS)
        with world.Watch(found) as found.watch:
            found.relate(world.CONSUMERS)
            found.watch.go_on()
            found.watch.assert_that_all_is_well()
            yield found


def refreshed(model, charm, image, words):
    def upgraded():
        return juju.count_hooks(model.juju.debug_log(), APP, "upgrade-charm")

    before = upgraded()
    model.juju.refresh(APP, charm.path, image.resources)
    assert waiting.eventually(lambda: upgraded() > before, 300)
    model.says(words, 300)
    model.watch.assert_that_all_is_well()


def servers(model):
    """The containers of the applications behind the routes: id and restarts of each."""
    path = (
        "{range .items[*].status.containerStatuses[*]}{.containerID} {.restartCount}{'\\n'}{end}"
    )
    return model.kubectl("get", "pods", "-n", MODEL, "-l", "app=servers", "-o", f"jsonpath={path}")


def completes(model, name):
    """Let a Job with a classic sidecar run, and see that it completes."""
    classic = {"seconds": 3, "annotations": workloads.CLASSIC}
    model.apply(workloads.sleeper(name, MODEL, model.image, **classic))
    job = f"job/{name}"
    model.kubectl("wait", "-n", MODEL, job, "--for=condition=Complete", "--timeout=120s")
    model.kubectl("delete", "-n", MODEL, job)


def test_charm_waits_for_its_image_and_goes_on_with_it(opened, before, node):
    now = node.charms.integrator
    were = servers(opened)
    assert were
    completes(opened, "before")
    refreshed(opened, now, before, "lifecycle-image does not fit the charm")
    refreshed(opened, now, now, READY)
    assert waiting.eventually(opened.is_open)
    opened.watch.go_on()
    opened.watch.assert_that_all_is_well()
    completes(opened, "after")
    assert servers(opened) == were
    assert opened.browser().get("/pipeline/x").status in (302, 401, 403)
    log = opened.juju.debug_log()
    assert "Traceback" not in log
    assert opened.watch.asked_in_vain > 0
    tenant = opened.browser()
    assert tenant.get(host=gateway_client.TENANT).status == 200


def test_removal_leaves_the_gateway_as_it_was(opened):
    opened.juju.remove_application(APP)
    opened.juju.wait_gone(APP)
    opened.watch.go_on()
    opened.watch.assert_that_all_is_well()
    kinds = "virtualservices,gateways,envoyfilters,authorizationpolicies"
    left = yaml.safe_load(opened.kubectl("get", kinds, "-A", "-o", "yaml"))["items"]
    assert {item["metadata"]["namespace"] for item in left} == {"shop"}
