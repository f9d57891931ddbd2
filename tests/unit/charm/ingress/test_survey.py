"""What the model remembers of its gateway, and how the operator moves it."""

import json

import pytest

from tests.unit.charm import ingress_world
from tests.unit.charm.ingress_world import (
    World,
    auth,
    authority,
    install_gateway,
    neighbour,
    route,
    secrets,
    sign,
)

MEMORY = ("ConfigMap", "istio-integrator-gateway-place", "kubeflow")
OLD = "2020-01-01T00:00:00Z"


@pytest.fixture
def world(fake, monkeypatch):
    """A model that has been served for a while."""
    ingress_world.connect(fake, monkeypatch)
    made = World(fake)
    made.config = {"hosts": "kf.example.com"}
    made.related = [route(), auth(), authority()]
    made.run()
    sign(made)
    assert made.status().name == "active"
    for obj in fake.objects.values():
        obj["metadata"]["creationTimestamp"] = OLD
    return made


def remembered(world):
    return json.loads(world.fake.find(*MEMORY)["data"]["place"])


def homes(world, *kinds):
    """Namespaces in which something of ours is."""
    return sorted(obj["metadata"]["namespace"] for kind in kinds for obj in world.all(kind))


def test_model_remembers_where_it_is_served_and_no_uid(world):
    assert remembered(world) == {
        "namespace": "istio-ingress",
        "service": "istio-ingressgateway",
        "selector": {"istio": "ingressgateway"},
        "hosts": ["kf.example.com"],
        "http_port": 80,
        "https_port": 443,
    }


def test_second_gateway_of_the_cluster_is_no_question_to_a_model_that_is_served(world):
    install_gateway(world.fake, "elsewhere")
    assert world.status().name == "active"
    assert remembered(world)["namespace"] == "istio-ingress"


def test_operator_moves_the_model_and_its_routes_leave_before_their_guard(world):
    install_gateway(world.fake, "elsewhere")
    world.run()
    world.fake.writes.clear()
    world.config["gateway_service"] = "elsewhere/istio-ingressgateway"
    world.run()
    order = [" ".join(write.split()[:2]) for write in world.fake.writes]
    first = [
        order.index("delete virtualservices"),
        order.index("delete gateways"),
        order.index("delete envoyfilters"),
        order.index("patch configmaps"),
        order.index("patch envoyfilters"),
        order.index("patch secrets"),
        order.index("patch gateways"),
        order.index("patch virtualservices"),
    ]
    assert first == sorted(first)
    assert homes(world, "EnvoyFilter") == ["elsewhere"]
    assert secrets(world) == ["elsewhere", "kubeflow"]
    # What was decided outlives the option.
    del world.config["gateway_service"]
    assert world.status().name == "active"
    assert remembered(world)["namespace"] == "elsewhere"


def test_gateway_that_the_operator_names_and_is_not_there_moves_nothing(world):
    world.config["gateway_service"] = "elsewhere/istio-ingressgateway"
    world.fake.writes.clear()
    status = world.status()
    assert status.name == "waiting"
    assert "waiting for Service elsewhere/istio-ingressgateway" in status.message
    assert world.fake.writes == []


def test_annotations_wait_for_the_service_that_the_operator_names(world):
    world.config |= {
        "gateway_service": "elsewhere/istio-ingressgateway",
        "gateway_service_annotations": "{example.com/name: kf}",
    }
    world.run()
    served = world.fake.find("Service", "istio-ingressgateway", "istio-ingress")
    assert "annotations" not in served["metadata"]
    install_gateway(world.fake, "elsewhere")
    world.run()
    named = world.fake.find("Service", "istio-ingressgateway", "elsewhere")
    assert named["metadata"]["annotations"]["example.com/name"] == "kf"


@pytest.mark.parametrize("options", [{}, {"gateway_selector": "istio=ingressgateway"}])
def test_charm_from_before_is_refreshed_where_its_guard_stands(world, options):
    world.fake.delete(*MEMORY)
    install_gateway(world.fake, "elsewhere")
    world.config |= options
    world.fake.writes.clear()
    assert world.status().name == "active"
    assert [write.split()[:2] for write in world.fake.writes] == [["patch", "configmaps"]]
    assert remembered(world)["namespace"] == "istio-ingress"


def test_refresh_while_the_gateway_is_away_waits_where_the_guard_stands(world):
    world.fake.delete(*MEMORY)
    install_gateway(world.fake, "elsewhere")
    gateway = world.fake.find("Deployment", "istio-ingressgateway", "istio-ingress")
    world.fake.delete("Deployment", "istio-ingressgateway", "istio-ingress")
    world.fake.writes.clear()
    for _ in range(2):
        assert world.status().name == "waiting"
        assert world.fake.writes == []
    world.fake.add(gateway)
    assert world.status().name == "active"
    assert remembered(world)["namespace"] == "istio-ingress"


