"""A Gateway of the Gateway API that somebody else has: bound to, guarded, and left as it is."""

import copy
import json

import pytest
from ops import testing

from integrator_contract import names
from istio_integrator.config import config
from istio_integrator.ingress import existing_gateway, exposure, gateway
from tests.unit.charm import fake_cluster, ingress_world
from tests.unit.charm.ingress import wishes

HOST = "kubeflow.example.com"
API = "gateway.networking.k8s.io/v1"
LISTENER = {
    "name": "http",
    "port": 80,
    "protocol": "HTTP",
    "hostname": HOST,
    "allowedRoutes": {"namespaces": {"from": "All"}},
}
SECURE = {**LISTENER, "name": "https", "port": 443, "protocol": "HTTPS"}


def made(fake, kind, name, namespace="", api="v1", **more):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return fake.add({"apiVersion": api, "kind": kind, "metadata": metadata, **more})


def shared(fake, name="shared", *found, **spec):
    """Somebody's Gateway, which istiod serves and has deployed."""
    spec = {"gatewayClassName": "istio", "listeners": list(found or (LISTENER,)), **spec}
    added = made(fake, "Gateway", name, "edge", API, spec=spec)
    program(added)
    marks = {names.GATEWAY_NAME: name}
    template = {"metadata": {"labels": marks}, "spec": {"serviceAccountName": f"{name}-istio"}}
    made(fake, "Deployment", f"{name}-istio", "edge", "apps/v1", spec={"template": template})
    ports = [{"name": "http", "port": 80}, {"name": "https", "port": 443}]
    made(fake, "Service", f"{name}-istio", "edge", spec={"selector": marks, "ports": ports})
    return added


def program(obj, status="True", message="no pod"):
    said = {"status": "True", "message": message, "observedGeneration": 0}
    obj["status"] = {
        "conditions": [
            {**said, "type": "Accepted"},
            {**said, "type": "Programmed", "status": status},
        ],
        "addresses": [{"type": "IPAddress", "value": "203.0.113.7"}],
    }
    obj["metadata"].pop("generation", None)


@pytest.fixture
def world(monkeypatch):
    """A model with a route, and a Gateway of somebody else that the operator names."""
    monkeypatch.setattr(exposure, "DRAINED_AFTER", exposure.datetime.timedelta(days=-1))
    fake = fake_cluster.FakeCluster()
    fake.namespace("kubeflow")
    fake.namespace("edge")
    ingress_world.connect(fake, monkeypatch)
    made(
        fake,
        "GatewayClass",
        "istio",
        api=API,
        spec={"controllerName": names.GATEWAY_CONTROLLER},
    )
    made(fake, "GatewayClass", "other", api=API, spec={"controllerName": "example.com/other"})
    found = ingress_world.World(
        fake,
        ingress_world.route(),
        ingress_world.auth(),
        routing="gateway-api",
        gateway="edge/shared",
        hosts=HOST,
    )
    found.shared = shared(fake)
    return found


def routes(world):
    return [each["spec"] for each in world.all("HTTPRoute")]


def test_routes_are_on_it_at_our_hosts_alone_and_the_guard_is_before_its_workload(world):
    before = copy.deepcopy(world.shared)
    status = world.status()
    (spec,) = routes(world)
    (parent,) = spec["parentRefs"]
    assert (parent["namespace"], parent["name"]) == ("edge", "shared")
    assert spec["hostnames"] == [HOST]
    guard = world.guard("edge")
    assert guard["spec"]["workloadSelector"]["labels"] == {names.GATEWAY_NAME: "shared"}
    assert f"guarded[ [[{HOST}]] ] = true" in json.dumps(guard)
    assert "Gateway edge/shared at 203.0.113.7" in status.message
    assert "1 route by edge/shared-istio" in status.message
    assert world.gateway() is None
    assert world.shared == before


def test_one_of_several_workloads_is_named(world):
    spec = world.fake.find("Deployment", "shared-istio", "edge")["spec"]
    made(world.fake, "DaemonSet", "shared-istio-canary", "edge", "apps/v1", spec=spec)
    assert "1 route by edge/shared-istio" in world.status().message


