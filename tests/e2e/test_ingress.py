"""Kubeflow's applications behind a shared gateway of a real Istio, closed until somebody is asked.

The model is not called `kubeflow`; the gateway is in a namespace of its own and serves somebody
else's host all the time.
"""

import json
import subprocess
import time

import pytest
import yaml

from testbed import istio, programs
from testbed.juju import bootstrap
from tests import echo, visitors
from tests.e2e import ingress_world as world

MODEL = "ai"
APP = world.APP
AUTH = "oidc-gatekeeper"
pytestmark = [pytest.mark.cluster("tomorrow"), pytest.mark.long]


@pytest.fixture(scope="module")
def place(node):
    """A tenant's host that answers, and the charm in a model beside it."""
    testbed = node.testbed
    juju = bootstrap.juju(testbed, MODEL)
    testbed.apply(world.TENANT)
    testbed.apply(world.servers("shop", {"web": world.FIRST_PORT}, node.charms.payload_image))
    service = ("get", "service", "-n", istio.INGRESS, istio.GATEWAY)
    address = testbed.kubectl(*service, "-o", "jsonpath={.spec.clusterIP}").stdout
    found = world.Place(node, juju, address)
    tenant = found.browser()
    assert visitors.eventually(lambda: tenant.get(host=visitors.TENANT).status == 200, 60)
    charm = node.charms.integrator
    juju.add_model()
    juju.deploy(charm.path, APP, config=charm.config, resources=charm.resources, trust=True)
    juju.wait_for(APP)
    services = {consumer: world.port_of(consumer) for consumer in world.CONSUMERS}
    testbed.apply(world.servers(MODEL, services, node.charms.payload_image))
    testbed.kubectl("rollout", "status", "-n", MODEL, "deployment/servers", "--timeout=60s")
    yield found
    found.close()
    juju.destroy_model(force=True)
    testbed.kubectl("delete", "namespace", "shop", "--wait=false")


