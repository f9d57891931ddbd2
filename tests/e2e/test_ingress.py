"""Kubeflow's applications behind a shared gateway of a real Istio, closed until somebody is asked.

The model is not called `kubeflow`; the gateway is in a namespace of its own and serves somebody
else's host all the time. From before the charm is deployed until after it is gone, a tenant and
several intruders ask without a pause; the last test counts.
"""

import functools
import pathlib
import shutil

import httpx2
import pytest
import yaml

from testbed import istio
from testbed.juju import pack
from testbed.juju.client import JujuError
from tests import echo, gateway_client, oidc, waiting
from tests.e2e import ingress_world as world

ROOT = pathlib.Path(__file__).parents[2]
MODEL = "ai"
APP = world.APP
AUTH = world.AUTH
ROUTES = len(world.CONSUMERS)
REQUESTS = 10_000
pytestmark = [
    pytest.mark.cluster("tomorrow"),
    pytest.mark.long,
    pytest.mark.timeout(500),
]


@pytest.fixture(scope="module")
def kubeflow_app(tmp_path_factory):
    """A charm with the library that Kubeflow's charms have, packed with a server."""
    source = tmp_path_factory.mktemp("charms") / "sdi"
    shutil.copytree(pathlib.Path(__file__).parent / "charms" / "sdi", source)
    shutil.copy2(oidc.__file__, source / "src" / "server.py")
    return pack.pack(source, ROOT / "build" / "charms")


@pytest.fixture(scope="module")
def integrator(node):
    """The charm that is deployed."""
    return node.charms.integrator


@pytest.fixture(scope="module")
def place(node, kubeflow_app, integrator):
    """A tenant's host that answers, and the charm in a model beside it."""
    with world.shared(node, MODEL) as found:
        # What comes before it would be replaced for its sidecar's sake.
        found.deploy(integrator)
        found.serve(world.CONSUMERS)
        resources = {"server-image": node.charms.payload_image}
        options = {"arguments": "5556", "prefix": "/dex", "rewrite": "/dex"}
        found.juju.deploy(kubeflow_app, "dex", config=options, resources=resources)
        provider = f"http://dex.{MODEL}.svc.cluster.local:5556"
        options = {"arguments": f"8080 --provider {provider}", "prefix": "/authservice"}
        options["rewrite"] = "/"
        found.juju.deploy(kubeflow_app, "authservice", config=options, resources=resources)
        for app in ("dex", "authservice"):
            found.juju.wait_for(app)
        with world.Watch(found) as found.watch:
            yield found


@pytest.fixture(scope="module")
def opened(place):
    """The ingress in the order that a bundle brings it up in."""
    place.relate(world.CONSUMERS)
    place.watch.go_on()
    place.watch.assert_that_all_is_well()
    return place


@pytest.mark.parametrize(("path", "consumer", "asked"), world.PATHS)
def test_consumer_is_reached_by_its_path_with_its_rewrite(opened, path, consumer, asked):
    answer = opened.browser().get(path, Cookie=echo.COOKIE)
    assert (answer.status, answer.echo["port"]) == (200, world.port_of(consumer))
    assert answer.echo["path"] == asked


def test_https_beside_http_and_a_rotation_that_drops_nothing(opened):
    secret, first = world.tls_secret(istio.INGRESS, "kubeflow-tls")
    opened.kubectl("apply", "-f", "-", text=secret)
    opened.juju.config(APP, {"tls-secret": "kubeflow-tls"})
    secure = opened.browser(tls=True)

    def shows(serial):
        try:
            return secure.certificate().serial_number == serial
        except OSError:
            return False

    assert waiting.eventually(lambda: shows(first))
    assert secure.get("/pipeline/x").status == 302
    for path, consumer, asked in world.PATHS:
        answer = secure.get(path, Cookie=echo.COOKIE)
        assert (answer.status, answer.echo["port"]) == (200, world.port_of(consumer))
        assert answer.echo["path"] == asked
    assert opened.browser().get("/pipeline/x", Cookie=echo.COOKIE).status == 200
    steady = {"path": "/pipeline/x", "Cookie": echo.COOKIE, "pause": 0.01, "tls": True}
    with opened.hammer(**steady) as visitor, opened.hammer(fresh=True, **steady) as newcomer:
        for _ in range(3):
            secret, serial = world.tls_secret(istio.INGRESS, "kubeflow-tls")
            opened.kubectl("apply", "-f", "-", text=secret)
            assert waiting.eventually(lambda serial=serial: shows(serial))
            opened.watch.go_on()
    print("rotations of a certificate:", visitor.answers, newcomer.answers)
    assert (set(visitor.answers), set(newcomer.answers)) == ({200}, {200})
    opened.juju.config(APP, {"https-redirect": True})
    assert waiting.eventually(lambda: opened.browser().get("/dex/x").status == 301)
    assert secure.get("/pipeline/x", Cookie=echo.COOKIE).status == 200
    opened.juju.config(APP, {"https-redirect": False})
    assert waiting.eventually(opened.is_open)
    opened.watch.assert_that_all_is_well()