def test_second_time_nothing_is_written(world):
    world.run()
    world.fake.writes.clear()
    world.run()
    assert world.fake.writes == []


def test_routes_wait_until_connections_from_before_the_guard_have_ended(world, monkeypatch):
    monkeypatch.setattr(exposure, "DRAINED_AFTER", exposure.datetime.timedelta(minutes=1))
    assert "earlier connections" in world.status().message
    assert world.guard("edge")
    assert routes(world) == []


def change(world, **spec):
    world.shared["spec"].update(spec)


def listen(world, **changes):
    change(world, listeners=[{**LISTENER, **changes}])


@pytest.mark.parametrize(
    ("prepare", "kind", "want"),
    [
        (lambda w: w.fake.delete("Gateway", "shared", "edge"), "waiting", "Gateway edge/shared"),
        (lambda w: program(w.shared, "False"), "waiting", "edge/shared: istiod says: no pod"),
        (lambda w: change(w, gatewayClassName="other"), "blocked", "GatewayClass other"),
        (lambda w: listen(w, protocol="TCP"), "blocked", "listener http is none for HTTP"),
        (lambda w: listen(w, hostname="shop.org"), "blocked", "name one of hosts"),
        (lambda w: listen(w, allowedRoutes={}), "blocked", "no routes of namespace kubeflow"),
        (lambda w: w.fake.delete("Deployment", "shared-istio", "edge"), "waiting", "workload of"),
        (lambda w: w.config.update(hosts=""), "blocked", "hosts is empty"),
        (lambda w: w.config.update(hosts="*.a.com,*.b.com"), "blocked", "hosts has '*.a.com'"),
        (lambda w: w.config.update(tls_secret="tls"), "blocked", "tls-secret can't be set"),
        (lambda w: w.config.update(https_redirect=True), "blocked", "https-redirect can't be"),
        (lambda w: w.config.update(gateway_workload=True), "blocked", "gateway-workload can't"),
        (lambda w: w.config.update(gateway_selector="a=b"), "blocked", "gateway-selector can't"),
        (lambda w: w.config.update(gateway_service="a/b"), "blocked", "gateway-service can't be"),
        (
            lambda w: w.config.update(gateway="kubeflow/kubeflow-gateway"),
            "blocked",
            "this charm's own",
        ),
        (lambda w: w.fake.forbidden.add(("get", "gateways", "edge")), "blocked", "in edge is"),
        (lambda w: change(w, addresses=[{"value": "a"}] * 2), "blocked", "spec.addresses"),
    ],
)
def test_what_is_in_the_way_is_said_and_nothing_is_made(world, prepare, kind, want):
    prepare(world)
    status = world.status()
    assert status.name == kind, status
    assert want in status.message
    assert routes(world) == []
    assert world.all("EnvoyFilter") == []


def test_who_is_served_stays_guarded_and_served_whatever_the_owner_does(world):
    world.run()
    before = routes(world)
    for prepare in (
        lambda: listen(world, hostname="shop.org"),
        lambda: program(world.shared, "False"),
        lambda: world.fake.delete("Gateway", "shared", "edge"),
    ):
        prepare()
        assert world.status().name in ("waiting", "blocked")
        assert routes(world) == before
        assert world.guard("edge")


def test_hosts_that_no_longer_fit_leave_those_that_are_served(world):
    world.run()
    world.config["hosts"] = "*.example.com"
    assert "hosts has" in world.status().message
    (spec,) = routes(world)
    assert spec["hostnames"] == [HOST]


def test_routes_are_away_while_the_guard_is_led_to_other_hosts(world, monkeypatch):
    world.run()
    seen = []
    monkeypatch.setattr(exposure, "SETTLE", "settle")
    monkeypatch.setattr(
        exposure.time,
        "sleep",
        lambda what: seen.append((HOST in json.dumps(world.guard("edge")), len(routes(world)))),
    )
    init = exposure.Ingress.__init__
    monkeypatch.setattr(
        exposure.Ingress,
        "__init__",
        lambda self, *given, **named: init(self, *given, sleep=exposure.time.sleep, **named),
    )
    world.config["hosts"] = "ml.example.com"
    change(world, listeners=[{**LISTENER, "hostname": ""}])
    world.run()
    # First the routes go; the guard for the next hosts is known before the routes come.
    assert seen[0] == (True, 0)
    assert seen[-1] == (False, 0)
    (spec,) = routes(world)
    assert spec["hostnames"] == ["ml.example.com"]