@pytest.fixture(scope="module")
def opened(place):
    """The ingress in the order that a bundle brings it up in, watched all the time."""
    for consumer in world.CONSUMERS:
        script = {"ingress": world.ingress_script(consumer)}
        if consumer == AUTH:
            script["ingress-auth"] = world.auth_script()
        place.juju.fake_app(consumer, script)
    with place.tenant() as tenant, place.intruder() as intruder:
        for consumer in world.CONSUMERS:
            place.juju.integrate(f"{APP}:ingress", f"{consumer}:ingress")
        place.says("set hosts")
        assert "shop/web" in place.message()
        place.juju.config(APP, {"hosts": visitors.HOST})
        place.says("ingress is closed: integrate ingress-auth")
        place.juju.integrate(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
        place.says("earlier connections")
        assert not place.is_open()
        time.sleep(60)
        place.touch()
        place.says("7 routes by istio-ingress/istio-ingressgateway")
        assert visitors.eventually(place.is_open)
        time.sleep(2)
    assert set(tenant.answers) == {200}
    assert 200 not in intruder.answers
    return place


@pytest.mark.parametrize(
    ("path", "consumer", "asked"),
    [
        ("/", "kubeflow-dashboard", "/"),
        ("/some/page?a=b", "kubeflow-dashboard", "/some/page?a=b"),
        ("/jupyter/api", "jupyter-ui", "/api"),
        ("/katib/x", "katib-ui", "/katib/x"),
        ("/pipeline/apis/v1", "kfp-ui", "/pipeline/apis/v1"),
        ("/volumes/api", "kubeflow-volumes", "/api"),
        ("/volumes", "kubeflow-volumes", "/"),
        ("/dex/auth", "dex-auth", "/dex/auth"),
        ("/authservice/x", "oidc-gatekeeper", "/x"),
    ],
)
def test_consumer_is_reached_by_its_path_with_its_rewrite(opened, path, consumer, asked):
    answer = opened.browser().get(path, Cookie=echo.COOKIE)
    assert (answer.status, answer.echo["port"]) == (200, world.port_of(consumer))
    assert answer.echo["path"] == asked


def test_visitor_logs_in_is_known_to_the_page_and_logs_out(opened):
    browser = opened.browser()
    asked = browser.get("/")
    assert (asked.status, asked.headers["location"]) == (302, "/dex/auth")
    login = browser.get("/dex/auth")
    assert (login.status, login.echo["port"]) == (200, world.port_of("dex-auth"))
    back = browser.get("/authservice/callback")
    assert (back.status, back.headers["location"]) == (302, "/")
    cookie = back.headers["set-cookie"].partition(";")[0]
    page = browser.get("/", Cookie=cookie)
    assert page.status == 200
    assert page.echo["headers"]["kubeflow-userid"] == echo.USER
    gone = browser.get("/authservice/logout", Cookie=cookie)
    assert "session=;" in gone.headers["set-cookie"]
    assert browser.get("/", Cookie="session=").status == 302


def test_identity_that_a_client_claims_is_taken_away(opened):
    browser = opened.browser()
    spoofed = {"Kubeflow_Userid": "admin@example.com"}
    known = browser.get("/pipeline/x", Cookie=echo.COOKIE, **spoofed)
    assert known.echo["headers"]["kubeflow-userid"] == echo.USER
    # The service lets everybody reach the login page, and says nothing about who it is.
    public = browser.get("/dex/auth", **spoofed)
    names = {name.lower() for name in public.echo["headers"]}
    assert public.status == 200
    assert "kubeflow-userid" not in names


@pytest.mark.parametrize(
    "path",
    [
        "//pipeline/x",
        "/./pipeline/x",
        "/dex/../pipeline/x",
        "/dex/%2e%2e/pipeline/x",
        "/dex%2f..%2fpipeline/x",
        "/pipeline;x/y",
        "/PIPELINE/x",
        "/pipeline%2fx",
        "/%70ipeline/x",
        "\\pipeline\\x",
    ],
)
def test_tricks_with_the_path_lead_nowhere(opened, path):
    answer = opened.browser().get(path)
    if answer.status == 200:
        # Then it is a page that the authorization service leaves open to everybody.
        assert answer.echo["port"] in map(world.port_of, ("dex-auth", AUTH))


@pytest.mark.parametrize(
    "request_line",
    [
        pytest.param(f"GET /pipeline/x HTTP/1.0\r\nHost: {visitors.HOST}\r\n\r\n", id="HTTP/1.0"),
        pytest.param(
            f"GET /pipeline/x HTTP/1.1\r\nHost: {visitors.HOST}:80\r\nConnection: close\r\n\r\n",
            id="host with port",
        ),
        pytest.param(
            f"GET /pipeline/x HTTP/1.1\r\nHost: {visitors.HOST.upper()}\r\n"
            "Connection: close\r\n\r\n",
            id="upper case",
        ),
        pytest.param(
            f"GET http://{visitors.HOST}/pipeline/x HTTP/1.1\r\nHost: {visitors.TENANT}\r\n"
            "Connection: close\r\n\r\n",
            id="absolute form",
        ),
    ],
)
def test_tricks_with_the_request_line_lead_nowhere(opened, request_line):
    answer = visitors.raw(opened.address, request_line)
    assert answer.startswith(b"HTTP/1.")
    assert b" 200 " not in answer.partition(b"\r\n")[0]


def test_route_of_somebody_else_on_our_gateway_is_guarded_too(opened):
    # As notebooks have them: in a profile's namespace, bound to the model's Gateway.
    notebook = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "notebook", "namespace": "shop"},
        "spec": {
            "gateways": [f"{MODEL}/kubeflow-gateway"],
            "hosts": ["*"],
            "http": [
                {
                    "match": [{"uri": {"prefix": "/notebook/"}}],
                    "route": [
                        {
                            "destination": {
                                "host": "web.shop.svc.cluster.local",
                                "port": {"number": world.FIRST_PORT},
                            }
                        }
                    ],
                }
            ],
        },
    }
    opened.kubectl("apply", "-f", "-", text=json.dumps(notebook))
    browser = opened.browser()

    def reached():
        answer = browser.get("/notebook/x", Cookie=echo.COOKIE)
        return answer.status == 200 and answer.echo["port"] == world.FIRST_PORT

    try:
        assert visitors.eventually(reached)
        assert browser.get("/notebook/x").status == 302
    finally:
        opened.kubectl("delete", "virtualservice", "-n", "shop", "notebook")


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

    assert visitors.eventually(lambda: shows(first))
    assert secure.get("/pipeline/x").status == 302
    assert secure.get("/pipeline/x", Cookie=echo.COOKIE).status == 200
    assert opened.browser().get("/pipeline/x", Cookie=echo.COOKIE).status == 200
    steady = {"path": "/pipeline/x", "Cookie": echo.COOKIE, "pause": 0.01}
    with opened.hammer(tls=True, **steady) as visitor, opened.tenant() as tenant:
        secret, second = world.tls_secret(istio.INGRESS, "kubeflow-tls")
        opened.kubectl("apply", "-f", "-", text=secret)
        assert visitors.eventually(lambda: shows(second))
        time.sleep(1)
    assert (set(visitor.answers), set(tenant.answers)) == ({200}, {200})
    opened.juju.config(APP, {"https-redirect": True})
    redirected = visitors.eventually(lambda: opened.browser().get("/dex/x").status == 301)
    assert redirected
    assert opened.browser().get("/", host=visitors.TENANT).status == 200
    opened.juju.config(APP, {"https-redirect": False})
    assert visitors.eventually(opened.is_open)


def test_istioctl_has_nothing_to_say_about_what_we_apply(opened):
    run = subprocess.run(
        [
            programs.binary("istioctl"),
            "analyze",
            "-n",
            MODEL,
            "--output=json",
            f"--kubeconfig={opened.node.testbed.kubeconfig}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    messages = json.loads(run.stdout or "[]")
    ours = [one for one in messages if "istio-integrator" in json.dumps(one)]
    assert [
        one for one in ours if "VirtualService" in one["origin"] or "Gateway" in one["origin"]
    ] == []


def test_broken_relation_closes_and_never_harms_the_neighbour(opened):
    with opened.tenant() as tenant, opened.intruder() as intruder:
        opened.juju.remove_relation(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
        opened.says("ingress is closed: integrate ingress-auth")
        assert visitors.eventually(lambda: not opened.is_open())
        routes = opened.kubectl("get", "virtualservices", "-n", MODEL, "-o", "name")
        assert routes == ""
        opened.juju.integrate(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
        opened.says("7 routes")
        assert visitors.eventually(opened.is_open)
        opened.juju.remove_relation(f"{APP}:ingress", "katib-ui:ingress")
        opened.says("6 routes")
        time.sleep(2)
    assert set(tenant.answers) == {200}
    assert 200 not in intruder.answers


def test_removal_leaves_the_gateway_as_it_was(opened):
    with opened.tenant() as tenant, opened.intruder() as intruder:
        opened.juju.remove_application(APP)
        opened.juju.wait_gone(APP)
        time.sleep(2)
    assert set(tenant.answers) == {200}
    assert 200 not in intruder.answers
    kinds = "virtualservices,gateways,envoyfilters"
    left = yaml.safe_load(opened.kubectl("get", kinds, "-A", "-o", "yaml"))["items"]
    assert {item["metadata"]["namespace"] for item in left} == {"shop"}
