"""Istio is upgraded by revision as the how-to page has it, while everybody goes on asking.

The page's commands are run as they stand, on a node whose istiod has a revision. The second time
the revisions have changed places, and the gateway is the model's own.
"""

import contextlib
import dataclasses
import json
import re

import pytest

from testbed import istio, mesh
from testbed.kit import clusters, workloads
from tests import echo, waiting
from tests.e2e import conftest, pages, pages_world
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
FOLLOWED, INSTALLED, MOVED, RENEWED, LEFT, REMOVED = pages.told(
    "test_upgrade_by_the_page_fails_no_request_and_lets_nobody_in"
)


@pytest.fixture(scope="module")
def node(root):
    """A cluster like today's whose istiod has a revision, and nothing else of Istio."""
    kind = dataclasses.replace(clusters.KINDS["today"], name="canary")
    options = dataclasses.replace(kind.options, revision=REVISIONS[0], extras=())
    with conftest.running(kind, options) as found:
        yield found


class World(world.Place):
    """A model behind a gateway, and the two revisions that it moves between."""

    def __init__(self, node, model, folder, *, is_own):
        self.old, self.new = REVISIONS[:: -1 if is_own else 1]
        self.is_own = is_own
        """Whether the gateway is the model's own."""
        super().__init__(node, model)
        self.shell = self.typing(folder, old=self.old, new=self.new)

    def typing(self, folder, *, old="", new):
        """A shell for the page, with the revisions that it is about, and classic sidecars."""
        installation = mesh.installation(revision=new, classic_sidecars=True)
        overlay = folder / f"{new}.yaml"
        overlay.write_text(json.dumps(istio.overlay(installation)))
        changes = {**dict(zip(REVISIONS, (old, new), strict=True)), "istio.yaml": str(overlay)}
        return pages.Shell(self.node, self.juju.model, changes)

    @property
    def gateway(self):
        """The namespace and the Service of the gateway."""
        if self.is_own:
            return self.juju.model, f"{APP}-gateway"
        return istio.INGRESS, istio.GATEWAY

    def revisions(self, namespace, labels):
        """The revisions of the proxies of pods that stay, each with how many there are."""
        found = {}
        for pod in self.list("pods", namespace, labels):
            if "deletionTimestamp" not in pod["metadata"]:
                status = pod["metadata"]["annotations"].get("sidecar.istio.io/status", "{}")
                revision = json.loads(status).get("revision", "")
                found[revision] = found.get(revision, 0) + 1
        return found

    def asks(self):
        """The istiods that the gateway's proxies ask."""
        namespace, service = self.gateway
        labels = f"istio={service if self.is_own else 'ingressgateway'}"
        found = json.dumps(self.list("pods", namespace, labels))
        return set(re.findall(r"(istiod[\w-]*)\.istio-system\.svc:15012", found))

    def has_only_the_new_one(self):
        """Whether the new istiod is the only one."""
        found = self.kubectl("get", "deployments", "-n", istio.SYSTEM, "-o", "name").split()
        return found == [f"deployment.apps/istiod-{self.new}"]

    def caller(self, name):
        """Have a pod that asks others, which nobody replaces; return how it is named."""
        stays = {"istio-integrator.charmhub.io/restart-pods": "disabled"}
        main = workloads.container("main", self.image, pages_world.FOR_EVER)
        body = workloads.template([main], annotations=stays)
        self.apply(workloads.deployment(name, self.juju.model, body))
        self.rolled_out(f"deployment/{name}")
        return f"deployment/{name}"


def servers(namespace, image):
    """Applications with two replicas that go on serving after they were told to end."""
    services = {name: world.port_of(name) for name in (*CONSUMERS, LATE)}
    deployment, *others = world.servers(namespace, services, image)
    deployment["spec"]["replicas"] = REPLICAS
    deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 10
    return [deployment, *others]


