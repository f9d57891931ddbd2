"""README.md's command and how-to pages, block by block as they stand, each to its outcome."""

import json
import re

import pytest
import yaml

from testbed.kit import workloads
from tests import waiting
from tests.e2e import pages, pages_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.cluster("tomorrow")]

APP = pages_world.APP
MODEL = "pages"
INJECTION = "istio-injection"
MEMBER = {INJECTION: "enabled"}
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"
NAMESPACES = ("alice", "bob", "batch")


@pytest.fixture(scope="module")
def installed(node):
    """A model in which README.md's command was typed."""
    with pages_world.installed(node, MODEL) as found:
        yield found


@pytest.fixture
def place(installed):
    """The same, with options and applications as they were after each test."""
    before = installed.juju.config(APP)
    yield installed
    installed.clear(before)
    installed.kubectl("delete", "namespace", "--ignore-not-found", *NAMESPACES)
    installed.juju.wait_for(APP)


def sample():
    """The status that README.md promises, but for the version: here images have no tag of it."""
    text = (pages.ROOT / "README.md").read_text()
    promised = re.search(r"active  idle  (.*) · \d+/\d+ pods in mesh$", text, re.MULTILINE)[1]
    return promised.replace("istiod 1.31", "istiod")


def test_command_of_the_readme_brings_the_model_into_the_mesh(place, record_property):
    """README.md."""
    record_property(
        "README: juju deploy until the status says what was found, s", round(place.named, 1)
    )
    record_property("README: juju deploy until every pod is in the mesh, s", round(place.took, 1))
    print(f"found after {place.named:.1f} s, in the mesh after {place.took:.1f} s")
    assert place.message() == f"active: {sample()} · 3/3 pods in mesh"
    assert sample() in place.shell.run("juju status")


def test_page_about_some_workloads_labels_no_namespace_and_injects_those(place, blocks):
    """docs/how-to/only-some-workloads.md."""
    (chosen,) = blocks
    assert place.labels(MODEL)[INJECTION] == "enabled"
    place.run(chosen)
    assert waiting.eventually(lambda: INJECTION not in place.labels(MODEL), 60)
    made = {name: pages_world.has_proxy(place.made(name)) for name in ("kfp-ui", "ml-pipeline")}
    assert made == {"kfp-ui": True, "ml-pipeline": False}


def test_page_about_never_ending_sidecars_has_proxies_end(place, blocks):
    """docs/how-to/never-ending-sidecars.md."""
    configured, stopped = blocks
    place.run(configured)
    place.apply(pages_world.worker("fetch", MODEL, place.image, "vault-agent"))
    gone = waiting.eventually(lambda: place.state("istio-proxy", "fetch") == "terminated", 90)
    assert gone, place.read("pod", "fetch")
    assert place.state("vault-agent", "fetch") == "running"
    place.kubectl("delete", "pod", "-n", MODEL, "fetch", "--now")

    place.juju.config(APP, {"proxy-shutdown": False})
    place.settle()
    place.apply(workloads.namespace("alice", {**MEMBER, **PROFILE}))
    place.apply(pages_world.worker("training-worker-0", "alice", place.image))
    pod = ("training-worker-0", "alice")
    assert waiting.eventually(lambda: place.state("main", *pod) == "terminated", 60)
    assert place.state("istio-proxy", *pod) == "running"
    assert "alice/training-worker-0" in place.run(stopped)
    place.complete(*pod)


def test_page_about_profiles_lists_them_and_leaves_out_those_that_say_so(place, blocks):
    """docs/how-to/profile-namespaces.md."""
    listed, labelled, left = blocks
    missed = workloads.template([workloads.container("main", place.image, pages_world.FOR_EVER)])
    for name in ("alice", "bob"):
        place.apply(workloads.namespace(name, PROFILE), workloads.pod("missed", name, missed))
    place.apply(workloads.namespace("batch", MEMBER))
    place.apply(pages_world.worker("work", "batch", place.image))
    place.kubectl("label", "namespace", "alice", "bob", f"{INJECTION}=enabled")
    for name in ("alice", "bob"):
        place.kubectl("wait", "-n", name, "pod/missed", "--for=condition=Ready", "--timeout=60s")

    def told():
        found = place.run(listed)
        return {name for name in NAMESPACES if f"{name}/missed" in found}

    assert waiting.eventually(lambda: told() == {"alice", "bob"}, 60), place.run(listed)
    assert waiting.eventually(lambda: place.state("main", "work", "batch") == "terminated", 60)
    assert place.state("istio-proxy", "work", "batch") == "running"
    assert "namespace/batch labeled" in place.run(labelled)
    place.complete("work", "batch")
    assert waiting.eventually(lambda: told() == {"bob"}, 60), place.run(listed)
    place.run(left)
    assert waiting.eventually(lambda: told() == set(), 60), place.run(listed)


def test_page_about_upgrades_replaces_the_unit_and_keeps_the_options(place, blocks):
    """docs/how-to/upgrade.md."""
    refreshed, renewed = blocks
    place.juju.config(APP, {"log-level": "debug"})
    options, pod = place.juju.config(APP), place.read("pod", f"{APP}-0")["metadata"]["uid"]
    place.shell.run(refreshed)

    def is_new():
        found = place.read("pod", f"{APP}-0")
        return found and found["metadata"]["uid"] != pod

    assert waiting.eventually(is_new, 120)
    place.says("3/3 pods in mesh")
    place.juju.wait_for(APP)
    assert place.juju.config(APP) == options
    assert "restarting: none" in place.run(renewed)


