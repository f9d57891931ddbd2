"""What `diagnose` says of a healthy model on a real node; test_symptoms.py has the faults."""

import dataclasses
import json

import pytest

from testbed import istio as testbed_istio
from testbed.juju import bootstrap, client
from tests import waiting
from tests.e2e import diagnose_world as world

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

MODEL = "ai"
APP = "istio-integrator"
GATEWAY = (testbed_istio.INGRESS, testbed_istio.GATEWAY)


@dataclasses.dataclass
class Place:
    """A model with the charm on a node."""

    node: object
    juju: client.Juju

    def kubectl(self, *argv, text=None):
        return self.node.testbed.kubectl(*argv, text=text).stdout

    def apply(self, text):
        self.kubectl("apply", "-f", "-", text=text)

    def diagnose(self):
        """Run the action; its findings by check, and whether it failed."""
        try:
            outcome = self.juju.run(f"{APP}/0", "diagnose", {"format": "json"})
        except client.ActionFailedError as error:
            outcome = error.outcome
        found = json.loads(outcome["results"]["report"])
        levels = {}
        for each in found:
            levels.setdefault(each["check"], []).append(each)
        assert (outcome["status"] == "failed") == any(each["level"] == "broken" for each in found)
        return levels


def make(node):
    juju = bootstrap.juju(node.testbed, MODEL)
    place = Place(node, juju)
    juju.add_model()
    place.apply(world.objects(MODEL, node.charms.payload_image))
    charm = node.charms.integrator
    named = {"gateway-service": "/".join(GATEWAY), "hosts": "kubeflow.example.com"}
    config = {**charm.config, **named}
    juju.deploy(charm.path, APP, config=config, resources=charm.resources, trust=True)
    for name in (world.CALLER, world.SERVERS):
        place.kubectl("rollout", "status", "-n", MODEL, f"deployment/{name}", "--timeout=90s")
    juju.wait_for(APP, timeout=200)
    # Nobody gives LoadBalancers an address here.
    namespace, name = GATEWAY
    status = '{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}}}'
    place.kubectl(
        *("patch", "service", "-n", namespace, name, "--subresource=status", "-p", status)
    )
    return place


@pytest.fixture(scope="module")
def place(node):
    found = make(node)
    yield found
    found.juju.destroy_model(force=True)


@pytest.fixture(scope="module")
def opened(place):
    """The same, reached from outside by people who are logged in."""
    place.juju.fake_app("kfp-ui", {"ingress": world.ingress()})
    place.juju.fake_app("oidc-gatekeeper", {"ingress-auth": world.authentication()})
    place.juju.integrate(f"{APP}:ingress-auth", "oidc-gatekeeper:ingress-auth")
    place.juju.integrate(f"{APP}:ingress", "kfp-ui:ingress")
    place.juju.wait_for(APP, timeout=200)
    return place


def test_healthy_model_gives_only_check_marks(place):
    found = place.diagnose()
    unwell = [each for lines in found.values() for each in lines if each["level"] != "fine"]
    assert unwell == []
    assert {"istiod", "sidecars", "admission", "rights"} <= found.keys()


@pytest.mark.cluster("tomorrow")
def test_healthy_ingress_gives_only_check_marks(opened):
    waiting.eventually(lambda: "authentication" in opened.diagnose(), 30)
    found = opened.diagnose()
    unwell = [each for lines in found.values() for each in lines if each["level"] != "fine"]
    assert unwell == []
    said = {check: [each["seen"] for each in lines] for check, lines in found.items()}
    assert "asks oidc-gatekeeper" in said["authentication"][0]
    assert "1 backends of routes are ready" in said["routes"][0]