def test_hosts_without_a_listener_are_named_and_the_others_are_served(world):
    world.config["hosts"] = f"{HOST},ml.example.com"
    status = world.status()
    assert "no listener for ml.example.com" in status.message
    assert len(routes(world)) == 1


def test_manual_gateway_is_guarded_before_the_pods_of_its_service(world):
    made(world.fake, "Service", "way-in", "edge", spec={"selector": {"app": "way-in"}})
    template = {"metadata": {"labels": {"app": "way-in"}}, "spec": {}}
    made(world.fake, "DaemonSet", "way-in", "edge", "apps/v1", spec={"template": template})
    address = {"type": "Hostname", "value": "way-in.edge.svc.cluster.local"}
    change(world, addresses=[address])
    world.run()
    selected = world.guard("edge")["spec"]["workloadSelector"]["labels"]
    assert selected == {"app": "way-in"}
    assert len(routes(world)) == 1


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ({}, ""),
        ({"type": "IPAddress", "value": "10.0.0.1"}, ""),
        ({"value": "10.0.0.1"}, ""),
        ({"type": "Hostname", "value": "way-in"}, "way-in"),
        ({"type": "Hostname", "value": "way-in.edge.svc.cluster.local"}, "way-in"),
        ({"type": "Hostname", "value": "way-in.shop.svc.cluster.local"}, None),
        ({"type": "Hostname", "value": "way-in.edge"}, None),
        ({"type": "Hostname", "value": ".edge.svc.cluster.local"}, None),
        ({"type": "Hostname"}, None),
        ({"type": "Other", "value": "way-in"}, None),
    ],
)
def test_service_that_a_gateway_names_is_one_of_its_namespace(address, want):
    spec = {"addresses": [address] if address else []}
    obj = {"metadata": {"name": "shared", "namespace": "edge"}, "spec": spec}
    found = existing_gateway.named_service(obj, "cluster.local")
    if want is None:
        assert isinstance(found, gateway.Refusal)
        assert "NAME.edge.svc.cluster.local" in found.message
    else:
        assert found == want


def test_more_hosts_than_a_route_has_are_refused():
    hosts = ",".join(f"{number}.example.com" for number in range(17))
    options = config.Config.model_validate(
        {"routing": "gateway-api", "gateway": "edge/shared", "hosts": hosts}
    )
    assert "hosts has 17" in existing_gateway.refused_options(options, model="kubeflow")
    fewer = options.model_copy(update={"hosts": options.hosts[1:]})
    assert existing_gateway.refused_options(fewer, model="kubeflow") == ""


@pytest.mark.parametrize(("found", "want"), [((LISTENER,), "False"), ((LISTENER, SECURE), "True")])
def test_applications_are_told_what_its_listeners_say_of_tls(world, found, want):
    change(world, listeners=list(found))
    bag = {"config": json.dumps(wishes.config())}
    world.related.append(
        testing.Relation(wishes.ASKED, remote_app_name="envoy", remote_app_data=bag)
    )
    state = world.run()
    (relation,) = (one for one in state.relations if one.endpoint == wishes.ASKED)
    assert relation.local_app_data["tls_enabled"] == want
    assert relation.local_app_data["external_host"] == HOST


def test_certificates_are_named_as_unused_and_none_is_asked_for(world):
    world.related.append(ingress_world.authority())
    state = world.run()
    assert "certificates is not used" in state.unit_status.message
    (relation,) = (one for one in state.relations if one.endpoint == "certificates")
    assert dict(relation.local_app_data) == {}
    assert world.all("Secret") == []


