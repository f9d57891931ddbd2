"""Istio is upgraded by revision as the how-to page has it, while everybody goes on asking.

The page's commands are run as they stand, on a node whose istiod has a revision. The second time
the revisions have changed places, and the gateway is the model's own.
"""

import contextlib
import dataclasses
import json
import re

import pytest
import yaml

from testbed import istio, mesh
from testbed.juju import bootstrap
from testbed.kit import clusters
from tests import echo, gateway_client, waiting
from tests.e2e import conftest, pages
from tests.e2e import ingress_world as world

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

APP = world.APP
CONSUMERS = ("kubeflow-dashboard", world.AUTH, "kfp-ui")
LATE = "katib-ui"
"""Whose route comes last."""
REVISIONS = ("1-30", "1-31")
TAG = "prod-stable"
REPLICAS = 2
OLD = "with an old proxy: restart-stale"
INSTALLING = "Install the new revision beside the old one"


@pytest.fixture(scope="module")
def node(root):
    """A cluster like today's whose istiod has a revision, and nothing else of Istio."""
    kind = dataclasses.replace(clusters.KINDS["today"], name="canary")
    options = dataclasses.replace(kind.options, revision=REVISIONS[0], extras=())
    with conftest.running(kind, options) as found:
        yield found


@dataclasses.dataclass
class World(world.Place):
    """A model behind a gateway, and the two revisions that it moves between."""

    old: str = ""
    new: str = ""
    is_own: bool = False
    """Whether the gateway is the model's own."""

    @property
    def gateway(self):
        """The namespace and the Service of the gateway."""
        if self.is_own:
            return self.juju.model, f"{APP}-gateway"
        return istio.INGRESS, istio.GATEWAY

    def revisions(self, namespace, labels):
        """The revisions of the proxies of pods that stay, each with how many there are."""
        query = ("get", "pods", "-n", namespace, "-l", labels, "-o", "json")
        found = {}
        for pod in json.loads(self.kubectl(*query))["items"]:
            if "deletionTimestamp" not in pod["metadata"]:
                status = pod["metadata"]["annotations"].get("sidecar.istio.io/status", "{}")
                revision = json.loads(status).get("revision", "")
                found[revision] = found.get(revision, 0) + 1
        return found

    def asks(self):
        """The istiods that the gateway's proxies ask."""
        namespace, service = self.gateway
        labels = f"istio={service if self.is_own else 'ingressgateway'}"
        query = ("get", "pods", "-n", namespace, "-l", labels, "-o", "json")
        pods = json.loads(self.kubectl(*query))["items"]
        return set(re.findall(r"(istiod[\w-]*)\.istio-system\.svc:15012", json.dumps(pods)))

    def has_only_the_new_one(self):
        """Whether the new istiod is the only one."""
        found = self.kubectl("get", "deployments", "-n", istio.SYSTEM, "-o", "name").split()
        return found == [f"deployment.apps/istiod-{self.new}"]

    def caller(self, name):
        """Have a pod that asks others, which nobody replaces; return how it is named."""
        body = yaml.safe_dump(_caller(name, self.juju.model, self.node.charms.payload_image))
        self.node.testbed.apply(body)
        where = ("-n", self.juju.model, f"deployment/{name}", "--timeout=120s")
        self.kubectl("rollout", "status", *where)
        return f"deployment/{name}"


def _caller(name, namespace, image):
    (deployment, *_) = yaml.safe_load_all(world.servers(namespace, {"x": 1}, image))
    labels = {"app": name}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container |= {"name": "main", "command": ["python3", "-c", "import time; time.sleep(1e9)"]}
    del container["readinessProbe"]
    deployment["metadata"]["name"] = name
    deployment["spec"]["selector"]["matchLabels"] = labels
    deployment["spec"]["template"]["metadata"] = {
        "labels": labels,
        "annotations": {"istio-integrator.charmhub.io/restart-pods": "disabled"},
    }
    return deployment


def servers(namespace, image):
    """Applications with two replicas that go on serving after they were told to end."""
    services = {name: world.port_of(name) for name in (*CONSUMERS, LATE)}
    items = list(yaml.safe_load_all(world.servers(namespace, services, image)))
    items[0]["spec"]["replicas"] = REPLICAS
    items[0]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 10
    return yaml.safe_dump_all(items)