def relate_again(opened, ours, theirs):
    """Relate two applications once the units of both have left the relation that was removed."""

    def is_related():
        try:
            opened.juju.integrate(ours, theirs)
        except JujuError:
            return False
        return True

    assert waiting.eventually(is_related, 60)


def test_broken_relation_closes_and_a_removed_one_takes_its_route(opened):
    opened.juju.remove_relation(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
    opened.says("ingress is closed: integrate ingress-auth")
    assert waiting.eventually(lambda: not opened.is_open())
    relate_again(opened, f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
    opened.says(f"{ROUTES} routes")
    assert waiting.eventually(opened.is_open)
    opened.juju.remove_relation(f"{APP}:ingress", "katib-ui:ingress")
    opened.says(f"{ROUTES - 1} routes")
    opened.watch.go_on()
    relate_again(opened, f"{APP}:ingress", "katib-ui:ingress")
    opened.says(f"{ROUTES} routes")
    opened.watch.go_on()
    opened.watch.assert_that_all_is_well()


@pytest.fixture(scope="module")
def real(opened):
    """Charms with the real library in place of the scripted ones, and a real login."""
    # For a while there are two to ask, so nobody is.
    opened.juju.integrate(f"{APP}:ingress-auth", "authservice:ingress-auth")
    opened.says("keep one of authservice, oidc-gatekeeper")
    opened.watch.go_on()
    opened.juju.remove_relation(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
    for old, new in (("dex-auth", "dex"), (AUTH, "authservice")):
        opened.juju.remove_relation(f"{APP}:ingress", f"{old}:ingress")
        opened.juju.integrate(f"{APP}:ingress", f"{new}:ingress")
    opened.says(f"{ROUTES} routes", 300)
    asked = opened.browser()
    assert waiting.eventually(lambda: oidc.STATE in str(asked.get("/").headers))
    opened.watch.go_on()
    return opened


def client(place):
    """A browser with a cookie jar, which goes where it is sent."""
    headers = {"Host": gateway_client.HOST}
    base = f"http://{place.address}"
    return httpx2.Client(base_url=base, headers=headers, follow_redirects=True, timeout=20)


def test_visitor_logs_in_is_known_to_the_page_and_logs_out(real):
    oidc.log_in_and_out(functools.partial(client, real), "/pipeline/runs")


def test_service_that_is_asked_goes_away_and_nobody_gets_in(real):
    """As when its pod is replaced: the sessions are gone with it, and logging in works again."""
    real.kubectl("delete", "pod", "-n", MODEL, "authservice-0", "--grace-period=1")
    stranger = real.browser()
    assert waiting.eventually(lambda: stranger.get("/pipeline/x").status in (403, 503))
    real.watch.go_on()
    assert waiting.eventually(lambda: stranger.get("/pipeline/x").status == 302, 120)
    real.watch.assert_that_all_is_well()


def test_removal_leaves_the_gateway_as_it_was(opened):
    opened.juju.remove_application(APP)
    opened.juju.wait_gone(APP)
    opened.watch.go_on()
    opened.watch.assert_that_all_is_well()
    kinds = "virtualservices,gateways,envoyfilters,authorizationpolicies"
    left = yaml.safe_load(opened.kubectl("get", kinds, "-A", "-o", "yaml"))["items"]
    assert {item["metadata"]["namespace"] for item in left} == {"shop"}


def test_no_intruder_was_served_and_no_tenant_harmed_in_all_that_time(opened):
    assert waiting.eventually(lambda: opened.watch.asked_in_vain >= REQUESTS, 300)
    for who, hammers in (("tenant", opened.watch.tenants), ("intruder", opened.watch.intruders)):
        for hammer in hammers:
            print(who, hammer.answers)
    opened.watch.assert_that_all_is_well()
