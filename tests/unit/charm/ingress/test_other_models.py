"""Routes lead to Services of the model only."""

import pytest

from istio_integrator.relations import kubeflow
from tests.unit.charm.ingress import wishes

REMOTE = "remote-0123456789abcdef0123456789abcdef"
"""How Juju calls an application that reaches us by an offer."""


def newer(model, application, endpoint):
    asked = wishes.route(wishes.match("/a"))
    received = wishes.received(1, asked, model=model, application=application, endpoint=endpoint)
    return wishes.plan(received)


def older(model, application, endpoint):
    asked = kubeflow.IngressRequest(service="app", port=80, prefix="/a", namespace=model)
    return wishes.plan(older=[kubeflow.Received(1, application, asked, "")])


ENDPOINTS = [(wishes.ASKED, newer), (wishes.OPEN, newer), (kubeflow.INGRESS, older)]


@pytest.mark.parametrize(("endpoint", "plan"), ENDPOINTS)
def test_route_to_a_service_outside_of_the_model_is_refused_by_name(endpoint, plan):
    found = plan("mlflow", "app", endpoint)
    assert found.routes == ()
    assert found.problems == (
        f"{endpoint}:1 app: asks for Services of mlflow; only Services of kubeflow get routes",
    )
    assert plan("kubeflow", "app", endpoint).problems == ()


@pytest.mark.parametrize("model", ["mlflow", "kubeflow"])
@pytest.mark.parametrize(("endpoint", "plan"), ENDPOINTS)
def test_application_of_another_model_is_refused_by_name(endpoint, plan, model):
    """Its own model may have the same name as ours, in another cluster."""
    found = plan(model, REMOTE, endpoint)
    assert found.routes == ()
    assert found.problems == (
        f"{endpoint}:1 {REMOTE}: is of another model; only Services of kubeflow get routes",
    )
