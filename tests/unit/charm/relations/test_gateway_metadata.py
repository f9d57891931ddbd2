"""The library that controllers use learns which Gateway serves the model, and that none does."""

import ops
import pytest
from charmlibs.interfaces import gateway_metadata as library
from ops import testing

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.ingress_world import gateway_api_world, program

META = {
    "name": "jupyter-controller",
    "requires": {"gateway-metadata": {"interface": "gateway_metadata", "limit": 1}},
}


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


@cases(
    ("revision", "labels"), the_default=("", {}), another=("canary", {"istio.io/rev": "canary"})
)
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
    denied = 400, 'admission webhook "a.b" denied the request: no'
    world.fake.validators.append(lambda obj: denied if obj["kind"] == "HTTPRoute" else None)


def offer_classes(world, *names):
    one = world.fake.find("GatewayClass", "mesh")
    world.fake.delete("GatewayClass", "mesh")
    for name in names:
        world.fake.add({**one, "metadata": {"name": name}})


def switch_off(name, value="false"):
    """Return a change of istiod's environment."""
    return lambda world: fake_cluster.set_environment(world.fake, name, value)


SWITCHES = [
    ("PILOT_ENABLE_GATEWAY_API", "false", "the Gateway API switched off"),
    ("PILOT_ENABLE_GATEWAY_API_STATUS", "0", "the status of Gateways switched off"),
    (
        *("PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", "false"),
        "the deployment of gateways switched off",
    ),
    # The guard is an EnvoyFilter with a selector.
    (
        *("ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY", "false"),
        "EnvoyFilters for gateways of the Gateway API switched off",
    ),
]


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (
            lambda world: world.fake.forbidden.add(("list", "httproutes")),
            "missing permission: list httproutes",
        ),
        (lose_definitions, "no Gateway API with v1 of Gateway, HTTPRoute"),
        (drop_names_of_rules, "too old, its routes' rules have no names"),
        (reject_routes, 'webhook "a.b" refuses HTTPRoute kf/probe-'),
        (
            lambda world: world.fake.delete("Deployment", "istiod", "istio-system"),
            "istiod's Deployment can't be read",
        ),
        *[
            (switch_off(name, value), f"istiod istio-system/istiod has {what}; unset {name} there")
            for name, value, what in SWITCHES
        ],
        (
            offer_classes,
            "offers no GatewayClass; run: juju config mesh-2 routing=virtualservice; or restart",
        ),
        (lambda world: offer_classes(world, "a", "b"), "several GatewayClasses of istiod (a, b)"),
        (
            lambda world: world.config.update(
                hosts=",".join(f"h{n}.example.com" for n in range(33))
            ),
            "hosts has 33 names, and a Gateway has listeners for 32",
        ),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_served_by_it(world, change, want):
    change(world)
    status = world.run().unit_status
    assert isinstance(status, testing.BlockedStatus)
    assert want in status.message
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
    world.run()
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