@pytest.fixture(params=["shared", "own"])
def place(node, request, tmp_path):
    """A model with routes behind a gateway, on the revision that is there."""
    is_own = request.param == "own"
    found = World(node, f"canary-{request.param}", tmp_path, is_own=is_own)
    # The testbed's own way leaves out the labels by which istioctl uninstalls.
    found.typing(tmp_path, new=found.old).run(INSTALLED)
    found.apply(*world.shop(found.image))
    with found:
        gateway = "" if is_own else world.SHARED
        found.deploy(node.charms.integrator, gateway_service=gateway)
        found.apply(*servers(found.juju.model, found.image))
        found.integrate(CONSUMERS, "/".join(found.gateway))
        yield found
    found.kubectl("delete", "namespace", "shop", "--timeout=120s")
    tagged = ("mutatingwebhookconfigurations,services", "-n", istio.SYSTEM)
    found.kubectl("delete", *tagged, "-l", f"istio.io/tag={TAG}")


def test_upgrade_by_the_page_fails_no_request_and_lets_nobody_in(place, record_property, request):
    """docs/how-to/upgrade-istio-by-revision.md."""
    page = place.shell
    visitor = {"path": "/pipeline/x", "Cookie": echo.COOKIE, "pause": 0.1}
    inside = f"http://kfp-ui.{place.juju.model}.svc:{world.port_of('kfp-ui')}/x"
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(world.Watch(place, has_tenants=not place.is_own))
        visitors = [
            stack.enter_context(place.hammer(fresh=fresh, **visitor)) for fresh in (False, True)
        ]
        with place.asking(place.caller("before"), "main", inside, 20) as before:
            page.run(FOLLOWED)
            place.says(f"istiod-{place.old} {TAG}")
            page.run(INSTALLED)
            watch.go_on()
            page.run(MOVED)
            place.says(f"istiod-{place.new} {TAG}")
            place.says(OLD)
            after = stack.enter_context(place.asking(place.caller("after"), "main", inside, 20))
            page.run(RENEWED)
            # The caller of before is nobody's to replace.
            place.says(f", 1 {OLD}", 400)
            watch.go_on()
            assert place.revisions(place.juju.model, "app=servers") == {place.new: REPLICAS}
            assert place.asks() == {f"istiod-{place.new}"}
            assert "before-" in page.run(LEFT)
        place.kubectl("delete", "deployment", "-n", place.juju.model, "before")
        assert waiting.eventually(lambda: OLD not in place.message(), 120), place.message()
        assert "NAME" not in page.run(LEFT).replace("NAME", "", 1)
        page.run(REMOVED)
        assert waiting.eventually(place.has_only_the_new_one, 60)
        goes_on(place, watch)
    answers = {
        "tenants": [each.answers for each in watch.tenants],
        "visitors": [each.answers for each in visitors],
        "intruders": [each.answers for each in watch.intruders],
        "members": [before["answers"], after["answers"]],
    }
    for who, told in answers.items():
        record_property(f"{request.node.name}: {who}", told)
        print(who, told)
    watch.assert_that_all_is_well()
    assert [set(each) for each in answers["visitors"]] == [{200}, {200}]
    assert [set(each) for each in answers["members"]] == [{"200"}, {"200"}]


def goes_on(place, watch):
    """See that pods and routes that come when the old revision has gone are served and guarded."""
    model = place.juju.model
    place.kubectl("scale", "deployment", "-n", model, "servers", f"--replicas={REPLICAS + 1}")
    place.rolled_out("deployment/servers")
    assert place.revisions(model, "app=servers") == {place.new: REPLICAS + 1}
    place.juju.fake_app(LATE, {"ingress": world.ingress_script(LATE)})
    place.juju.integrate(f"{APP}:ingress", f"{LATE}:ingress")
    path = world.CONSUMERS[LATE]["prefix"]

    def answered():
        return place.browser().get(path, Cookie=echo.COOKIE).echo["port"]

    assert waiting.eventually(lambda: answered() == world.port_of(LATE), 120)
    assert place.browser().get(path).status == 302
    watch.go_on()
