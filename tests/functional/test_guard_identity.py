"""What a request says about its user at a Service of the model, whatever led it there."""

import itertools

import pytest

from tests import echo, gateway_client, waiting
from tests.functional import ingress_world
from tests.functional.ingress_world import (
    DOMAIN,
    HTTPS,
    MODEL,
    WEB,
    gateway,
    lead,
    server,
    virtual_service,
)

COOKIE = echo.COOKIE
HEADER = "kubeflow-userid"
VICTIM = "victim@example.com"
KFP = f"kfp.{MODEL}.svc.{DOMAIN}"
OURS = f"{MODEL}/kubeflow-gateway"
MARK = "x-route"
"""What tells a tenant's route from ours to everything else."""


def changing(how="set", name=HEADER, value=VICTIM):
    return {"headers": {"request": {how: {name: value, MARK: "theirs"}}}}


FORGED = changing()


@pytest.fixture(scope="module")
def shared(place):
    """The place with our routes, plain and with TLS, beside a neighbour."""
    place.options = {"hosts": gateway_client.HOST, "tls_secret": ingress_world.SECRET}
    place.reconcile()
    place.eventually(200, Cookie=COOKIE)
    place.eventually(200, tls=gateway_client.HOST, Cookie=COOKIE)
    yield place
    place.part().remove()


def to(host, path="/", **more):
    return {"match": [{"uri": {"prefix": path}}], "route": lead(host), **more}


def split(host, path, **more):
    """Half of a route's traffic to each of two destinations, which say the same."""
    halves = [{**one, **more, "weight": 50} for one in (*lead(host), *lead(host))]
    halves[1]["destination"] = {"host": host.replace("kfp", "dashboard"), "port": {"number": 80}}
    return {"match": [{"uri": {"prefix": path}}], "route": halves}


ROUTES = {
    "/set": to(KFP, "/set", **FORGED),
    "/added": to(KFP, "/added", **changing("add")),
    "/upper": to(KFP, "/upper", **changing(name=HEADER.upper())),
    "/underscored": to(KFP, "/underscored", **changing(name="kubeflow_userid")),
    "/destination": {
        "match": [{"uri": {"prefix": "/destination"}}],
        "route": lead(KFP, **FORGED),
    },
    "/weighted": split(KFP, "/weighted", **FORGED),
    "/authority": to(KFP, "/authority", rewrite={"authority": "elsewhere.example"}, **FORGED),
    "/retried": to(KFP, "/retried", retries={"attempts": 3, "retryOn": "5xx"}, **FORGED),
    "/copied": to(KFP, "/copied", **changing(value="%REQ(x-forged)%")),
}


def arrived(place, path, **given):
    """Ask until the tenant's route is the one that answers."""

    def asked():
        answer = place.asked_once(path, **given)
        return getattr(answer, "status", 0) == 200 and MARK in answer.echo["headers"] and answer

    answer = waiting.eventually(asked)
    assert answer, place.asked_once(path, **given)
    return answer


def seen(served):
    """What a request said about its user, in every spelling that may count."""
    return {
        name: value
        for name, value in served["headers"].items()
        if name.replace("_", "-") == HEADER
    }


@pytest.fixture
def theirs(shared):
    """A tenant's routes into the model, on our Gateway and on their own."""
    host = "tenant.example.com"
    own = gateway("shop", "own", server(80, [host]), server(443, [host], **HTTPS))
    on_ours = virtual_service("shop", "on-ours", [OURS], ["*"], *ROUTES.values())
    on_own = virtual_service("shop", "on-own", ["shop/own"], [host], *ROUTES.values())
    with shared.there(own, on_ours, on_own):
        arrived(shared, "/set", host=host)
        arrived(shared, "/set", host=host, tls=host)
        arrived(shared, "/set", Cookie=COOKIE)
        arrived(shared, "/set", tls=gateway_client.HOST, Cookie=COOKIE)
        yield shared, host