def test_refresh_brings_guard_and_key_back_from_a_tenant(world):
    """A revision from before could be led there."""
    world.fake.delete(*MEMORY)
    world.fake.namespace("team-a")
    world.fake.labels("team-a")["app.kubernetes.io/part-of"] = "kubeflow-profile"
    guard = world.guard()
    world.fake.delete("EnvoyFilter", guard["metadata"]["name"], "istio-ingress")
    guard["metadata"]["namespace"] = "team-a"
    world.fake.add(guard)
    world.run()
    assert homes(world, "EnvoyFilter") == ["istio-ingress"]
    # Connections from before the guard have to end.
    assert world.routes() == []
    world.guard()["metadata"]["creationTimestamp"] = OLD
    assert world.status().name == "active"
    assert len(world.routes()) == 1


def test_guard_that_a_stranger_labelled_as_ours_is_not_taken_for_it(world):
    world.fake.delete(*MEMORY)
    install_gateway(world.fake, "aaa-elsewhere")
    copy = json.loads(json.dumps(world.guard()))
    copy["metadata"] |= {"namespace": "aaa-elsewhere", "creationTimestamp": "2026-01-01T00:00:00Z"}
    world.fake.add(copy)
    assert world.status().name == "active"
    assert homes(world, "EnvoyFilter") == ["istio-ingress"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "{}",
        '{"namespace": 5, "service": "gw", "selector": {"a": "b"}}',
        '{"namespace": "a", "service": "gw", "selector": {}}',
        json.dumps({"namespace": "a", "selector": {str(n): "x" for n in range(65)}}),
        json.dumps({"namespace": "a", "selector": {"a": "b"}, "hosts": ["x" * 200_000]}),
    ],
    ids=["empty", "text", "deep", "nothing", "number", "no selector", "long selector", "long"],
)
def test_memory_that_is_spoilt_is_made_anew_from_the_guard(world, text):
    before = remembered(world)
    world.fake.find(*MEMORY)["data"]["place"] = text
    install_gateway(world.fake, "elsewhere")
    assert world.status().name == "active"
    assert remembered(world) == before


def test_memory_goes_with_the_ingress_and_with_the_application(world):
    related, world.related = world.related, []
    world.run()
    assert world.fake.find(*MEMORY)
    world.run()
    assert world.fake.find(*MEMORY) is None
    world.related = related
    world.run()
    assert world.fake.find(*MEMORY)
    world.remove()
    assert world.fake.find(*MEMORY) is None


def test_first_start_beside_our_host_makes_nothing(fake, monkeypatch):
    ingress_world.connect(fake, monkeypatch)
    neighbour(fake, "kf.example.com")
    world = World(fake)
    world.config = {"hosts": "kf.example.com"}
    world.related = [route(), auth()]
    status = world.status()
    assert status.name == "blocked"
    assert "shop/web" in status.message
    assert homes(world, "EnvoyFilter", "Gateway", "VirtualService") == []
    assert fake.find(*MEMORY) is None


def test_new_host_of_somebody_else_is_refused_and_the_old_one_served_on(world):
    neighbour(world.fake, "shop.example.com")
    world.run()
    world.fake.writes.clear()
    world.config["hosts"] = "shop.example.com"
    status = world.status()
    assert status.name == "blocked"
    assert "shop/web serves host shop.example.com too" in status.message
    assert world.gateway()["spec"]["servers"][0]["hosts"] == ["kf.example.com"]
    assert world.fake.writes == []


@pytest.mark.parametrize(
    "changes",
    [
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"spec": {"containers": [{"name": "istio-proxy", "args": ["proxy", "sidecar"]}]}},
        {"spec": {"containers": [{"name": "router", "args": ["router"]}]}},
    ],
    ids=["not ready", "a sidecar", "another container"],
)
def test_first_gateway_has_a_router_that_is_ready(fake, monkeypatch, changes):
    ingress_world.connect(fake, monkeypatch)
    fake.delete("Pod", "gateway-0", "istio-ingress")
    ingress_world.pod_of(fake, "istio-ingress", **changes)
    world = World(fake)
    world.related = [route(), auth()]
    status = world.status()
    assert status.name == "waiting"
    assert "istio-ingress/istio-ingressgateway has no ready router" in status.message
    assert world.guard() is None
