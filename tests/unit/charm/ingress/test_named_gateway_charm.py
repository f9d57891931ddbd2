"""A gateway that the options name, and what changes on it, with the whole charm."""

from tests.unit.charm.ingress_world import (
    OWN,
    auth,
    install_gateway,
    pod_of,
    route,
)


def order_of(world):
    names = {"envoyfilters": "guard", "gateways": "gateway", "virtualservices": "routes"}
    found = [write.split() for write in world.fake.writes]
    return [f"{verb} {names[kind]}" for verb, kind, _ in found if kind in names]


def test_other_hosts_are_guarded_before_the_gateway_serves_them(world):
    world.related = [route(), auth()]
    world.config = {"hosts": "kf.example.com"}
    world.run()
    world.fake.writes.clear()
    world.config = {"hosts": "ai.example.com"}
    world.run()
    assert order_of(world) == ["patch guard", "patch routes", "patch gateway", "patch gateway"]


def test_added_host_opens_once_envoy_shows_the_filters_that_guard_it(world):
    """Another team's route for `*` on our Gateway would serve it unauthenticated until then."""

    def hosts():
        (server,) = world.gateway()["spec"]["servers"]
        return server["hosts"]

    world.related = [route(), auth()]
    world.config = {"hosts": "kf.example.com"}
    world.run()
    world.config = {"hosts": "kf.example.com,ai.example.com"}
    world.hook()
    assert hosts() == ["kf.example.com"]
    world.run()
    assert hosts() == ["kf.example.com", "ai.example.com"]


def test_other_gateway_is_guarded_before_the_routes_move_there(world):
    world.related = [route(), auth()]
    world.run()
    world.fake.writes.clear()
    world.config = OWN
    world.run()
    assert order_of(world) == [
        "delete routes",
        "delete gateway",
        "patch guard",
        "delete guard",
        "patch routes",
        "patch gateway",
        "patch gateway",
    ]
    assert world.guard() is None
    name = "istio-integrator.kubeflow.istio-integrator"
    assert world.fake.find("EnvoyFilter", name, "kubeflow")


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
