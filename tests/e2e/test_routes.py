"""Charms with the libraries of today's, deployed beside ours on a node whose gateway is shared."""

import json
import pathlib
import shutil

import pytest

from testbed import istio
from testbed.juju import bootstrap, pack
from tests import echo, gateway_client, waiting
from tests.e2e import ingress_world as world

ROOT = pathlib.Path(__file__).parents[2]
MODEL = "routes"
APP = world.APP
ASKED = "istio-ingress-route"
OPEN = "istio-ingress-route-unauthenticated"
VICTIM = "victim@example.com"
CLAIM = {"kubeflow-userid": VICTIM}
KNOWN = {"Cookie": echo.COOKIE}
CHARMS = {
    "dashboard": {"arguments": "9000", "prefix": "/"},
    "volumes": {"arguments": "9001", "prefix": "/volumes", "rewrite": "/"},
    "login": {"arguments": "9002", "prefix": "/login/"},
    "sso": {"arguments": "9003 --authorization 8080", "decisions-port": "8080"},
}
"""Applications of one charm, with their options; the first argument is the port of each."""
ENDPOINTS = {"dashboard": ASKED, "volumes": ASKED, "login": OPEN, "sso": "forward-auth"}
pytestmark = [pytest.mark.cluster("tomorrow"), pytest.mark.long, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def charm(tmp_path_factory):
    """A charm with the libraries that today's charms have, packed with a server."""
    source = tmp_path_factory.mktemp("charms") / "sdi"
    shutil.copytree(pathlib.Path(__file__).parent / "charms" / "sdi", source)
    shutil.copy2(echo.__file__, source / "src" / "server.py")
    return pack.pack(source, ROOT / "build" / "charms" / "routes")


@pytest.fixture(scope="module")
def place(node, charm):
    """A model with these charms and ours, related."""
    juju = bootstrap.juju(node.testbed, MODEL)
    service = ("get", "service", "-n", istio.INGRESS, istio.GATEWAY)
    address = node.testbed.kubectl(*service, "-o", "jsonpath={.spec.clusterIP}").stdout
    found = world.Place(node, juju, address)
    integrator = node.charms.integrator
    config = {**integrator.config, **world.NAMED}
    juju.add_model()
    juju.deploy(integrator.path, APP, config=config, resources=integrator.resources, trust=True)
    # What comes before it would be replaced for its sidecar's sake.
    juju.wait_for(APP)
    resources = {"server-image": node.charms.payload_image}
    for name, options in CHARMS.items():
        juju.deploy(charm, name, config=options, resources=resources)
    for name in CHARMS:
        juju.wait_for(name)
    for name, endpoint in ENDPOINTS.items():
        juju.integrate(f"{APP}:{endpoint}", f"{name}:{endpoint}")
    found.says("3 routes served by istio-ingress/istio-ingressgateway", 240)
    assert waiting.eventually(lambda: reached(found, "/volumes/x", **KNOWN) == "volumes", 60)
    yield found
    found.close()
    juju.destroy_model(force=True)


def reached(place, path, *, tls=False, **headers):
    """The application that answers; where none does, the status."""
    answer = place.browser(tls=tls).get(path, **headers)
    if answer.status != 200:
        return answer.status
    ports = {int(options["arguments"].split()[0]): name for name, options in CHARMS.items()}
    return ports[answer.echo["port"]]


def told(place, name):
    """What a charm says that it was told, by endpoint."""
    (unit,) = place.juju.status()["applications"][name]["units"].values()
    return json.loads(unit["workload-status"].get("message") or "{}")


@pytest.mark.parametrize(
    ("path", "name", "asked"),
    [("/", "dashboard", "/"), ("/x", "dashboard", "/x"), ("/volumes/x", "volumes", "/x")],
)
def test_charm_is_reached_by_who_is_known_and_hears_their_name(place, path, name, asked):
    assert reached(place, path, **CLAIM) == 302
    answer = place.browser().get(path, **KNOWN, **CLAIM)
    assert reached(place, path, **KNOWN, **CLAIM) == name
    assert answer.echo["path"] == asked
    assert answer.echo["headers"]["kubeflow-userid"] == echo.USER
    assert VICTIM not in answer.text


def test_charm_without_authentication_is_reached_by_everybody_and_hears_no_name(place):
    answer = place.browser().get("/login/x", **CLAIM)
    assert reached(place, "/login/x") == "login"
    assert "kubeflow-userid" not in answer.echo["headers"]
    assert reached(place, "/login") == "login"
    assert reached(place, "/logins") == 302


def test_charm_that_hears_of_a_certificate_asks_for_the_other_port_and_stays_reached(place):
    told_first = {ASKED: [gateway_client.HOST, False]}
    assert waiting.eventually(lambda: told(place, "dashboard") == told_first, 60)
    secret, _ = world.tls_secret(istio.INGRESS, "routes-tls")
    place.kubectl("apply", "-f", "-", text=secret)
    with place.hammer(path="/login/x", pause=0.05) as visitor:
        place.juju.config(APP, {"tls-secret": "routes-tls"})
        want = {ASKED: [gateway_client.HOST, True]}
        assert waiting.eventually(lambda: told(place, "dashboard") == want, 120)
        assert waiting.eventually(
            lambda: reached(place, "/volumes/x", tls=True, **KNOWN) == "volumes", 60
        )
    assert set(visitor.answers) == {200}
    assert reached(place, "/volumes/x", tls=True) == 302
    assert reached(place, "/volumes/x", **KNOWN) == "volumes"


def test_charm_that_waits_for_a_gateway_of_the_gateway_api_is_named(place):
    place.juju.integrate(f"{APP}:gateway-metadata", "dashboard:gateway-metadata")
    place.says("gateway-metadata: dashboard waits for it; set routing=gateway-api")
    assert waiting.eventually(lambda: told(place, "dashboard").get("gateway") == "")
    place.juju.remove_relation(f"{APP}:gateway-metadata", "dashboard:gateway-metadata")
    place.says("3 routes")


def test_relation_that_is_removed_takes_its_route_and_who_is_asked_closes_all(place):
    place.juju.remove_relation(f"{APP}:{ASKED}", f"volumes:{ASKED}")
    place.says("2 routes")
    assert waiting.eventually(lambda: reached(place, "/volumes/x", **KNOWN) == "dashboard")
    place.juju.remove_relation(f"{APP}:forward-auth", "sso:forward-auth")
    place.says("ingress is closed")
    for path in ("/", "/login/x"):
        assert waiting.eventually(lambda path=path: reached(place, path, **KNOWN) in (403, 404)), (
            path
        )
