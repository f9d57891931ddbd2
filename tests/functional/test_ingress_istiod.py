"""A shared gateway under fire: a real istiod configures a real Envoy from what we apply."""

import contextlib
import itertools
import json
import re
import subprocess
import threading
import urllib.request
from concurrent import futures

import httpx2
import pytest

from istio_integrator.kube import cluster
from testbed import loopback
from tests import echo, forged_requests, gateway_client, oidc, waiting
from tests.functional import ingress_world
from tests.functional.ingress_world import COMPLETE, WEB, lead, request, server

COOKIE = echo.COOKIE
TLS = gateway_client.HOST
HTTPS = {"hosts": gateway_client.HOST, "tls_secret": ingress_world.SECRET}


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    folder = tmp_path_factory.mktemp("istiod")
    with echo.serving(oidc.Provider) as dex:
        more = {"dex": dex.server_port, "oauth2-proxy": loopback.free_port()}
        with ingress_world.serving(client, kubeconfig, folder, more) as found:
            found.ports = more
            yield found


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


@pytest.fixture
def signing_in(place, tmp_path):
    """Browsers that go where an oauth2-proxy on `forward-auth` sends them."""
    port, dex = place.ports["oauth2-proxy"], f"http://127.0.0.1:{place.ports['dex']}"
    command = oidc.command(tmp_path, port, "--cookie-secure=false", **oidc.of_provider(dex))
    address = f"http://oauth2-proxy.{ingress_world.MODEL}.svc.cluster.local"
    place.options = {"hosts": gateway_client.HOST}
    place.auths, place.forwards = [], [{"decisions_address": address, "app_names": "[]"}]
    routes = place.requests
    place.requests = [*routes, request(4, "dex", "/dex", "/dex")]
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        ping = f"http://127.0.0.1:{port}/ping"
        assert waiting.eventually(lambda: urllib.request.urlopen(ping).status == 200)
        place.reconcile()
        stranger = place.visitor()
        assert waiting.eventually(lambda: oidc.LOGIN in str(stranger.get("/").headers))
        stranger.close()
        proxy = f"http://127.0.0.1:{place.port}"
        base = f"http://{gateway_client.HOST}"
        yield lambda: httpx2.Client(base_url=base, proxy=proxy, follow_redirects=True)
    finally:
        process.kill()
        process.wait()
        log.seek(0)
        print(log.read())
        log.close()
        place.requests, place.forwards = routes, []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_visitor_logs_in_is_known_to_the_page_and_logs_out(signing_in):
    page = "/kfp/runs"
    with signing_in() as browser:
        form = browser.get(f"{page}?of=mine")
        assert [answer.status_code for answer in form.history] == [302]
        assert form.url.path == oidc.LOGIN
        (number,) = re.findall(r'value="([^"]+)"', form.text)
        entered = {"request": number, "user": oidc.USER}
        wrong = browser.post("/dex/login", data={**entered, "password": "guess"})
        assert (wrong.status_code, oidc.SESSION in browser.cookies) == (401, False)
        found = browser.post("/dex/login", data={**entered, "password": oidc.PASSWORD})
        assert [answer.status_code for answer in found.history] == [303, 302]
        # What was wanted at first.
        assert (found.status_code, found.url.path, found.url.query) == (200, page, b"of=mine")
        assert found.json()["headers"][oidc.IDENTITY] == oidc.USER
        callback = found.history[-1].url.raw_path.decode()
        claimed = browser.get(page, headers={"Kubeflow-UserID": "admin@example.com"})
        assert claimed.json()["headers"][oidc.IDENTITY] == oidc.USER
        with signing_in() as other:
            # A code is for the browser that was sent for it, and good once.
            assert other.get(callback).status_code == 403
        assert browser.get(callback).status_code == 403
        assert browser.get(f"{oidc.PREFIX}/sign_out").url.path == oidc.LOGIN
        assert oidc.SESSION not in browser.cookies


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


def test_deleted_model_takes_the_guard_in_another_namespace_along(place):
    model = ingress_world.namespace("doomed")
    place.api.create(model)
    ports = (place.port, place.https_port, place.admin)
    doomed = ingress_world.Place(place.api, ports, [], [], "doomed")
    doomed.options = {"hosts": "doomed.example.com"}
    doomed.requests = [request(1, "kfp", "/kfp", None)]
    doomed.part().reconcile()
    manifests = doomed.part()._scope.manifests
    (guard,) = manifests.owned_of(cluster.ENVOY_FILTER)
    assert guard["metadata"]["namespace"] != "doomed"
    place.api.delete(model)
    assert waiting.eventually(lambda: not manifests.owned_of(cluster.ENVOY_FILTER))
