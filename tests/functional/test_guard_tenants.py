"""A tenant with Gateways of their own against the guard before others' hosts, in a real Envoy."""

import itertools
import urllib.request

import pytest

from tests import echo, gateway_client, waiting
from tests.functional import ingress_world
from tests.functional.ingress_world import (
    HTTPS,
    MODEL,
    WEB,
    gateway,
    lead,
    server,
    virtual_service,
)

COOKIE = echo.COOKIE
THIRD = "third.example.com"
"""The host of somebody whose route is bound to our Gateway."""
OURS = f"{MODEL}/kubeflow-gateway"


@pytest.fixture(scope="module")
def alone(place):
    """The place with a gateway of the model's own, plain and with TLS, and a third one's route."""
    place.part().remove()
    for obj in ingress_world.tenant():
        place.api.delete(obj)
    place.options = {"gateway_service": "", "hosts": "", "tls_secret": ingress_world.SECRET}
    place.reconcile()
    third = virtual_service("shop", "third", [OURS], [THIRD], {"route": lead(WEB)})
    with place.there(third):
        place.eventually(200, host=THIRD, Cookie=COOKIE)
        place.eventually(200, host=THIRD, tls=THIRD, Cookie=COOKIE)
        yield place
    place.part().remove()
    for obj in ingress_world.tenant():
        place.api.create(obj)


def both(hosts):
    return server(80, hosts), server(443, hosts, **HTTPS)


def claimed(name, *servers, hosts):
    """A Gateway of the tenant, and a route that hides nothing of the hosts that they claim."""
    yield gateway("shop", name, *servers)
    own = {"match": [{"uri": {"prefix": "/of-the-tenant"}}], "route": lead(WEB)}
    yield virtual_service("shop", name, [f"shop/{name}"], hosts, own)


CLAIMS = [
    pytest.param("claim", both([THIRD]), [THIRD], id="the same host"),
    pytest.param("claim", both(["*.example.com"]), [THIRD, "*.example.com"], id="a wildcard"),
    pytest.param("claim", both(["*"]), [THIRD, "*.example.com"], id="every host"),
    pytest.param("claim", both(["Third.Example.Com"]), ["Third.Example.Com"], id="another case"),
    pytest.param("claim", both([f"shop/{THIRD}"]), [THIRD], id="routes of one namespace"),
    pytest.param("claim", both([f"./{THIRD}"]), [THIRD], id="routes of its own namespace"),
    pytest.param("kubeflow-gateway", both([THIRD]), [THIRD], id="the name of our Gateway"),
    pytest.param(f"kubeflow-gateway.{MODEL}", both([THIRD]), [THIRD], id="a dotted name"),
    pytest.param("claim", [server(80, [THIRD]), server(8080, [THIRD])], [THIRD], id="more ports"),
    pytest.param("claim", [server(443, [THIRD], mode="PASSTHROUGH")], [THIRD], id="passthrough"),
]


def test_host_of_ours_is_closed_while_an_older_gateway_has_another_number_for_its_port(place):
    """istiod names virtual hosts by the port of the oldest Gateway, which may be the target's."""
    place.part().remove()
    objects = claimed(
        "alias", server(place.port, [gateway_client.HOST]), hosts=[gateway_client.HOST]
    )
    with place.there(*objects):
        place.eventually(200, "/of-the-tenant", host=gateway_client.HOST)
        place.options = {"hosts": gateway_client.HOST}
        place.reconcile()
        third = {"match": [{"uri": {"prefix": "/third"}}], "route": lead(WEB)}
        with place.there(virtual_service("shop", "third", [OURS], ["*"], third)):
            dump = f"http://127.0.0.1:{place.admin}/config_dump?resource=dynamic_route_configs"
            assert waiting.eventually(
                lambda: b'"/third"' in urllib.request.urlopen(dump, timeout=9).read()
            )
            # That virtual host has no filter of ours, so our Gateway does not have the host.
            for path, headers in itertools.product(("/kfp/x", "/third"), ({}, {"Cookie": COOKIE})):
                assert {place.asked_once(path, **headers).status for _ in range(10)} == {404}
        assert place.asked_once("/", host=gateway_client.TENANT).status == 200

    def is_open():
        # The workload has a hook run for each change that it sees.
        place.reconcile()
        return getattr(place.asked_once(Cookie=COOKIE), "status", 0) == 200

    assert waiting.eventually(is_open)
    place.part().remove()


