"""What `diagnose` says of the way in."""

import pytest

from tests import rights
from tests.functional.diagnosis.world import APP, restricted


@pytest.mark.parametrize(
    ("kind", "ready", "level", "words"),
    [
        ("LoadBalancer", True, "!", "nobody gave it an address"),
        ("ClusterIP", False, "✗", "has no ready pod"),
    ],
)
def test_gateway_that_can_not_be_reached(world, kind, ready, level, words):
    world.gateway(kind, ready=ready)
    found = world.worst("gateway")
    assert (found[0], words in found[1]) == (level, True)


def test_gateway_workload_that_is_not_there(world):
    world.gateway()
    world.options["gateway_selector"] = "istio=nowhere"
    assert world.worst("gateway")[0] == "✗"


def route(world, *, gateways, host="web", port=80):
    destination = {"host": host, "port": {"number": port}}
    spec = {
        "hosts": ["*"],
        "gateways": list(gateways),
        "http": [{"route": [{"destination": destination}]}],
    }
    labels = {"istio-integrator.charmhub.io/owner": f"{world.model}.{APP}"}
    world.create("VirtualService", "web", labels=labels, spec=spec)


def test_route_to_a_gateway_that_is_not_there(world):
    route(world, gateways=["kubeflow-gateway"])
    level, seen = world.worst("gateways")
    assert (level, f"no Gateway {world.model}/kubeflow-gateway" in seen) == ("✗", True)


def test_route_to_nobody(world):
    route(world, gateways=["kubeflow-gateway"])
    assert world.worst("routes") == (
        "✗",
        f"VirtualService {world.model}/web: there is no Service {world.model}/web",
    )
    world.create("Service", "web", spec={"ports": [{"name": "http", "port": 80}]})
    assert "has no ready endpoint" in world.worst("routes")[1]
    world.create(
        "EndpointSlice",
        "web-1",
        labels={"kubernetes.io/service-name": "web"},
        addressType="IPv4",
        endpoints=[{"addresses": ["10.0.0.9"], "conditions": {"ready": True}}],
        ports=[{"name": "http", "port": 8080}],
    )
    assert world.worst("routes")[0] == "✓"


def test_profile_that_lets_another_gateway_in(world):
    gateway = world.gateway()
    labels = {"app.kubernetes.io/part-of": "kubeflow-profile"}
    profile = f"{world.model}-alice"
    world.create("Namespace", profile, labels=labels)
    header = {"key": "request.headers[kubeflow-userid]", "values": ["alice"]}
    name = "cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account"
    rules = [{"when": [header], "from": [{"source": {"principals": [name]}}]}]
    world.create("AuthorizationPolicy", "ns-owner-access-istio", profile, spec={"rules": rules})
    found = world.says("profiles")[0]
    assert found.level.value == "✗"
    assert profile in found.seen
    assert found.next == (
        f"juju config kubeflow-profiles istio-gateway-namespace={gateway} "
        "istio-gateway-service-account=gw"
    )


def test_routes_of_models_are_judged_by_their_hosts_with_the_shipped_roles(world):
    world.gateway()
    world.options["hosts"] = "kubeflow.example.com"
    profile = f"{world.model}-alice"
    world.create("Namespace", profile, labels={"app.kubernetes.io/part-of": "kubeflow-profile"})
    ours = f"{world.model}/kubeflow-gateway"
    spec = {
        "hosts": [f"iris.{profile}.models.example.com"],
        "gateways": [ours],
        "http": [{"route": [{"destination": {"host": "iris", "port": {"number": 80}}}]}],
    }
    world.create("VirtualService", "iris", profile, spec=spec)
    with restricted(world, rights.roles(world.model)) as api:
        (found,) = world.says("hosts", api)
        assert f"Gateway {ours} serves no host of VirtualService {profile}/iris" in found.seen
