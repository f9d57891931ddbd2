"""Routes about which nobody is asked as HTTPRoutes and GRPCRoutes, by istiod in a real Envoy."""

import contextlib
import json

import pytest

from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.relations import endpoints
from tests import echo, waiting
from tests.functional import gateway_api_world as world
from tests.functional import ingress_world, unasked_cases
from tests.functional.unasked_cases import COOKIE, HOST, VICTIM, identities

MODEL = ingress_world.MODEL
ASKED = "istio-ingress-route"
OPEN = "istio-ingress-route-unauthenticated"
CALL = "/ml.Store/Get"
FORGED = {
    "type": "RequestHeaderModifier",
    "requestHeaderModifier": {
        "set": [{"name": name, "value": VICTIM} for name in ("kubeflow-userid", "kubeflow_groups")]
    },
}


def asks(number, service, *matches, endpoint=ASKED, kind="http_routes"):
    """What an application writes to have its Service be reached by these matches."""
    route = {
        "name": "web",
        "listener": {"port": 80, "protocol": "HTTP"},
        "backends": [{"service": service, "port": 80}],
        "matches": [*matches],
    }
    said = {"config": json.dumps({"model": MODEL, kind: [route]})}
    return endpoint, endpoints.Bag(number, f"{service}-{number}", said)


def match(kind, path, **more):
    return {"path": {"type": kind, "value": path}, **more}


STORE = {"method": {"service": "ml.Store", "method": "Get"}}
OPENED = asks(20, "open", match("PathPrefix", "/open/"), endpoint=OPEN)
CALLED = asks(21, "store", STORE, endpoint=OPEN, kind="grpc_routes")
GUARDED = asks(22, "kfp", match("PathPrefix", "/pipeline"), match("PathPrefix", "/ml.Store"))


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(echo.serving(echo.Application))
        folder = tmp_path_factory.mktemp("istiod")
        more = dict.fromkeys(("open", "store"), server.server_port)
        found = stack.enter_context(world.serving(client, kubeconfig, folder, more))
        found.unguarded = server.asked
        stack.enter_context(found.there(world.certificate(folder)))
        found.options |= {"hosts": HOST, "tls_secret": ingress_world.SECRET}
        found.newer = [OPENED, CALLED, GUARDED]
        found.reconcile()
        found.run(client, 80, 443)
        for tls in ("", HOST):
            assert waiting.eventually(
                lambda tls=tls: getattr(found.asked_once("/open/x", tls=tls), "status", 0) == 200,
                90,
            )
        yield found
        found.part().remove()


@pytest.fixture
def opened(place):
    """The place with nobody asked about some routes."""
    place.auths = [ingress_world.COMPLETE]
    place.newer = [OPENED, CALLED, GUARDED]
    place.reconcile()
    for tls in ("", HOST):
        place.eventually(200, "/open/x", tls=tls)
        place.eventually(302, "/pipeline/x", tls=tls)
    for asked in (place.application, place.unguarded, place.asked):
        asked.clear()
    return place


def names(place):
    """The names of rules by which the guard knows what is open."""
    found = {
        rule["name"]
        for kind in (charm_cluster.HTTP_ROUTE, charm_cluster.GRPC_ROUTE)
        for route in place.api.list(kind, MODEL)
        for rule in route["spec"]["rules"]
        if "name" in rule
    }
    return sorted(found)


def stealing(name, **where):
    """A tenant's route at our host, which says who is there by itself.

    Args:
        name: Of its rule; empty for none.
        where: What else its route says.
    """
    to = {
        "group": "networking.istio.io",
        "kind": "Hostname",
        "name": f"kfp.{MODEL}.svc.{ingress_world.DOMAIN}",
        "port": 80,
    }
    rule = {"matches": [match("PathPrefix", "/steal")], "filters": [FORGED], "backendRefs": [to]}
    return world.route("steal", {**rule, **({"name": name} if name else {})}, **where)


class TestUnasked(unasked_cases.Unasked):
    """What holds for these routes as for VirtualServices."""

    def name(self, opened):
        return names(opened)[0]

    def stolen(self, name):
        return stealing(name)

    def apply(self, opened):
        opened.reconcile()


def test_what_a_rule_itself_says_of_a_user_leaves_as_nothing_if_it_is_open(opened, client):
    """Only who may write in the model knows the name; even so nobody comes as somebody else."""
    rule = stealing(names(opened)[0])
    with opened.there(rule):
        opened.eventually(200, "/steal/x")
        assert identities(opened.application) == []


def test_method_of_grpc_is_open_and_no_other(opened):
    (route,) = opened.api.list(charm_cluster.GRPC_ROUTE, MODEL)
    assert route["spec"]["rules"][0]["name"] in names(opened)
    for tls in ("", HOST):
        opened.eventually(200, CALL, tls=tls)
        for path in (f"{CALL}/", "/ml.Store/Gets", "/ml.Store/get", "/ml.Store", "/ml.Stores/Get"):
            assert opened.asked_once(path, tls=tls).status == 302, path
    assert opened.application == []
    assert {each["path"] for each in opened.unguarded} == {CALL}
    assert opened.asked_once("/ml.Store/Put", Cookie=COOKIE).status == 200
    assert [each["path"] for each in opened.application] == ["/ml.Store/Put"]
