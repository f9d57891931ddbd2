"""The whole charm with an authorization service on `forward-auth`, on a small API server."""

import json

import pytest
from ops import testing

from tests.unit.charm.ingress_world import auth, is_closed, route

ADDRESS = "http://oidc.kubeflow.svc.cluster.local:4180/decisions"


def forwarding(application="oauth2-proxy", **changes):
    bag = {
        "decisions_address": ADDRESS,
        "app_names": "[]",
        "headers": '["kubeflow-userid"]',
        **changes,
    }
    return testing.Relation("forward-auth", remote_app_name=application, remote_app_data=bag)


def nothing():
    return testing.Relation("forward-auth", remote_app_name="oauth2-proxy")


def test_application_on_forward_auth_is_asked_and_told_whose_routes_there_are(world):
    world.related = [route(), route("dex-auth", prefix="/dex"), forwarding()]
    status = world.status()
    assert isinstance(status, testing.ActiveStatus), status
    assert len(world.routes()) == 2
    text = json.dumps(world.guard())
    assert "outbound|4180||oidc.kubeflow.svc.cluster.local" in text
    assert '"path_prefix": "/decisions"' in text
    told = world.related[2].local_app_data["ingress_app_names"]
    assert json.loads(told) == ["dex-auth", "kfp-ui"]


def test_second_event_with_forward_auth_writes_nothing(world):
    world.related = [route(), forwarding()]
    world.run()
    world.fake.writes.clear()
    world.run()
    assert world.fake.writes == []


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("relation", "words"),
    [
        pytest.param(nothing(), "waiting for oauth2-proxy on forward-auth", id="nothing"),
        pytest.param(
            forwarding(decisions_address=ADDRESS.replace("http", "https")),
            "does not begin with http://",
            id="https",
        ),
        pytest.param(
            forwarding(decisions_address="http://sso.example.com/"),
            "the host sso.example.com, which is no Service",
            id="another host",
        ),
        pytest.param(
            forwarding(decisions_address=ADDRESS.replace("oidc", "gone")),
            "waiting for Service kubeflow/gone",
            id="no such Service",
        ),
        pytest.param(
            forwarding(headers="[" * 2000),
            "ingress is closed: forward-auth of oauth2-proxy: headers",
            id="hostile",
        ),
    ],
)
def test_gateway_is_closed_without_an_answer_on_forward_auth(world, relation, words, strict):
    world.config = {"require_authentication": strict}
    world.related = [route(), relation]
    status = world.status()
    assert not isinstance(status, testing.ActiveStatus)
    assert "ingress is closed" in status.message
    assert words in status.message
    assert status.message.isprintable()
    assert is_closed(world.guard())


def test_gateway_is_closed_when_forward_auth_is_broken_and_when_both_ways_are_related(world):
    world.related = [route(), forwarding()]
    world.run()
    assert len(world.routes()) == 1
    world.related.append(auth())
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert status.message.startswith(
        "run: juju run istio-integrator/leader diagnose; ingress is closed: oidc-gatekeeper on "
        "ingress-auth and oauth2-proxy on forward-auth both authenticate requests"
    )
    assert is_closed(world.guard())
    gone = world.related.pop()
    world.run()
    assert not is_closed(world.guard())
    gone = world.related[1]
    world.run(lambda ctx: ctx.on.relation_broken(gone))
    assert is_closed(world.guard())


def test_closed_gateway_is_said_before_what_else_is_waited_for_or_refused(world):
    silent = testing.Relation("istio-ingress-route", remote_app_name="dashboard")
    asked = testing.Relation("forward-auth", remote_app_name="oauth2-proxy")
    world.related = [route(), silent, asked]
    assert world.status() == testing.WaitingStatus(
        "ingress is closed: waiting for oauth2-proxy on forward-auth; +1 more"
    )
    world.related = [route(prefix="no path"), forwarding(), auth()]
    assert "ingress is closed: oidc-gatekeeper on ingress-auth" in world.status().message


def test_forward_auth_alone_closes_the_gateway_for_others_routes(world):
    world.related = [nothing()]
    assert "ingress is closed" in world.status().message
    assert world.gateway() is not None
