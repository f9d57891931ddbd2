"""An authorization service on `forward-auth`, by a real istiod in a real Envoy."""

import json

import pytest

from tests import echo, forged_requests, gateway_client, waiting
from tests.functional import ingress_world
from tests.functional.ingress_world import MODEL

COOKIE = echo.COOKIE
LIES = {
    f"X-Forwarded-{name}": value
    for name, value in {
        "Uri": "/public",
        "Host": "elsewhere.example.com",
        "Method": "OPTIONS",
        "Proto": "gopher",
        "Prefix": "/public",
    }.items()
}


@pytest.fixture(scope="module", params=["", "/decisions"], ids=["root", "path"])
def asking(place, request):
    """The place with an application on `forward-auth`, at a path of its own or without one."""
    address = f"http://oidc.{MODEL}.svc.cluster.local{request.param}"
    place.options = {"hosts": gateway_client.HOST, "tls_secret": ingress_world.SECRET}
    place.auths = []
    place.forwards = [{"decisions_address": address, "app_names": "[]"}]
    place.reconcile()
    place.eventually(200, Cookie=COOKIE)
    place.eventually(200, tls=gateway_client.HOST, Cookie=COOKIE)
    place.application.clear()
    place.asked.clear()
    place.path = request.param
    yield place
    place.part().remove()


def test_application_on_forward_auth_is_asked_below_its_path(asking):
    assert asking.asked_once("/kfp/x").status == 302
    answer = asking.asked_once("/kfp/x?a=b", Cookie=COOKIE)
    assert answer.echo["headers"]["kubeflow-userid"] == echo.USER
    assert [each["path"] for each in asking.asked] == [
        f"{asking.path}/kfp/x",
        f"{asking.path}/kfp/x?a=b",
    ]


@pytest.mark.parametrize("tls", ["", gateway_client.HOST], ids=["HTTP", "HTTPS"])
def test_what_it_hears_of_a_request_is_true_whatever_the_client_says(asking, tls):
    asking.asked.clear()
    assert asking.asked_once("/kfp/x", tls=tls, **LIES).status == 302
    (asked,) = asking.asked
    headers = asked["headers"]
    assert headers["x-forwarded-uri"] == "/kfp/x"
    assert headers["x-forwarded-host"] == headers["host"] == gateway_client.HOST
    assert headers["x-forwarded-method"] == "GET"
    assert headers["x-forwarded-proto"] == ("https" if tls else "http")
    assert not set(LIES.values()) & set(headers.values())


def test_it_sees_what_it_needs_and_no_more(asking):
    asking.asked.clear()
    given = {"Authorization": "Bearer t", "X-Auth-Token": "t", "X-Secret": "s", "Cookie": COOKIE}
    asking.asked_once("/kfp/x", **given)
    (asked,) = asking.asked
    assert asked["headers"]["authorization"] == "Bearer t"
    assert asked["headers"]["x-auth-token"] == "t"
    assert asked["headers"]["cookie"] == COOKIE
    assert "x-secret" not in asked["headers"]


def test_names_that_clients_claim_reach_nobody_though_the_service_names_no_header(asking):
    claims = [*forged_requests.CLAIMS]
    claims += [claim.replace("userid", "groups").replace("UserID", "Groups") for claim in claims]
    for claim in claims:
        asking.application.clear()
        head = forged_requests.head("/kfp/x", more=(f"Cookie: {COOKIE}", claim))
        answer = gateway_client.raw("127.0.0.1", head, asking.port)
        assert answer.startswith(b"HTTP/1.1 200 "), claim
        (served,) = asking.application
        assert served["headers"]["kubeflow-userid"] == echo.USER
        assert "admin" not in json.dumps([served, asking.asked]), claim


def test_gateway_is_closed_while_both_ways_are_related(asking):
    forwards = asking.forwards
    try:
        asking.auths = [ingress_world.COMPLETE]
        said = asking.reconcile()
        assert any("juju remove-relation istio-integrator:forward-auth" in one for one in said)
        assert waiting.eventually(lambda: asking.asked_once(Cookie=COOKIE).status in (403, 404))
    finally:
        asking.auths, asking.forwards = [], forwards
        asking.reconcile()
        asking.eventually(200, Cookie=COOKIE)
