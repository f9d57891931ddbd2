"""Webhooks in the model that API servers can not call."""

import pytest

from istio_integrator.diagnosis.checks import webhooks
from istio_integrator.istio import authorization_policy, peer_authentication
from istio_integrator.messages import Said
from istio_integrator.situation.model import Call
from tests.unit.charm.diagnosis.objects import obj, pod
from tests.unit.charm.security.callers import service

ROOT = "istio-system"

STRICT = obj("PeerAuthentication", ROOT, mtls={"mode": "STRICT"})


def allowing(**operation):
    return obj("AuthorizationPolicy", "a", rules=[{"to": [{"operation": operation}]}])


def backend(one, port=443):
    return webhooks.Backend("katib.kubeflow.org", one, port)


@pytest.mark.parametrize(
    ("one", "found", "command"),
    [
        pytest.param(pod(), [], "", id="nothing-in-the-way"),
        pytest.param(pod(), [STRICT], "juju config app excluded-pods=app=web", id="strict-mesh"),
        pytest.param(pod(), [obj("AuthorizationPolicy", "a")], "excluded-pods", id="deny"),
        pytest.param(pod(), [allowing(ports=["443"])], "", id="allow-its-port"),
        pytest.param(
            pod(), [allowing(methods=["POST"])], "excluded-pods", id="allow-unseen-requests"
        ),
        pytest.param(
            pod(operator_juju_is_name="x", **{"operator.juju.is/name": "modeloperator"}),
            [STRICT],
            "kubectl -n a delete pod web",
            id="modeloperator",
        ),
    ],
)
def test_webhook_that_api_servers_can_not_call_is_named(one, found, command):
    said = list(
        webhooks.judge(
            [backend(one)],
            authorization_policy.read_all(each for each in found if each is not STRICT),
            peer_authentication.read_all(each for each in found if each is STRICT),
            root=ROOT,
            application="app",
        )
    )
    assert [each.said for each in said] == ([Said.WEBHOOK_NOT_REACHED] if command else [])
    for each in said:
        assert each.about["webhook"] == "katib.kubeflow.org"
        assert command in each.command


def test_pods_of_the_mesh_behind_the_service_of_a_webhook_are_called():
    called = service("katib", (443, "hook"), (80, 8080), selector={"app": "web"})
    call = Call("ValidatingWebhookConfiguration katib.kubeflow.org", "katib", 443)
    one = pod()
    one["spec"]["containers"][0]["ports"] = [{"name": "hook", "containerPort": 8443}]
    pods = [one, pod("other"), {**pod(proxy=False), "metadata": one["metadata"]}]
    assert webhooks.backends([call], [called], pods) == [backend(one, 8443)]
