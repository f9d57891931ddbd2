"""The library that controllers use learns which Gateway serves the model, and that none does."""

import ops
import pytest
from charmlibs.interfaces import gateway_metadata as library
from ops import testing

from tests.unit.cases import cases
from tests.unit.charm import charm_world, fake_cluster
from tests.unit.charm.ingress_world import gateway_api_world, program

NEEDED = {"gateway-metadata": {"interface": "gateway_metadata", "limit": 1}}
META = {"name": "jupyter-controller", "requires": NEEDED}


class Controller(ops.CharmBase):
    """Reads what it is told, with the library's own requirer."""

    said = None

    def __init__(self, framework):
        super().__init__(framework)
        requirer = library.GatewayMetadataRequirer(self)
        Controller.said = requirer.get_metadata()


def heard(bag):
    """Return what a controller's library reads from the charm's data bag."""
    relation = testing.Relation("gateway-metadata", remote_app_data=bag)
    ctx = testing.Context(Controller, META)
    ctx.run(ctx.on.relation_changed(relation), testing.State(relations=[relation]))
    return Controller.said


@pytest.fixture
def world(fake, monkeypatch):
    """A model with a route, one controller, and a cluster that has the Gateway API."""
    return gateway_api_world(fake, monkeypatch)


def told(state):
    """Our data bag of the relation."""
    (relation,) = (one for one in state.relations if one.endpoint == "gateway-metadata")
    return relation.local_app_data


def test_controller_hears_of_the_gateway_when_istiod_serves_it(world):
    state = world.run()
    assert heard(told(state)) is None
    program(world.fake)
    # The class of an existing Gateway can't change.
    offer_classes(world, "istio", "mesh")
    state = world.run()
    found = heard(told(state))
    # This relation is about a Gateway of Istio's API.
    assert state.get_relations("gateway-info")[0].local_app_data["gateway_up"] == "false"
    assert (found.namespace, found.gateway_name) == ("kf", "kubeflow-gateway")
    assert found.deployment_name == found.service_account == "kubeflow-gateway-mesh"


@cases(("revision", "labels"), default=("", {}), another=("canary", {"istio.io/rev": "canary"}))
def test_gateway_is_for_the_istiod_of_the_revision_that_is_asked_for(world, revision, labels):
    """One of the default revision takes what names none; another's has to be named."""
    fake_cluster.install_istio(world.fake, revision="canary")
    world.config["revision"] = revision
    world.run()
    made = world.fake.find("Gateway", "kubeflow-gateway", "kf")["metadata"].get("labels", {})
    assert {key: made[key] for key in made if key == "istio.io/rev"} == labels


def test_what_was_told_stays_while_pods_restart_and_goes_with_the_mode(world, caplog):
    world.run()
    program(world.fake)
    world.run()
    program(world.fake, programmed="False")
    state = world.run()
    assert "address pending" in state.unit_status.message
    assert heard(told(state)) is not None
    caplog.clear()
    switch_off("PILOT_ENABLE_GATEWAY_API")(world)
    assert "unset PILOT_ENABLE_GATEWAY_API" in world.status().message
    assert "address pending" in caplog.text
    world.config["routing"] = "virtualservice"
    assert heard(told(world.run())) is None
    assert world.all("HTTPRoute") == []
    assert [each["apiVersion"] for each in world.all("Gateway")] == ["networking.istio.io/v1"]
    said = "set routing=gateway-api: jupyter-controller, kfp-ui waits for gateway-metadata"
    other = testing.Relation("gateway-metadata", remote_app_name="kfp-ui")
    world.related.insert(0, other)
    status = world.status()
    assert said in status.message
    assert "Gateway API" not in status.message


def lose_definitions(world):
    world.fake.absent.add("gateway.networking.k8s.io/v1")


def drop_names_of_rules(world):
    """Emulate a Gateway API whose rules have no names yet."""
    create = world.fake._create

    def older(key, obj, *, dry_run):
        for rule in obj.get("spec", {}).get("rules", ()):
            rule.pop("name", None)
        return create(key, obj, dry_run=dry_run)

    world.fake._create = older


def reject_routes(world):
    world.fake.deny("HTTPRoute", 400, 'admission webhook "a.b" denied the request: no')


def offer_classes(world, *names):
    one = world.fake.find("GatewayClass", "mesh")
    world.fake.delete("GatewayClass", "mesh")
    for name in names:
        world.fake.add({**one, "metadata": {"name": name}})


