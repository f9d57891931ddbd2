"""A port beside 80 and 443 on a gateway workload of the model's own, behind the same guard."""

import contextlib
import dataclasses
import json

import pytest

from istio_integrator.ingress import guards, routing
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.relations import endpoints
from testbed import loopback
from tests import echo, gateway_client, waiting
from tests.functional import ingress_world, istiod_world
from tests.unit.charm.ingress import wishes

COOKIE = echo.COOKIE
PORT = 9000
CLAIMED = {"kubeflow-userid": "victim@example.com"}


def listening(port, value="/here"):
    return wishes.route(
        wishes.match(value),
        service="kfp",
        listener={"port": port, "protocol": "HTTP"},
    )


@pytest.fixture(scope="module", params=["", ingress_world.SECRET], ids=["http", "https"])
def opened(place, request):
    """The gateway as it is for a workload of our own that has the port, and how to ask there."""
    place.part().remove()
    (number,) = loopback.free_ports(1)
    at = (charm_cluster.SERVICE, "gateway", istiod_world.GATEWAY_NAMESPACE)
    ports = place.api.get(*at)["spec"]["ports"]
    more = {"name": "tcp-9000", "port": PORT, "targetPort": number, "protocol": "TCP"}
    place.api.merge_patch(place.api.get(*at), {"spec": {"ports": [*ports, more]}})
    config = wishes.config(listening(80, "/entry"), listening(PORT), model=ingress_world.MODEL)
    place.newer = [(wishes.ASKED, endpoints.Bag(20, "feast", {"config": json.dumps(config)}))]
    place.options = {"hosts": gateway_client.HOST}

    def serve():
        part = place.part()
        target = dataclasses.replace(part.resolved(), is_own=True)
        asked = routing.Routing(part._scope, place)
        plan = asked.plan(target, token="", has_ports=True)
        place.guard(own=True)
        part._open_gateway(target, request.param, asked.ports)
        part._route(target, asked, plan)

    def ask(path, **headers):
        tls = {"tls": True, "name": gateway_client.HOST} if request.param else {}
        with contextlib.closing(gateway_client.Client(port=number, **tls)) as visitor:
            try:
                return visitor.get(path, **headers)
            except OSError as error:
                return error

    serve()
    assert waiting.eventually(lambda: getattr(ask("/here", Cookie=COOKIE), "status", 0) == 200)
    place.eventually(200, "/entry", Cookie=COOKIE)
    yield place, ask, serve
    place.newer = []
    place.part().remove()
    place.api.merge_patch(place.api.get(*at), {"spec": {"ports": ports}})


def test_nobody_passes_unasked_at_the_port(opened):
    place, ask, _ = opened
    before = len(place.application)
    for path in ("/here", "/here/x", "//here", "/x/../here", "/%68ere"):
        assert ask(path, **CLAIMED).status in (302, 404), path
    assert ask("/here", **CLAIMED).status == 302
    assert ask("/here", host=f"{gateway_client.HOST}:{PORT}").status == 302
    assert len(place.application) == before
    got = ask("/here", Cookie=COOKIE, **CLAIMED).echo["headers"]
    assert got["kubeflow-userid"] == echo.USER


def test_route_is_at_its_port_and_those_of_the_entry_at_theirs(opened):
    place, ask, _ = opened
    dashboard = place.asked_once("/here/x", Cookie=COOKIE).echo
    assert dashboard["path"] == "/here/x"
    for path in ("/entry", "/kfp/x", "/"):
        assert ask(path, Cookie=COOKIE).status == 404
    assert place.asked_once("/entry", Cookie=COOKIE).status == 200
    entries = place.api.get(
        charm_cluster.VIRTUAL_SERVICE, "istio-integrator-routes", ingress_world.MODEL
    )["spec"]["http"]
    ports = {(entry["name"], match["port"]) for entry in entries for match in entry["match"]}
    assert {port for _, port in ports} == {80, 443, PORT}


def test_port_is_closed_with_the_model(opened):
    place, ask, serve = opened
    auths, place.auths = place.auths, []
    try:
        place.guard(own=True)
        assert waiting.eventually(lambda: ask("/here", Cookie=COOKIE).status == 403)
        assert waiting.eventually(lambda: place.asked_once(Cookie=COOKIE).status == 403)
    finally:
        place.auths = auths
        serve()
        assert waiting.eventually(lambda: ask("/here", Cookie=COOKIE).status == 200)


def test_gateway_without_the_guard_would_show_that_these_tests_can_fail(opened):
    place, ask, serve = opened
    place.part()._scope.manifests.remove(guards.FOLDER)
    assert waiting.eventually(lambda: ask("/here").status == 200)
    serve()
    assert waiting.eventually(lambda: ask("/here").status == 302)
