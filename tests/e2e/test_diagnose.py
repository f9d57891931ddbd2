"""What `diagnose` says on a real node: nothing of a healthy model, and each fault by its name."""

import contextlib
import dataclasses
import datetime
import json

import pytest

from istio_integrator.admission import certificates
from testbed import istio as testbed_istio
from testbed.juju import bootstrap, client
from testbed.kit import workloads
from tests import waiting
from tests.e2e import diagnose_world as world
from tests.e2e import kubeflow_kinds

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

    def finds(self, check, level, words, timeout=40):
        """Wait until a check says something, and return what it says to do."""

        last = {}

        def said():
            last.update(self.diagnose())
            return [
                each
                for each in last.get(check, ())
                if each["level"] == level and words in each["seen"]
            ]

        found = waiting.eventually(said, timeout)
        assert found, (check, last.get(check), sorted(last))
        return found[0]["next"]

    @contextlib.contextmanager
    def applied(self, text):
        """An object for the time of the block."""
        self.apply(text)
        try:
            yield
        finally:
            self.kubectl("delete", "-f", "-", text=text)


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
    # A minute of it for the connections from before.
    place.juju.wait_for(APP, timeout=200)
    return place


def test_healthy_model_gives_only_check_marks(place):
    found = place.diagnose()
    unwell = [each for lines in found.values() for each in lines if each["level"] != "fine"]
    assert unwell == []
    assert {"istiod", "sidecars", "admission", "rights", "lease"} <= found.keys()


@pytest.mark.cluster("tomorrow")
def test_healthy_ingress_gives_only_check_marks(opened):
    waiting.eventually(lambda: "authentication" in opened.diagnose(), 30)
    found = opened.diagnose()
    unwell = [each for lines in found.values() for each in lines if each["level"] != "fine"]
    assert unwell == []
    said = {check: [each["seen"] for each in lines] for check, lines in found.items()}
    assert "asks oidc-gatekeeper" in said["authentication"][0]
    assert any("listens at 80" in each for each in said["gateway"])
    assert "1 backends of routes are ready" in said["routes"][0]


@pytest.mark.cluster("tomorrow")
def test_filter_of_others_that_takes_authentication_away_is_named(opened):
    name = f"istio-integrator.{MODEL}.{APP}.authorize"
    take_away = world.istio(
        "EnvoyFilter",
        "open-up",
        GATEWAY[0],
        priority=20,
        configPatches=[
            {
                "applyTo": "HTTP_FILTER",
                "match": {
                    "context": "GATEWAY",
                    "listener": {
                        "filterChain": {
                            "filter": {
                                "name": "envoy.filters.network.http_connection_manager",
                                "subFilter": {"name": name},
                            }
                        }
                    },
                },
                "patch": {"operation": "REMOVE"},
            }
        ],
    )
    with opened.applied(take_away):
        opened.finds("authentication", "broken", "asks nobody before")
    opened.finds("authentication", "fine", "asks oidc-gatekeeper")


@pytest.mark.cluster("tomorrow")
def test_certificate_that_ended_and_a_port_at_which_nobody_listens_yet(opened):
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=400)
    old = certificates.decide(None, ["kubeflow.example.com"], long_ago)
    namespace, _ = GATEWAY
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "old", "namespace": namespace},
        "stringData": {"tls.crt": old.leaf, "tls.key": old.leaf_key},
    }
    with opened.applied(json.dumps(secret)):
        # Nobody tells the gateway about what opens meanwhile.
        opened.kubectl("scale", "-n", "istio-system", "deployment/istiod", "--replicas=0")
        opened.juju.config(APP, {"tls-secret": "old"})
        opened.finds("certificates", "broken", "gateway (old): the certificate ended")
        opened.finds("gateway", "broken", "has port 443, and", timeout=60)
        opened.kubectl("scale", "-n", "istio-system", "deployment/istiod", "--replicas=1")
        opened.finds("gateway", "fine", "listens at 80, 443", timeout=90)
        opened.juju.config(APP, {"tls-secret": ""})
        opened.finds("gateway", "fine", "listens at 80", timeout=60)


def test_collector_that_waits_for_the_proxy_that_waits_for_it_is_named(place):
    image = place.node.charms.payload_image
    main = workloads.container("main", image, workloads.payload("sleep.py", 1))
    template = workloads.template([main], restart_policy="Never", annotations=workloads.CLASSIC)
    trial = kubeflow_kinds.with_collector(template, "trial", "db:6789", wait_for_all=True)
    with place.applied(json.dumps(workloads.job("trial", MODEL, trial))):
        place.finds("finished pods", "broken", "waits for every process", timeout=120)