def told(world):
    world.related.append(testing.Relation("gateway-metadata", remote_app_name="jupyter"))
    state = world.run()
    (relation,) = (one for one in state.relations if one.endpoint == "gateway-metadata")
    return json.loads(relation.local_app_data.get("metadata") or "{}"), state.unit_status


def test_controllers_hear_of_it_and_of_its_workload(world):
    assert told(world)[0] == {
        "namespace": "edge",
        "gateway_name": "shared",
        "deployment_name": "shared-istio",
        "service_account": "shared-istio",
    }


def test_controllers_do_not_hear_of_one_that_takes_their_routes_where_nobody_is_asked(world):
    change(world, listeners=[LISTENER, {**LISTENER, "name": "any", "port": 81, "hostname": ""}])
    metadata, status = told(world)
    assert metadata == {}
    assert "listener any of Gateway edge/shared" in status.message
    assert len(routes(world)) == 1


@pytest.mark.parametrize("event", [None, lambda ctx: ctx.on.remove()])
def test_everything_of_ours_goes_and_the_gateway_is_as_it_was(world, event):
    before = copy.deepcopy(world.shared)
    world.run()
    if event:
        world.remove()
    else:
        world.related = []
        world.run()
        # The guard outlives the routes by an event.
        assert routes(world) == []
        assert world.guard("edge")
        world.run()
    assert routes(world) == []
    assert world.all("EnvoyFilter") == []
    assert world.shared == before


def served_by(world):
    """Where routes and guard are: at which kind of Gateway."""
    (guard,) = world.all("EnvoyFilter")
    parents = {json.dumps(each["parentRefs"]) for each in routes(world)}
    return guard["metadata"]["namespace"], len(world.http()), len(parents), bool(world.gateway())


def test_ways_to_be_served_follow_each_other_and_leave_nothing(world):
    options = dict(world.config)
    before = copy.deepcopy(world.shared)
    for _ in range(2):
        world.config = dict(options)
        world.run()
        assert served_by(world) == ("edge", 0, 1, False)
        world.config = {**options, "routing": "virtualservice", "gateway": ""}
        world.run()
        assert served_by(world) == ("istio-ingress", 1, 0, True)
        world.config = dict(options)
        world.run()
        assert served_by(world) == ("edge", 0, 1, False)
        world.config = {**options, "gateway": ""}
        world.run()
        assert served_by(world) == ("kubeflow", 0, 1, True)
    assert world.shared == before


@pytest.mark.parametrize("routing", ["virtualservice", "gateway-api"])
def test_former_place_serves_until_the_named_gateway_is_served(world, routing):
    options = dict(world.config)
    world.config = {**options, "routing": routing, "gateway": ""}
    world.run()
    before = served_by(world)
    world.config = options
    program(world.shared, "False")
    assert "istiod says: no pod" in world.status().message
    assert served_by(world) == before
    program(world.shared)
    world.run()
    assert served_by(world) == ("edge", 0, 1, False)


def test_another_gateway_serves_as_soon_as_it_can_and_gets_a_guard_of_its_own(world):
    world.run()
    world.config["gateway"] = "edge/second"
    assert "waiting for Gateway edge/second" in world.status().message
    (spec,) = routes(world)
    assert spec["parentRefs"][0]["name"] == "shared"
    old = world.guard("edge")["metadata"]["creationTimestamp"]
    shared(world.fake, "second")
    world.run()
    (spec,) = routes(world)
    assert spec["parentRefs"][0]["name"] == "second"
    guard = world.guard("edge")
    assert guard["spec"]["workloadSelector"]["labels"] == {names.GATEWAY_NAME: "second"}
    # In the same namespace: it does not see connections of before, so its age has to be its own.
    assert guard["metadata"]["creationTimestamp"] > old


def test_routes_at_a_gateway_go_also_where_its_place_was_forgotten(world):
    options = dict(world.config)
    world.run()
    world.fake.delete("ConfigMap", "istio-integrator-gateway-place", "kubeflow")
    world.config = {**options, "routing": "virtualservice", "gateway": ""}
    world.run()
    assert served_by(world) == ("istio-ingress", 1, 0, True)
