"""A shared gateway under fire: a real istiod configures a real Envoy from what we apply."""

import contextlib
import datetime
import json
import time
import urllib.request

import httpx2
import pytest

from istio_integrator.relations import kubeflow
from tests import echo, envoy_dump, forged_requests, gateway_client, oidc, waiting
from tests.functional import ingress_world
from tests.functional.ingress_world import AUTH, COMPLETE, MODEL, request

COOKIE = echo.COOKIE


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        dex = stack.enter_context(echo.serving(oidc.Provider))
        authservice = stack.enter_context(echo.serving(oidc.Service))
        oidc.Service.provider = f"http://127.0.0.1:{dex.server_port}"
        more = {"dex": dex.server_port, "authservice": authservice.server_port}
        folder = tmp_path_factory.mktemp("istiod")
        yield stack.enter_context(ingress_world.serving(client, kubeconfig, folder, more))


@pytest.fixture
def asking(place):
    """The place with somebody to ask about our host."""
    place.options = {"hosts": gateway_client.HOST}
    place.auths = [COMPLETE]
    return place


def test_each_request_is_asked_about_once(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    visitor = asking.visitor()
    asking.asked.clear()
    answer = visitor.get("/kfp/x", Cookie=COOKIE, **{"X-Hidden": "from the service"})
    assert answer.echo["headers"]["kubeflow-userid"] == echo.USER
    (asked,) = asking.asked
    assert "x-hidden" not in asked["headers"]
    stranger = visitor.get("/kfp/x")
    assert (stranger.status, stranger.headers["location"]) == (302, echo.LOGIN)
    visitor.close()


def test_session_that_the_service_renews_reaches_the_browser_beside_the_applications_own(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    address = f"http://127.0.0.1:{asking.port}/kfp/x"
    headers = {"Host": gateway_client.HOST, "Cookie": COOKIE}
    answer = httpx2.get(address, params={"cookie": "own=1"}, headers=headers)
    assert sorted(answer.headers.get_list("set-cookie")) == ["own=1", echo.RENEWED]


def test_name_that_a_client_claims_reaches_nobody_where_the_service_names_no_user(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    for claim in forged_requests.CLAIMS:
        asking.application.clear()
        head = forged_requests.head("/public/x", more=(f"Cookie: {COOKIE}", claim))
        answer = gateway_client.raw("127.0.0.1", head, asking.port)
        assert answer.startswith(b"HTTP/1.1 200 "), claim
        (served,) = asking.application
        assert "kubeflow-userid" not in served["headers"], claim
        assert "admin" not in json.dumps([served, asking.asked]), claim


def test_visitor_logs_in_is_known_to_the_page_and_logs_out(place):
    routes, place.options = place.requests, {"hosts": gateway_client.HOST}
    place.auths = [
        kubeflow.Received(9, "authservice", AUTH.model_copy(update={"service": "authservice"}))
    ]
    place.requests = [
        *routes,
        request(4, "dex", "/dex", "/dex"),
        request(5, "authservice", "/authservice", "/"),
    ]
    place.reconcile()
    stranger = place.visitor()
    assert waiting.eventually(lambda: "/dex/auth?" in str(stranger.get("/").headers))
    assert waiting.eventually(lambda: stranger.get("/dex/none").status == 404)
    stranger.close()

    def client():
        base, headers = f"http://127.0.0.1:{place.port}", {"Host": gateway_client.HOST}
        return httpx2.Client(base_url=base, headers=headers, follow_redirects=True)

    try:
        oidc.log_in_and_out(client, "/kfp/runs")
    finally:
        place.requests = routes


def test_connection_from_before_the_guard_is_not_served_past_it(place):
    place.part().remove()
    place.later = datetime.timedelta()
    place.options = {"hosts": gateway_client.HOST, "require_authentication": False}
    place.auths = []
    place.reconcile()
    place.eventually(200)
    early = place.visitor()
    assert early.get("/kfp/x").status == 200
    try:
        place.auths = [COMPLETE]
        assert any("earlier connections" in message for message in place.reconcile())
        assert waiting.eventually(lambda: early.get("/kfp/x").status != 200)
        late = place.visitor()
        assert late.get("/kfp/x", Cookie=COOKIE).status != 200
        # A minute later it is somebody else's turn to ask, on new connections.
        place.later = datetime.timedelta(hours=1)
        place.reconcile()
        place.eventually(200, Cookie=COOKIE)
        place.eventually(302)
        late.close()
    finally:
        early.close()
        place.later = datetime.timedelta(hours=1)
        place.options = {"hosts": gateway_client.HOST}


def test_gateway_holds_each_route_in_the_order_of_precedence_and_without_a_timeout(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    with urllib.request.urlopen(f"http://127.0.0.1:{asking.admin}/{envoy_dump.ROUTES}") as answer:
        routes = envoy_dump.virtual_hosts(json.load(answer))[f"{gateway_client.HOST}:80"]
    clusters = {
        path: envoy_dump.cluster_for(routes, path)
        for path in ("/", "/other", "/kfp", "/kfp/x", "/kfp/nested", "/kfp/nested/x")
    }
    assert {path: cluster.split("||")[1].split(".")[0] for path, cluster in clusters.items()} == {
        "/": "dashboard",
        "/other": "dashboard",
        "/kfp": "kfp",
        "/kfp/x": "kfp",
        "/kfp/nested": "dashboard",
        "/kfp/nested/x": "dashboard",
    }
    # Nothing ends a request that takes long.
    assert {route["route"]["timeout"] for route in routes} == {"0s"}


def test_route_of_somebody_else_on_our_gateway_is_guarded(asking):
    asking.reconcile()
    destination = {"host": "web.shop.svc.cluster.local", "port": {"number": 80}}
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
                    "rewrite": {"uri": "/its-own/"},
                    "route": [{"destination": destination}],
                }
            ],
        },
    }
    asking.api.create(notebook)
    visitor = asking.visitor()
    deadline = time.monotonic() + 20
    while "its-own" not in visitor.get("/notebook/x", Cookie=COOKIE).text:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert visitor.get("/notebook/x").status == 302
    # Closed, it is closed as well.
    asking.auths = []
    asking.reconcile()
    asking.eventually(403, "/notebook/x", Cookie=COOKIE)
    visitor.close()
    asking.api.delete(notebook)
