"""Routes of an application of another model, to a namespace that the operator names."""

import json

import pytest

from istio_integrator.relations import endpoints
from tests import echo, gateway_client, waiting
from tests.unit.charm.ingress import wishes

REMOTE = "remote-0123456789abcdef0123456789abcdef"
CLAIMED = {"kubeflow-userid": "victim@example.com", "kubeflow_groups": "admins"}


@pytest.fixture
def other(place):
    """A route of the other model's to the neighbour's Service, beside those of the model."""
    place.part().remove()
    asked = wishes.config(wishes.route(wishes.match("/web/"), service="web"), model="shop")
    place.newer = [(wishes.ASKED, endpoints.Bag(20, REMOTE, {"config": json.dumps(asked)}))]
    place.options = {"hosts": gateway_client.HOST}
    yield place
    place.newer = []
    place.part().remove()


def test_route_to_another_namespace_is_served_once_it_is_named_and_only_asked_about(other):
    assert any("route-namespaces" in said for said in other.reconcile())
    other.eventually(200, "/kfp/x", Cookie=echo.COOKIE)
    ours = other.asked_once("/web/x", Cookie=echo.COOKIE).echo
    # The dashboard has all that nobody claims.
    assert ours["port"] == other.asked_once("/", Cookie=echo.COOKIE).echo["port"]
    theirs = other.asked_once("/", host=gateway_client.TENANT, **CLAIMED).echo
    assert theirs["headers"]["kubeflow-userid"] == CLAIMED["kubeflow-userid"]

    other.options["route_namespaces"] = "mlflow,shop"
    assert not any("route-namespaces" in said for said in other.reconcile())

    def is_theirs():
        answer = other.asked_once("/web/x", Cookie=echo.COOKIE)
        return answer.status == 200 and answer.echo["port"] == theirs["port"]

    assert waiting.eventually(is_theirs)
    assert other.asked_once("/web/x").status == 302
    got = other.asked_once("/web/x", Cookie=echo.COOKIE, **CLAIMED).echo["headers"]
    assert got["kubeflow-userid"] == echo.USER
    assert not any(claim in str(got) for claim in CLAIMED.values())


def test_claimed_identity_arrives_at_a_named_namespace_by_no_gateway(other):
    other.options["route_namespaces"] = "shop"
    other.reconcile()

    def is_taken_away():
        got = other.asked_once("/", host=gateway_client.TENANT, **CLAIMED).echo["headers"]
        return not any(claim in str(got) for claim in CLAIMED.values())

    assert waiting.eventually(is_taken_away)
