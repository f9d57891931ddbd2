"""A shared gateway under fire: a real istiod configures a real Envoy from what we apply."""

import contextlib
import itertools
import json
import threading
import urllib.request
from concurrent import futures

import httpx2
import pytest

from istio_integrator.relations import kubeflow
from tests import echo, forged_requests, gateway_client, oidc, waiting
from tests.functional import ingress_world
from tests.functional.ingress_world import AUTH, COMPLETE, WEB, lead, request, server

COOKIE = echo.COOKIE
TLS = gateway_client.HOST
HTTPS = {"hosts": gateway_client.HOST, "tls_secret": ingress_world.SECRET}


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


def warming(number):
    """A tenant's Gateway whose certificate never comes: the port's new listener waits for it."""
    tls = {"mode": "SIMPLE", "credentialName": f"missing-{number}"}
    return ingress_world.gateway("shop", "warming", server(443, ["w.example.com"], **tls))


def freezing(_):
    """A tenant's route that Envoy refuses, and all routes of the port with it."""
    route = {"match": [{"uri": {"regex": r"/x\x{100}"}}], "route": lead(WEB)}
    hosts = [gateway_client.TENANT]
    return ingress_world.virtual_service("shop", "freezing", ["shop/web"], hosts, route)


@contextlib.contextmanager
def kept_up(place, obstacle):
    """An obstacle that is renewed: Envoy waits 15 seconds for a certificate."""
    ended = threading.Event()

    def renew():
        number = 0
        while not ended.wait(5):
            number += 1
            place.api.apply(obstacle(number))

    with place.there(obstacle(0)), futures.ThreadPoolExecutor(1) as threads:
        renewed = threads.submit(renew)
        try:
            yield
        finally:
            ended.set()
            renewed.result()


def has_warming(place):
    return "warming_state" in dumped(place, "config_dump?resource=dynamic_listeners")


def has_frozen(place):
    found = dumped(place, "stats?filter=http.*rds.*update_rejected&usedonly")
    return any(not line.endswith(": 0") for line in found.splitlines())


def status_of(place, tls):
    """The status of an answer; None where the gateway takes no connection for the host."""
    return getattr(place.asked_once(tls=tls), "status", None)


def dumped(place, what):
    with urllib.request.urlopen(f"http://127.0.0.1:{place.admin}/{what}") as answer:
        return answer.read().decode()


@pytest.mark.parametrize(
    ("obstacle", "is_there", "statuses"),
    [
        pytest.param(
            warming, has_warming, {"": {302}, TLS: {404, None}}, id="listener kept warming"
        ),
        pytest.param(freezing, has_frozen, {"": {404}, TLS: {302}}, id="routes frozen"),
    ],
)
def test_authentication_that_a_tenant_holds_up_leaves_routes_closed(
    place, obstacle, is_there, statuses
):
    place.part().remove()
    place.options = {**HTTPS, "require_authentication": False}
    place.auths = []
    place.reconcile()
    for tls in statuses:
        place.eventually(200, tls=tls)
    with kept_up(place, obstacle):
        assert waiting.eventually(lambda: is_there(place))
        place.auths = [COMPLETE]
        place.reconcile()
        for tls, want in statuses.items():
            assert waiting.eventually(lambda tls=tls, want=want: status_of(place, tls) in want)
            assert {status_of(place, tls) for _ in range(20)} <= want

    def is_open_again():
        # The workload has a hook run for each change that it sees.
        place.reconcile()
        return all(status_of(place, tls) == 302 for tls in statuses)

    assert waiting.eventually(is_open_again)
    for tls in statuses:
        place.eventually(200, tls=tls, Cookie=COOKIE)


def test_every_host_of_several_is_authenticated_and_no_host_of_a_neighbour(asking):
    """Within a wildcard, a host of another team's Gateway is theirs."""
    inner = "theirs.kf.example.org"
    route = {"match": [{"uri": {"prefix": "/kfp"}}], "route": lead(WEB)}
    theirs = (
        ingress_world.gateway("shop", "inner", server(80, [inner])),
        ingress_world.virtual_service("shop", "inner", ["shop/inner"], [inner], route),
    )
    hosts = [gateway_client.HOST, "second.example.com", "*.kf.example.org"]
    asking.options = {**HTTPS, "hosts": ",".join(hosts)}
    asking.reconcile()
    with asking.there(*theirs):
        for host, tls in itertools.product([*hosts[:2], "a.kf.example.org"], (False, True)):
            asked = {"host": host, "tls": host if tls else ""}
            asking.eventually(200, **asked, Cookie=COOKIE)
            asking.eventually(302, **asked)
        assert asking.eventually(200, host=inner).status == 200
        assert asking.asked_once("/", host=gateway_client.TENANT).status == 200
