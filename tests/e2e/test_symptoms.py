"""Each heading of the page of symptoms: something is broken and seen, and `diagnose` leads there.

What was done, seen, typed and found, and how long it took, is printed as a table in the end.
"""

import json

import pytest

from testbed import istio
from testbed.kit import workloads
from tests import waiting
from tests.e2e import pages_world
from tests.e2e import symptoms_world as world

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.cluster("tomorrow")]

APP = world.APP
MODEL = "ill"
MESH = "istio-system"
CALL = {"source": world.CALLER, "target": f"kfp-ui:{world.PORT}"}
ROWS = []


@pytest.fixture(scope="module", autouse=True)
def printed():
    """Print the table when all is done."""
    yield
    path = pages_world.pages.ROOT / "build" / "e2e" / "symptoms.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{world.table(ROWS)}\n")
    print(f"\n{path.read_text()}")


@pytest.fixture(scope="module")
def made(node):
    found = world.made(node, MODEL)
    found.rows = ROWS
    yield found
    found.close()
    found.juju.destroy_model(force=True)


@pytest.fixture
def place(made):
    """The model, well again after each test."""
    before = made.juju.config(APP)
    yield made
    now = made.juju.config(APP)
    if changed := tuple(key for key in now if now[key] != before[key]):
        made.juju.config(APP, reset=changed)
    made.says("2 routes by", 240)
    made.juju.wait_for(APP)
    assert waiting.eventually(made.is_open, 120)


def test_proxy_that_outlives_the_work_is_not_ready(place):
    place.juju.config(APP, {"proxy-shutdown": False})
    place.settle()
    with place.broken(
        "proxy-shutdown=false, and a Job", pages_world.worker("job", MODEL, place.image)
    ):
        query = ("get", "pod", "-n", MODEL, "job", "--no-headers")
        seen = place.sees("1/2 NotReady", lambda: " ".join(place.kubectl(*query).split()))
        place.leads("12-notready", "its proxy still runs", seen)
        place.juju.run(f"{APP}/0", "stop-proxy", {"pod": "job"})
        place.complete("job", MODEL)


def test_pod_that_missed_its_sidecar_is_listed(place):
    place.kubectl("label", "namespace", MODEL, "istio-injection-")
    body = workloads.template([workloads.container("main", place.image, pages_world.FOR_EVER)])
    with place.broken("a bare pod, before the label", workloads.pod("bare", MODEL, body)):
        place.kubectl("wait", "-n", MODEL, "pod/bare", "--for=condition=Ready", "--timeout=60s")
        query = ("get", "pod", "-n", MODEL, "bare", "--no-headers")
        seen = " ".join(place.kubectl(*query).split())
        assert "1/1 Running" in seen
        place.leads("a-pod-without-istio-proxy", "no sidecar: ill/bare", seen)


def test_istiod_that_is_away_fails_the_calls_of_its_webhook(place):
    with place.broken("istiod scaled to none"):
        place.kubectl("scale", "-n", MESH, "deployment/istiod", "--replicas=0")
        place.kubectl(
            "wait", "-n", MESH, "pod", "-l", "app=istiod", "--for=delete", "--timeout=60s"
        )
        place.kubectl("rollout", "restart", "-n", MODEL, f"deployment/{world.CALLER}")
        seen = place.sees("failed calling webhook", lambda: place.events("failed calling webhook"))
        place.leads("failed-calling-webhook", "does not inject", seen)
    place.kubectl("scale", "-n", MESH, "deployment/istiod", "--replicas=1")
    place.kubectl("rollout", "status", "-n", MESH, "deployment/istiod", "--timeout=90s")
    place.kubectl("rollout", "status", "-n", MODEL, f"deployment/{world.CALLER}", "--timeout=120s")


def url(place):
    return f"http://kfp-ui.{MODEL}.svc:{world.PORT}/"


def test_policy_of_others_denies_access(place):
    with place.broken("an AuthorizationPolicy without rules", world.policy("nobody", MODEL)):
        ask = lambda: place.inside(world.ASK, url(place))  # noqa: E731
        seen = place.sees("RBAC: access denied", ask)
        place.leads(
            "rbac-access-denied", "an AuthorizationPolicy does not let it in", seen, **CALL
        )


def test_rule_that_speaks_tls_to_plain_text_breaks_connections(place):
    tls = {"host": "kfp-ui", "trafficPolicy": {"tls": {"mode": "SIMPLE"}}}
    rule = world.istios("DestinationRule", "tls", MODEL, **tls)
    with place.broken("a DestinationRule with tls: SIMPLE", rule):
        seen = place.sees("upstream connect error", lambda: place.inside(world.ASK, url(place)))
        place.leads("upstream-connect-error", "upstream connect error", seen, **CALL)


def test_application_that_is_away_is_no_healthy_upstream(place):
    port = world.world.port_of("kubeflow-dashboard")
    place.kubectl("create", "service", "clusterip", "-n", MODEL, "away", f"--tcp={port}")
    script = world.world.ingress_script("kubeflow-dashboard", service="away")
    place.juju.fake_app("kubeflow-dashboard", {"ingress": script})
    with place.broken("a route to a Service without pods"):
        place.juju.integrate(f"{APP}:ingress", "kubeflow-dashboard:ingress")
        place.says("3 routes by")
        seen = place.sees("no healthy upstream", lambda: place.visit("/x"))
        place.leads("no-healthy-upstream", "has no ready endpoint", seen)
    place.juju.remove_application("kubeflow-dashboard")
    place.juju.wait_gone("kubeflow-dashboard")
    place.kubectl("delete", "service", "-n", MODEL, "away")


def test_route_to_no_gateway_is_not_found(place):
    route = {"destination": {"host": "kfp-ui", "port": {"number": world.PORT}}}
    match = {"uri": {"prefix": "/lost/"}}
    http = [{"match": [match], "route": [route]}]
    lost = {"hosts": ["*"], "gateways": ["nowhere"], "http": http}
    with place.broken(
        "a VirtualService that names another Gateway",
        world.istios("VirtualService", "lost", MODEL, **lost),
    ):
        seen = place.sees("404", lambda: place.visit("/lost/"))
        place.leads("404-at-the-gateway", f"there is no Gateway {MODEL}/nowhere", seen)


def selected(place, name):
    """Have the Service of who is asked lead to a Deployment."""
    patch = json.dumps({"spec": {"selector": {"app": name}}})
    place.kubectl("patch", "service", "-n", MODEL, "oidc-gatekeeper", "-p", patch)


def test_gateway_without_pods_refuses_connections(place):
    where = ("-n", istio.INGRESS, f"deployment/{istio.GATEWAY}")
    with place.broken("the gateway scaled to none"):
        place.kubectl("scale", *where, "--replicas=0")

        def refused():
            try:
                return place.visit()
            except OSError as error:
                return str(error)

        seen = place.sees("refused", refused)
        place.leads("connection-refused-at-the-gateway", "has no ready pod", seen)
    place.kubectl("scale", *where, "--replicas=1")
    place.kubectl("rollout", "status", *where, "--timeout=90s")


def test_provider_that_is_away_has_people_go_round(place):
    with place.broken("a provider whose .well-known is away", *world.login(MODEL, place.image)):
        place.kubectl("rollout", "status", "-n", MODEL, "deployment/login", "--timeout=90s")
        selected(place, "login")
        seen = place.sees("302", place.visit)
        place.leads("a-login-that-goes-round", "does not reach http://dex.ill", seen)
        selected(place, "servers")