def test_page_about_debugging_shows_what_is(place, blocks):
    """docs/how-to/debug.md."""
    told, scripted, *_ = blocks
    assert "✓ istiod istio-system/istiod" in place.run(told)
    place.run(scripted)
    rows = json.loads(yaml.safe_load(place.shell.printed)["report"])
    assert {frozenset(row) for row in rows} == {
        frozenset(("check", "level", "message", "seen", "next", "symptoms"))
    }
    assert [row["seen"] for row in rows if row["level"] == "broken"] == []


def test_page_about_ports_has_new_pods_pass_them_by(place, blocks):
    """docs/how-to/exclude-egress-ports.md."""
    for_all, for_some, seen = blocks

    def excluded(name):
        return place.made(name)["metadata"].get("annotations", {}).get(PORTS, "")

    place.run(for_all)
    assert waiting.eventually(lambda: excluded("kfp-ui") == "5432,6379", 60), excluded("kfp-ui")
    place.run(for_some)
    assert waiting.eventually(lambda: not excluded("kfp-ui"), 60)
    assert place.run(seen).endswith("3306")


def test_page_about_workloads_outside_keeps_them_out(place, blocks):
    """docs/how-to/keep-a-workload-out.md."""
    (named,) = blocks
    assert pages_world.has_proxy(place.made("minio"))
    place.run(named)
    assert waiting.eventually(lambda: not pages_world.has_proxy(place.made("minio")), 60)
    assert place.made("minio")["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert pages_world.has_proxy(place.made("kfp-ui"))


def test_page_about_mirrors_points_images_there(place, blocks):
    """docs/how-to/air-gapped.md."""
    (mirrored,) = blocks
    place.run(mirrored)

    def image(name):
        containers = place.made(name, image="nginx:1.29")["spec"]["containers"]
        return next(each["image"] for each in containers if each["name"] == "asked")

    mirror = "registry.internal/hub/library/nginx:1.29"
    assert waiting.eventually(lambda: image("katib-ui") == mirror, 60), image("katib-ui")
    assert image("kfp-ui") == "nginx:1.29"


def test_page_about_roles_grants_what_is_enough(node, blocks, tmp_path):
    """docs/how-to/without-trust.md."""
    model = "untrusted-page"
    deployed, granted, bound, held = blocks
    with pages_world.Place(node, model, {"kubeflow": model, " alice bob": ""}) as place:
        place.shell.run(deployed)
        place.juju.wait_for(APP, "blocked", 120)
        assert "missing permission: " in place.message()
        place.run(granted, tmp_path)
        # As update-status would be, some minutes later.
        place.touch()
        place.juju.wait_for(APP, timeout=120)
        place.run(bound, tmp_path)
        held, _, proof = held.rpartition("kubectl")
        place.run(f"{granted.splitlines()[0]}\n{held}", tmp_path)

        def refusal():
            place.shell.run(f"! kubectl{proof.rstrip()} 2>&1")
            return place.shell.printed

        assert waiting.eventually(lambda: "dry run" in refusal(), 60), refusal()
        place.touch()
        place.juju.wait_for(APP, timeout=120)
        place.juju.remove_application(APP)
        place.juju.wait_gone(APP)
    for file in tmp_path.glob("*.yaml"):
        text = file.read_text().replace("MODEL", model).replace("APPLICATION", APP)
        node.testbed.kubectl("delete", "-f", "-", text=text, check=False)


def test_page_about_cleaning_up_leaves_sidecars_until_the_restart(node, blocks):
    """docs/how-to/clean-up.md."""
    model = "cleaned"
    removed, restarted, stopped, again = blocks
    with pages_world.Place(node, model, {"NAMESPACE": model, "POD": "running"}) as place:
        untouched = place.labels(model)
        place.shell.run(pages_world.DEPLOY)
        place.juju.wait_for(APP, timeout=200)
        app = pages_world.deployment("app", model, place.image, pages_world.FOR_EVER)
        place.apply(app, pages_world.worker("running", model, place.image, seconds=20))
        place.rolled_out("deployment/app")
        place.kubectl("wait", "-n", model, "pod/running", "--for=condition=Ready")
        place.shell.run(removed)
        place.juju.wait_gone(APP)
        assert place.labels(model) == untouched
        assert place.proxies(app="app") == [True]
        place.run(restarted)
        assert waiting.eventually(lambda: place.proxies(app="app") == [False], 60)
        assert waiting.eventually(lambda: place.state("main", "running") == "terminated", 60)
        place.run(stopped)
        place.complete("running", model)

        deploy, _, remove = again.strip().rpartition("\n")
        place.shell.run(deploy)
        place.juju.wait_for(APP, timeout=200)
        place.juju.remove_application(APP, force=True)
        place.juju.wait_gone(APP)
        assert place.labels(model)[INJECTION] == "enabled"
        place.shell.run(deploy)
        place.juju.wait_for(APP, timeout=200)
        place.shell.run(remove)
        place.juju.wait_gone(APP)
        assert place.labels(model) == untouched