def test_forged_identity_by_a_route_on_our_gateway_arrives_as_what_the_service_said(theirs):
    place, _ = theirs
    for path, tls in itertools.product(ROUTES, ("", gateway_client.HOST)):
        for _ in range(4 if path == "/weighted" else 1):
            answer = place.asked_once(path, tls=tls, Cookie=COOKIE, **{"x-forged": VICTIM})
            assert answer.status == 200, path
            said = seen(answer.echo)
            assert said.pop("kubeflow_userid", "") == "", path
            assert said == {HEADER: echo.USER}, path


def test_forged_identity_by_a_gateway_of_their_own_arrives_as_nothing(theirs):
    place, host = theirs
    for path, tls in itertools.product(ROUTES, ("", host)):
        for claim in ({}, {HEADER: VICTIM}, {"kubeflow_userid": VICTIM}):
            answer = place.asked_once(path, host=host, tls=tls, **{"x-forged": VICTIM}, **claim)
            assert answer.status == 200, path
            assert not any(seen(answer.echo).values()), (path, claim)


def test_neighbours_use_of_the_header_towards_their_own_services_is_theirs(shared):
    host = "neighbour.example.com"
    objects = [
        gateway("shop", "use", server(80, [host])),
        virtual_service("shop", "use", ["shop/use"], [host], to(WEB, "/set", **FORGED), to(WEB)),
    ]
    with shared.there(*objects):
        answer = shared.eventually(200, "/set", host=host)
        assert seen(answer.echo) == {HEADER: VICTIM}
        answer = shared.eventually(200, "/x", host=host, **{HEADER: "theirs"})
        assert seen(answer.echo) == {HEADER: "theirs"}
        assert seen(shared.eventually(200, "/x", host=host).echo) == {}


def test_identity_goes_with_a_websocket_as_the_service_said_it(theirs):
    place, host = theirs
    where = ("127.0.0.1", "/set", "hello")
    assert gateway_client.talk(*where, port=place.port, Cookie=COOKIE) == "hello"
    assert " 302 " in gateway_client.talk(*where, port=place.port)
    assert gateway_client.talk(*where, host=host, port=place.port) == "hello"


def test_mirrored_request_of_our_host_says_what_the_service_said(shared):
    mirrored = to(WEB, "/mirrored", mirror={"host": KFP, "port": {"number": 80}}, **FORGED)
    with shared.there(virtual_service("shop", "mirror", [OURS], ["*"], mirrored)):
        arrived(shared, "/mirrored", Cookie=COOKIE)
        copies = waiting.eventually(
            lambda: [each for each in shared.application if each["path"] == "/mirrored"]
        )
        assert [seen(each) for each in copies] == [{HEADER: echo.USER}] * len(copies)


def test_route_that_hands_on_to_another_is_no_way_around(shared):
    handed = {"match": [{"uri": {"prefix": "/handed"}}], "delegate": {"name": "on"}}
    handing = virtual_service("shop", "handing", [OURS], [gateway_client.HOST], handed)
    on = virtual_service("shop", "on", [], [], {"route": lead(KFP), **FORGED})
    with shared.there(on, handing):
        answer = arrived(shared, "/handed", Cookie=COOKIE)
        assert seen(answer.echo) == {HEADER: echo.USER}


def test_other_name_of_a_service_of_the_model_is_no_way_around_on_our_host(shared):
    alias = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "alias", "namespace": "shop"},
        "spec": {
            "type": "ExternalName",
            "externalName": KFP,
            "ports": [{"name": "http", "port": 80}],
        },
    }
    route = to(f"alias.shop.svc.{DOMAIN}", "/alias", **FORGED)
    with shared.there(alias, virtual_service("shop", "alias", [OURS], ["*"], route)):
        answer = arrived(shared, "/alias", Cookie=COOKIE)
        assert seen(answer.echo) == {HEADER: echo.USER}
