"""How-to pages about gateways and who is asked, block by block, each to its outcome."""

import pytest
import yaml

from testbed import istio
from tests import echo, waiting
from tests.e2e import ingress_world as world
from tests.e2e import pages, pages_world
from tests.gateway_client import HOST

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.cluster("tomorrow")]

APP = pages_world.APP
MODEL = "pages-gateway"
SHARED = world.SHARED
OWN = f"{APP}-gateway"
SLOW = 400
"""Seconds for the hooks of twenty relations."""
HOSTNAME = "external-dns.alpha.kubernetes.io/hostname"


@pytest.fixture(scope="module")
def deployed(node):
    """A model with applications and the charm."""
    with pages_world.Place(node, MODEL) as found:
        found.serve([*world.CONSUMERS])
        found.shell.run(pages_world.DEPLOY)
        found.says("1/1 pods in mesh", 240)
        yield found


@pytest.fixture
def place(deployed):
    """The same, with options and relations as they were after each test."""
    before = deployed.juju.config(APP)
    deployed.juju.config(APP, world.NAMED)
    yield deployed
    deployed.close()
    deployed.clear(before)
    deployed.juju.wait_for(APP)


def asks(place, path="/pipeline/x", **how):
    """What a stranger and somebody who is known get, as soon as both are asked about."""

    def answered():
        strange = place.browser(**how).get(path).status
        return strange, place.browser(**how).get(path, Cookie=echo.COOKIE).status

    return waiting.eventually(lambda: answered() == (302, 200), 90) or answered()


def account(place, namespace=istio.INGRESS, name=istio.GATEWAY):
    """The ServiceAccount of a gateway."""
    found = place.read("deployment", name, namespace)
    return found["spec"]["template"]["spec"]["serviceAccountName"]


def test_page_about_single_sign_on_has_each_request_asked_about(place, blocks):
    """docs/how-to/single-sign-on.md."""
    older, newer, profiles = blocks
    place.script([older, newer])
    place.juju.fake_app("kfp-ui", {"ingress": world.ingress_script("kfp-ui")})
    place.juju.integrate(f"{APP}:ingress", "kfp-ui:ingress")
    place.says("ingress is closed")
    place.run(older)
    place.says(f"1 route served by {SHARED}")
    assert asks(place) is True
    place.juju.remove_relation(f"{APP}:ingress-auth", f"{world.AUTH}:ingress-auth")
    place.says("ingress is closed")
    place.run(newer)
    place.says(f"1 route served by {SHARED}")
    assert asks(place) is True
    assert f"istio-gateway-namespace={istio.INGRESS} " in profiles
    assert f"istio-gateway-service-account={account(place)}\n" in profiles


def test_page_about_gateways_leads_to_each(place, blocks):
    """docs/how-to/central-gateway.md."""
    related, sized, named, annotated, signed, given = blocks
    place.script(blocks)

    place.juju.config(APP, {"gateway-service": "", "hosts": ""})
    place.run(related)
    place.says(f"2 routes served by {MODEL}/{OWN}", 240)
    shared, place.address = place.address, world.address_of(place.node.testbed, MODEL, OWN)
    assert asks(place, "/jupyter/x") is True
    told = place.said_to("tensorboard-controller", "gateway-info")
    assert (told["gateway_name"], told["gateway_namespace"]) == ("kubeflow-gateway", MODEL)
    assert account(place, MODEL, OWN) == "istio-ingressgateway-workload-service-account"

    place.run(sized)

    def sizes():
        deployment, service = place.read("deployment", OWN), place.read("service", OWN)
        return deployment["spec"]["replicas"], service["spec"]["type"]

    assert waiting.eventually(lambda: sizes() == (3, "NodePort"), 60), sizes()
    (container,) = place.read("deployment", OWN)["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "500m", "memory": "256Mi"}}

    place.run(named)
    place.says(f"2 routes served by {SHARED}", 240)
    place.address = shared
    served = ("jsonpath={.spec.servers[*].hosts[*]}",)
    query = ("get", "gateways.networking.istio.io", "-n", MODEL, "kubeflow-gateway", "-o", *served)
    assert waiting.eventually(lambda: HOST in place.kubectl(*query), 60), place.kubectl(*query)
    assert asks(place, "/jupyter/x") is True

    place.run(annotated)

    def annotations():
        service = place.read("service", istio.GATEWAY, istio.INGRESS)
        return service["metadata"].get("annotations", {})

    assert waiting.eventually(lambda: annotations().get(HOSTNAME) == HOST, 60), annotations()

    place.run(signed)
    assert place.shows(place.sign())
    assert asks(place, "/jupyter/x", tls=True) is True
    place.juju.remove_relation(f"{APP}:certificates", f"{world.AUTHORITY}:certificates")
    place.settle()

    secret, serial = world.tls_secret(istio.INGRESS, "kubeflow-tls")
    place.apply(secret)
    place.run(given)
    assert place.shows(serial)
    assert asks(place, "/jupyter/x", tls=True) is True


def test_page_about_todays_charms_serves_the_newer_generation(place, blocks):
    """docs/how-to/use-todays-kubeflow-charms.md."""
    place.script(blocks)
    (newer,) = blocks
    place.run(newer)
    place.says(f"10 routes served by {SHARED}", SLOW)
    assert asks(place, "/katib/x") is True
    assert place.browser().get("/dex/x").status == 200


def test_page_about_todays_charms_serves_the_older_generation(place, blocks):
    """docs/how-to/use-todays-kubeflow-charms.md."""
    older, changed, profiles, asked = blocks
    place.script([older, changed])
    place.run(older)
    place.says(f"10 routes served by {SHARED}", SLOW)
    assert asks(place, "/katib/x") is True
    place.run(changed)
    place.says(f"10 routes served by {SHARED}", SLOW)
    assert asks(place, "/katib/x") is True
    assert place.run(asked) == account(place)
    assert f"istio-gateway-service-account={account(place)}\n" in profiles


def test_overlay_of_charmed_kubeflow_serves_its_applications(place):
    """docs/how-to/install-charmed-kubeflow.md."""
    overlay = yaml.safe_load((pages.ROOT / "bundle/kubeflow-1.11-overlay.yaml").read_text())
    commands = "\n".join(f"juju integrate {' '.join(ends)}" for ends in overlay["relations"])
    place.script([commands])
    place.run(commands)
    place.says(f"9 routes served by {SHARED}", SLOW)
    assert asks(place, "/katib/x") is True
    told = place.said_to("kserve-controller", "gateway-info")
    assert (told["gateway_name"], told["gateway_namespace"]) == ("kubeflow-gateway", MODEL)
