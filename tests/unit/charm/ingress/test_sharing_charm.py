"""A gateway that others use too, and what changes on it, with the whole charm."""

import json

from ops import testing

from tests.unit.charm.ingress_world import (
    auth,
    install_gateway,
    neighbour,
    route,
)


def test_shared_gateway_without_hosts_blocks_and_changes_nothing(world):
    neighbour(world.fake)
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "shop/web" in status.message
    assert (world.gateway(), world.guard(), world.routes()) == (None, None, [])


def test_shared_gateway_waits_for_earlier_connections_once(world):
    neighbour(world.fake)
    world.config = {"hosts": "kf.example.com"}
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.WaitingStatus)
    assert "earlier connections" in status.message
    assert (world.gateway(), world.routes()) == (None, [])
    world.guard()["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    assert isinstance(world.status(), testing.ActiveStatus)
    assert world.gateway()["spec"]["servers"][0]["hosts"] == ["kf.example.com"]
    assert len(world.routes()) == 1


def test_gateway_that_was_open_waits_for_its_connections_before_it_asks(world):
    world.config = {"strict_ingress_auth": False}
    world.related = [route()]
    assert isinstance(world.status(), testing.ActiveStatus)
    # It has been open for a while.
    world.gateway()["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    world.related.append(auth())
    status = world.status()
    assert "earlier connections" in status.message
    assert (world.guard() is None, world.routes()) == (False, [])
    world.guard()["metadata"]["creationTimestamp"] = "2020-01-01T01:00:00Z"
    assert isinstance(world.status(), testing.ActiveStatus)
    assert len(world.routes()) == 1


def test_newcomer_to_our_gateway_is_spared_by_its_https_and_nothing_of_ours_changes(world):
    world.related = [route(), auth()]
    assert isinstance(world.status(), testing.ActiveStatus)
    neighbour(world.fake)
    world.fake.writes.clear()
    assert isinstance(world.status(), testing.BlockedStatus)
    assert [write.split()[:2] for write in world.fake.writes] == [["patch", "envoyfilters"]]
    (spared,) = [
        patch["match"]["routeConfiguration"]
        for patch in world.guard()["spec"]["configPatches"]
        if patch["applyTo"] == "VIRTUAL_HOST"
    ]
    assert spared == {"gateway": "shop/web"}
    # Nor is the model opened when its authentication goes meanwhile.
    world.related = [route()]
    world.run()
    assert "istio-integrator-closed" in json.dumps(world.guard())


def test_newcomer_beside_our_wildcard_changes_nothing_at_all(world):
    world.config = {"hosts": "*.kf.example.com"}
    world.related = [route(), auth()]
    assert isinstance(world.status(), testing.ActiveStatus)
    neighbour(world.fake)
    world.fake.writes.clear()
    assert isinstance(world.status(), testing.ActiveStatus)
    assert world.fake.writes == []


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


def test_refused_options_for_another_gateway_leave_the_guard_where_it_is(world):
    world.related = [route(), auth()]
    world.run()
    install_gateway(world.fake, "elsewhere")
    neighbour(world.fake)
    before = world.guard()["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    world.config = {"gateway_service": "elsewhere/istio-ingressgateway"}
    world.gateway()["spec"]["selector"] = {"a": "b"}
    assert isinstance(world.status(), testing.BlockedStatus)
    assert world.guard()["metadata"]["creationTimestamp"] == before
    assert world.guard("elsewhere") is None
    assert world.gateway()["spec"]["selector"] == {"istio": "ingressgateway"}
    assert len(world.routes()) == 1


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
    world.config = {"gateway_workload": True}
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
