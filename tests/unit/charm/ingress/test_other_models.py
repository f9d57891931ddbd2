"""Routes to Services outside of the model: whose wish is one, and where the operator allows it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.config import config
from istio_integrator.ingress import guards
from istio_integrator.relations import kubeflow
from tests.unit.charm.ingress import wishes
from tests.unit.charm.ingress.test_guards import GUARD, TARGET, context
from tests.unit.charm.ingress.test_ingress_route_charm import asks, path
from tests.unit.charm.ingress_world import auth

REMOTE = "remote-0123456789abcdef0123456789abcdef"
"""How Juju calls an application that reaches us by an offer."""
NAMED = ("mlflow", "feast")


def plan(model, application, *, namespaces=NAMED, **more):
    asked = wishes.route(wishes.match("/a"))
    received = wishes.received(1, asked, model=model, application=application, **more)
    return wishes.plan(received, namespaces=namespaces, token=wishes.TOKEN)


@pytest.mark.parametrize("endpoint", [wishes.ASKED, wishes.OPEN])
def test_application_of_another_model_has_routes_to_namespaces_that_the_operator_names(endpoint):
    for model in NAMED:
        found = plan(model, REMOTE, endpoint=endpoint)
        assert found.problems == ()
        hosts = [each.host for route in found.routes for each in route.backends]
        assert hosts == [f"app.{model}.svc.cluster.local"]
        assert [route.is_asked for route in found.routes] == [endpoint == wishes.ASKED]


@pytest.mark.parametrize("model", ["kubeflow", "other", "mlflow-2"])
def test_application_of_another_model_is_refused_elsewhere_by_the_name_of_the_option(model):
    """Its own model may be called like ours, in another cluster."""
    found = plan(model, REMOTE)
    assert found.routes == ()
    (problem,) = found.problems
    assert problem == (
        f"istio-ingress-route:1 {REMOTE}: is of another model and asks for Services of namespace "
        f"{model}: add it to the option route-namespaces if they are meant"
    )
    assert plan(model, REMOTE, namespaces=(model,)).problems == ()


@pytest.mark.parametrize("model", [*NAMED, "other"])
@pytest.mark.parametrize("endpoint", [wishes.ASKED, wishes.OPEN])
def test_application_of_the_model_opens_no_other_namespace_whatever_the_operator_names(
    model, endpoint
):
    """What was named is for those who are there; who is here has no Service there."""
    found = plan(model, "app", endpoint=endpoint)
    assert found.routes == ()
    (problem,) = found.problems
    assert problem == (
        f"{endpoint}:1 app: asks for Services of {model}: applications of kubeflow have only "
        "those of it"
    )


def test_grpc_of_another_namespace_is_refused_by_name():
    grpc = wishes.route(wishes.match("/"), listener={"port": 80, "protocol": "GRPC"})
    grpc["matches"] = None
    asked = wishes.received(1, model="mlflow", application=REMOTE, grpc=[grpc])
    (problem,) = wishes.plan(asked, namespaces=NAMED).problems
    assert "grpc_routes" in problem
    assert "mlflow" in problem


@given(
    st.sampled_from(["kubeflow", "mlflow", "feast", "kube-system"]),
    st.sampled_from(["app", REMOTE, "remote-app", f"{REMOTE}0", REMOTE.upper()]),
    st.lists(st.sampled_from(["kubeflow", "mlflow", "feast"]), unique=True),
)
def test_no_route_leads_outside_but_to_what_is_named_and_for_others(model, application, named):
    found = plan(model, application, namespaces=tuple(named))
    is_foreign = kubeflow.is_of_another_model(application)
    assert bool(found.routes) is (model in named if is_foreign else model == "kubeflow")
    hosts = {each.host for route in found.routes for each in route.backends}
    assert hosts <= {f"app.{model}.svc.cluster.local"}


def test_identity_arrives_at_named_namespaces_only_as_the_service_said_it():
    def leaving(namespaces):
        found = guards.context(
            GUARD,
            TARGET,
            owner="kubeflow.istio-integrator",
            model="kubeflow",
            domain="cluster.local",
            namespaces=namespaces,
        )
        return {header.value for header in found.leaving}

    for value in leaving(NAMED):
        for namespace in ("kubeflow", *NAMED):
            assert f"xds.cluster_name.endsWith('.{namespace}.svc.cluster.local')" in value
        assert "(xds" in value
    ours = {header.value for header in context(GUARD).leaving}
    assert leaving(()) == leaving(("kubeflow",)) == ours


def test_charm_serves_and_guards_what_the_option_names(world):
    world.related = [asks(REMOTE, path("/mlflow/"), model="mlflow"), auth()]
    assert "route-namespaces" in world.status().message
    assert world.routes() == []
    world.config = {"route_namespaces": "mlflow, feast"}
    world.run()
    (entry,) = world.http()
    assert entry["route"][0]["destination"]["host"] == "app.mlflow.svc.cluster.local"
    assert ".mlflow.svc.cluster.local" in json.dumps(world.guard()["spec"])
    world.config = {}
    world.run()
    assert world.routes() == []
    assert ".mlflow.svc.cluster.local" not in json.dumps(world.guard()["spec"])


@pytest.mark.parametrize("value", ["mlflow,-a", "a/b", "*", "x" * 64])
def test_option_names_namespaces(value):
    with pytest.raises(config.errors.ConfigError, match="route-namespaces"):
        config.Config.load({"route-namespaces": value})
    with pytest.raises(config.errors.ConfigError, match="more than 32"):
        config.Config.load({"route-namespaces": ",".join(f"n{n}" for n in range(33))})
    assert config.Config.load({"route-namespaces": "a, b,a"}).route_namespaces == ("a", "b")
