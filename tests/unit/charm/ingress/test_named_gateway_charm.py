"""A gateway that the options name, and what changes on it, with the whole charm."""

import datetime
import json

import pytest
from ops import testing

from istio_integrator.ingress import exposure
from tests.unit.charm.ingress_world import (
    HOST,
    LABELS,
    OWN,
    auth,
    install_gateway,
    pod_of,
    route,
)


@pytest.fixture
def waiting(world, monkeypatch):
    """A model whose gateway has connections from before."""
    monkeypatch.setattr(exposure, "DRAINED_AFTER", datetime.timedelta(minutes=1))
    return world


def test_named_gateway_waits_for_earlier_connections_once(waiting):
    waiting.related = [route(), auth()]
    status = waiting.status()
    assert isinstance(status, testing.WaitingStatus)
    assert "earlier connections" in status.message
    assert (waiting.gateway(), waiting.routes()) == (None, [])
    waiting.guard()["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    assert isinstance(waiting.status(), testing.ActiveStatus)
    assert waiting.gateway()["spec"]["servers"][0]["hosts"] == [HOST]
    assert len(waiting.routes()) == 1


def test_gateway_that_was_open_waits_for_its_connections_before_it_asks(waiting):
    waiting.config = {"require_authentication": False}
    waiting.related = [route()]
    assert isinstance(waiting.status(), testing.ActiveStatus)
    # It has been open for a while.
    waiting.gateway()["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    waiting.related.append(auth())
    status = waiting.status()
    assert "earlier connections" in status.message
    assert (waiting.guard() is None, waiting.routes()) == (False, [])
    waiting.guard()["metadata"]["creationTimestamp"] = "2020-01-01T01:00:00Z"
    assert isinstance(waiting.status(), testing.ActiveStatus)
    assert len(waiting.routes()) == 1


def test_others_within_our_wildcard_are_asked_about_until_the_gateway_only_redirects(world):
    """Routes of one virtual host are asked about at the latest when they are not redirected."""
    world.config = {"hosts": "*.kf.example.com", "tls_secret": "tls"}
    world.related = [route(), auth()]
    world.run()
    assert "x-forwarded-proto" not in json.dumps(world.guard()["spec"])
    world.config["https_redirect"] = True
    world.run()
    assert "x-forwarded-proto" not in json.dumps(world.guard()["spec"])
    assert world.gateway()["spec"]["servers"][0]["tls"] == {"httpsRedirect": True}
    world.run()
    assert "x-forwarded-proto" in json.dumps(world.guard()["spec"])
    world.config["https_redirect"] = False
    world.fake.writes.clear()
    world.run()
    assert "x-forwarded-proto" not in json.dumps(world.guard()["spec"])
    kinds = [write.split()[1] for write in world.fake.writes]
    assert kinds.index("envoyfilters") < kinds.index("gateways")


def order_of(world):
    names = {"envoyfilters": "guard", "gateways": "gateway", "virtualservices": "routes"}
    found = [write.split() for write in world.fake.writes]
    return [f"{verb} {names[kind]}" for verb, kind, _ in found if kind in names]


def test_other_hosts_are_guarded_before_and_old_ones_until_they_are_forgotten(world):
    world.related = [route(), auth()]
    world.config = {"hosts": "kf.example.com"}
    world.run()
    world.fake.writes.clear()
    world.config = {"hosts": "ai.example.com"}
    world.run()
    assert order_of(world) == [
        "delete routes",
        "delete gateway",
        "patch guard",
        "patch gateway",
        "patch routes",
    ]


def test_other_gateway_is_guarded_before_the_routes_move_there(world):
    world.related = [route(), auth()]
    world.run()
    world.fake.writes.clear()
    world.config = OWN
    world.run()
    assert order_of(world) == [
        "delete routes",
        "delete gateway",
        "delete guard",
        "patch guard",
        "patch gateway",
        "patch routes",
    ]
    assert world.guard() is None
    name = "istio-integrator.kubeflow.istio-integrator"
    assert world.fake.find("EnvoyFilter", name, "kubeflow")


def test_guard_with_fewer_labels_of_an_older_revision_is_changed_in_place(waiting):
    """It has been before every connection of these pods, so nothing has to wait for it."""
    waiting.related = [route(), auth()]
    waiting.run()
    old = {"istio": "ingressgateway"}
    waiting.guard()["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    waiting.guard()["spec"]["workloadSelector"]["labels"] = old
    waiting.run()
    waiting.guard()["spec"]["workloadSelector"]["labels"] = old
    waiting.gateway()["spec"]["selector"] = old
    waiting.fake.writes.clear()
    assert isinstance(waiting.status(), testing.ActiveStatus)
    assert order_of(waiting) == [
        "delete routes",
        "delete gateway",
        "patch guard",
        "patch gateway",
        "patch routes",
    ]
    assert waiting.guard()["spec"]["workloadSelector"]["labels"] == LABELS
    assert waiting.gateway()["spec"]["selector"] == LABELS


def test_name_without_hosts_is_blocked_and_nothing_is_served(world):
    world.related = [route(), auth()]
    world.run()
    assert len(world.routes()) == 1
    world.config = {"hosts": ""}
    status = world.status()
    assert status.name == "blocked"
    assert "run: juju config istio-integrator hosts=NAME" in status.message
    assert "needs hosts" in status.message
    assert (world.routes(), world.gateway()) == ([], None)


def test_pods_elsewhere_with_the_gateways_labels_end_the_service_until_they_are_gone(world):
    world.related = [route(), auth()]
    world.run()
    install_gateway(world.fake, "elsewhere")
    status = world.status()
    assert status.name == "blocked"
    assert "elsewhere/istio-ingressgateway" in status.message
    assert (world.routes(), world.gateway()) == ([], None)
    assert world.guard() is not None
    world.fake.delete("Pod", "gateway-0", "elsewhere")
    assert world.status().name == "active"
    assert len(world.routes()) == 1


def test_gateway_whose_pods_are_away_is_waited_for_and_keeps_what_it_serves(world):
    world.related = [route(), auth()]
    world.run()
    world.fake.delete("Pod", "gateway-0", "istio-ingress")
    status = world.status()
    assert status.name == "waiting"
    assert "waiting for pods of Service istio-ingress/istio-ingressgateway" in status.message
    assert len(world.routes()) == 1
    pod_of(world.fake, "istio-ingress")
    assert world.status().name == "active"


def test_named_gateway_is_refused_with_the_gateway_api(world):
    world.config = {"routing": "gateway-api"}
    world.related = [route(), auth()]
    status = world.status()
    assert status.name == "blocked"
    assert "is refused with routing=gateway-api" in status.message
    assert (world.routes(), world.gateway()) == ([], None)