def switch_off(name, value="0"):
    """Return a change of istiod's environment."""
    return lambda world: fake_cluster.set_environment(world.fake, name, value)


SWITCHES = {
    "PILOT_ENABLE_GATEWAY_API": "the Gateway API",
    "PILOT_ENABLE_GATEWAY_API_STATUS": "the status of Gateways",
    "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "the deployment of gateways",
    # The guard is an EnvoyFilter with a selector.
    "ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY": "EnvoyFilters for gateways of the Gateway API",
}
LEAVE = "run: juju config mesh-2 routing=virtualservice"
DIAGNOSE = "run: juju run mesh-2/leader diagnose"
TRUST = "run: juju trust mesh-2 --scope=cluster"
ISTIOD = "istiod istio-system/istiod"
ABSENT = "the cluster has no Gateway API with v1 of Gateway, HTTPRoute"
TOO_OLD = "the cluster's Gateway API is too old, its routes' rules have no names"
INSTALL = "or install the Gateway API 1.4 or newer in the cluster"
UNKNOWN = "it is not known whether requests would be authenticated"
RESTART = "or restart istiod if the Gateway API was installed after it"


def forbid_routes(world):
    world.fake.forbidden.add(("list", "httproutes"))


def set_hosts(world):
    world.config["hosts"] = ",".join(f"h{n}.example.com" for n in range(33))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (forbid_routes, f"missing permission: list httproutes; {TRUST}"),
        (lose_definitions, f"{LEAVE}; {ABSENT}; {INSTALL}"),
        (drop_names_of_rules, f"{LEAVE}; {TOO_OLD}; {INSTALL}"),
        (reject_routes, f'{DIAGNOSE}; webhook "a.b" refuses HTTPRoute kf/probe-; +1 more; no'),
        (
            lambda world: world.fake.delete("Deployment", "istiod", "istio-system"),
            f"{LEAVE}; istiod's Deployment can't be read, so {UNKNOWN}",
        ),
        *[
            (switch_off(name), f"{ISTIOD} has {what} switched off; unset {name} there")
            for name, what in SWITCHES.items()
        ],
        (offer_classes, f"{ISTIOD} offers no GatewayClass; {LEAVE}; {RESTART}"),
        (
            lambda world: offer_classes(world, "a", "b"),
            f"{LEAVE}; of several GatewayClasses of istiod (a, b) none is called istio",
        ),
        (set_hosts, f"{LEAVE}; hosts has 33 names, and a Gateway has listeners for 32"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_served_by_it(world, change, message):
    change(world)
    assert world.run().unit_status == testing.BlockedStatus(message)
    assert world.gateway() is None


def test_gateway_api_is_not_missing_while_the_api_server_fails(world):
    world.fake.failures.append(("/httproutes", 500, {}))
    status = world.hook().unit_status
    assert (status.name, "Injected" in status.message) == ("waiting", True)


def test_a_model_that_is_served_stays_served_where_the_gateway_api_is_missing(world):
    world.config.clear()
    world.run()
    world.config["routing"] = "gateway-api"
    lose_definitions(world)
    assert "no Gateway API with v1 of Gateway" in world.run().unit_status.message
    assert world.gateway()["apiVersion"] == "networking.istio.io/v1"
    assert len(world.routes()) == 1
    world.related = []
    status = world.run().unit_status
    assert (status.name, world.gateway()) == ("blocked", None)
    assert "no Gateway API with v1 of Gateway" in status.message


def test_usual_class_is_taken_of_several(world):
    offer_classes(world, "a", "istio")
    (server,) = charm_world.results(world.ctx, world.run()).expected.servers
    assert (server.port, server.protocol, server.hosts) == (80, "HTTP", ("*",))
    group = "gateway.networking.k8s.io"
    kinds = [{"group": group, "kind": each} for each in ("HTTPRoute", "GRPCRoute")]
    routes = {"namespaces": {"from": "All"}, "kinds": kinds}
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": routes}
    assert world.gateway()["spec"] == {
        "gatewayClassName": "istio",
        # Objects that istiod makes of the Gateway have none of its labels.
        "infrastructure": {"labels": {}, "annotations": {}},
        "listeners": [listener],
    }
    # Plain HTTP is not redirected.
    assert len(world.all("EnvoyFilter")) == 1