@pytest.fixture(params=["shared", "own"])
def place(node, request, tmp_path):
    """A model with routes behind a gateway, on the revision that is there."""
    is_own = request.param == "own"
    old, new = REVISIONS[:: -1 if is_own else 1]
    testbed, charm = node.testbed, node.charms.integrator
    juju = bootstrap.juju(testbed, f"canary-{request.param}")
    found = World(node, juju, "", old=old, new=new, is_own=is_own)
    # The testbed's own way leaves out the labels by which istioctl uninstalls.
    before = page_of(found, tmp_path, new=old)
    before.run(before.sections[INSTALLING][0])
    testbed.apply(world.TENANT)
    testbed.apply(world.servers("shop", {"web": world.FIRST_PORT}, node.charms.payload_image))
    juju.add_model()
    options = {"hosts": gateway_client.HOST} if is_own else world.NAMED
    config = {**charm.config, **options}
    juju.deploy(charm.path, APP, config=config, resources=charm.resources, trust=True)
    juju.wait_for(APP)
    testbed.apply(servers(juju.model, node.charms.payload_image))
    found.integrate(CONSUMERS)
    namespace, service = found.gateway
    found.says(f"{len(CONSUMERS)} routes served by {namespace}/{service}", 300)
    found.address = world.address_of(testbed, namespace, service)
    assert waiting.eventually(found.is_open, 120)
    yield found
    found.close()
    juju.destroy_model(force=True)
    testbed.kubectl("delete", "namespace", "shop", "--timeout=120s")
    tagged = ("mutatingwebhookconfigurations,services", "-n", istio.SYSTEM)
    testbed.kubectl("delete", *tagged, "-l", f"istio.io/tag={TAG}")


def page_of(place, folder, *, old="", new):
    """The page, with the revisions that it is about, of an Istio with classic sidecars."""
    installation = mesh.installation(revision=new, classic_sidecars=True)
    overlay = folder / f"{new}.yaml"
    overlay.write_text(json.dumps(istio.overlay(installation)))
    changes = {**dict(zip(REVISIONS, (old, new), strict=True)), "istio.yaml": str(overlay)}
    return pages.Page(place, "upgrade-istio-by-revision", changes)


def test_upgrade_by_the_page_fails_no_request_and_lets_nobody_in(
    place, tmp_path, figures, request
):
    page = page_of(place, tmp_path, old=place.old, new=place.new)
    (followed,), (installed,), (moved,), (renewed, left), (removed,) = page.sections.values()
    visitor = {"path": "/pipeline/x", "Cookie": echo.COOKIE, "pause": 0.1}
    inside = f"http://kfp-ui.{place.juju.model}.svc:{world.port_of('kfp-ui')}/x"
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(world.Watch(place, has_tenants=not place.is_own))
        visitors = [
            stack.enter_context(place.hammer(fresh=fresh, **visitor)) for fresh in (False, True)
        ]
        with place.asking(place.caller("before"), "main", inside, 20) as before:
            page.run(followed)
            place.says(f"istiod-{place.old} {TAG}")
            page.run(installed)
            watch.go_on()
            page.run(moved)
            place.says(f"istiod-{place.new} {TAG}")
            place.says(OLD)
            after = stack.enter_context(place.asking(place.caller("after"), "main", inside, 20))
            page.run(renewed)
            # The caller of before is nobody's to replace.
            place.says(f", 1 {OLD}", 400)
            watch.go_on()
            assert place.revisions(place.juju.model, "app=servers") == {place.new: REPLICAS}
            assert place.asks() == {f"istiod-{place.new}"}
            assert "before-" in page.run(left)
        place.kubectl("delete", "deployment", "-n", place.juju.model, "before")
        assert waiting.eventually(lambda: OLD not in place.message(), 120), place.message()
        assert "NAME" not in page.run(left).replace("NAME", "", 1)
        page.run(removed)
        assert waiting.eventually(place.has_only_the_new_one, 60)
        goes_on(place, watch)
    answers = {
        "tenants": [each.answers for each in watch.tenants],
        "visitors": [each.answers for each in visitors],
        "intruders": [each.answers for each in watch.intruders],
        "members": [before["answers"], after["answers"]],
    }
    for who, told in answers.items():
        figures[f"{request.node.name}: {who}"] = told
        print(who, told)
    watch.assert_that_all_is_well()
    assert [set(each) for each in answers["visitors"]] == [{200}, {200}]
    assert [set(each) for each in answers["members"]] == [{"200"}, {"200"}]


def goes_on(place, watch):
    """See that pods and routes that come when the old revision has gone are served and guarded."""
    model = place.juju.model
    place.kubectl("scale", "deployment", "-n", model, "servers", f"--replicas={REPLICAS + 1}")
    place.kubectl("rollout", "status", "-n", model, "deployment/servers", "--timeout=120s")
    assert place.revisions(model, "app=servers") == {place.new: REPLICAS + 1}
    place.juju.fake_app(LATE, {"ingress": world.ingress_script(LATE)})
    place.juju.integrate(f"{APP}:ingress", f"{LATE}:ingress")
    path = world.CONSUMERS[LATE]["prefix"]

    def answered():
        return place.browser().get(path, Cookie=echo.COOKIE).echo["port"]

    assert waiting.eventually(lambda: answered() == world.port_of(LATE), 120)
    assert place.browser().get(path).status == 302
    watch.go_on()