def test_redirect_to_https_is_given_unasked(place):
    place.part().remove()
    options = {"tls_secret": ingress_world.SECRET, "https_redirect": True}
    place.options = {"hosts": gateway_client.HOST, **options}
    place.reconcile()
    place.eventually(301)
    place.eventually(302, tls=gateway_client.HOST)
    place.eventually(200, tls=gateway_client.HOST, Cookie=COOKIE)
    assert place.asked_once("/", host=gateway_client.TENANT).status == 200
    place.part().remove()


@pytest.mark.parametrize(("name", "servers", "hosts"), CLAIMS)
def test_third_ones_host_stays_guarded_whoever_claims_it(alone, request, name, servers, hosts):
    host = f"mark-{abs(hash(request.node.name))}.example.org"
    mark = gateway("shop", "mark", *both([host]))
    marked = virtual_service("shop", "mark", ["shop/mark"], [host], {"route": lead(WEB)})
    with alone.there(*claimed(name, *servers, hosts=hosts), mark, marked):
        alone.reconcile()
        # istiod has told the gateway of all of it.
        alone.eventually(200, "/", host=host, tls=host, Cookie=COOKIE)
        for said in (THIRD, THIRD.upper(), f"{THIRD}:80", f"{THIRD}:9999"):
            assert alone.asked_once("/x", host=said).status == 302
            for sni in (THIRD, host, gateway_client.HOST):
                answer = alone.asked_once("/x", host=said, tls=sni)
                # A connection that is the tenant's has no such route, or ends with them.
                assert isinstance(answer, OSError) or answer.status in (302, 404)
        for tls in ("", host, gateway_client.HOST):
            answer = alone.asked_once("/kfp/x", tls=tls)
            assert isinstance(answer, OSError) or answer.status in (302, 404)


@pytest.mark.parametrize("hosts", ["", gateway_client.HOST])
def test_gateway_of_our_own_is_guarded_at_the_hosts_of_others(alone, hosts):
    host = "own.example.org"
    route = virtual_service("shop", "own", ["shop/own"], [host], {"route": lead(WEB)})
    before, alone.options = alone.options, {**alone.options, "hosts": hosts}
    with alone.there(gateway("shop", "own", *both([host])), route):
        alone.reconcile()
        for tls in ("", host):
            alone.eventually(200, "/", host=host, tls=tls, Cookie=COOKIE)
            alone.eventually(302, "/", host=host, tls=tls)
    alone.options = before
    alone.reconcile()


@pytest.mark.parametrize(
    ("times", "requests"), [(3, 20), pytest.param(6, 50, marks=pytest.mark.long)]
)
def test_guard_never_goes_while_a_neighbour_comes_and_goes(alone, times, requests):
    before, options = alone.options, {"hosts": "*.example.com", "https_redirect": True}
    alone.options = {**before, **options}
    alone.reconcile()
    alone.eventually(200, tls=gateway_client.HOST, Cookie=COOKIE)
    stranger = alone.visitor(tls=gateway_client.HOST)
    with gateway_client.Hammer(stranger, fresh=True, pause=0, path="/kfp/x") as hammer:

        def go_on(count):
            assert waiting.eventually(lambda: hammer.count > count + requests, 90)

        for _ in range(times):
            with alone.there(gateway("shop", "comes", server(80, ["comes.example.org"]))):
                alone.reconcile()
                go_on(hammer.count)
            alone.reconcile()
            go_on(hammer.count)
    alone.options = before
    alone.reconcile()
    assert set(hammer.answers) == {302}
