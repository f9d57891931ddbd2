"""What a hook asks the API server that finds everything as it should be."""

import collections

import pytest

from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state

OFTEN = {
    "create pods kubeflow": "each a dry run that shows something else",
    "get gateways kubeflow kubeflow-gateway": "of Istio and of the Gateway API",
    "list gateways kubeflow": "of Istio and of the Gateway API",
    "get secrets kubeflow istio-integrator-gateway-key": "what is absent is looked for anew",
}
MOST = 42


@pytest.fixture
def asked(ctx, fake):
    fake.application()
    fake_cluster.install_istio(fake)
    out = ctx.run(ctx.on.config_changed(), state())
    out = ctx.run(ctx.on.config_changed(), out)
    fake.requests.clear()
    fake.writes.clear()
    ctx.run(ctx.on.update_status(), out)
    assert not fake.writes
    return collections.Counter(fake.requests)


def test_hook_asks_for_nothing_twice(asked):
    assert not {each for each, count in asked.items() if count > 1} - OFTEN.keys()


def test_hook_asks_little(asked):
    assert asked.total() <= MOST


def test_policies_are_not_listed_where_no_webhook_is_in_the_mesh(asked):
    assert asked["list peerauthentications"] == 0


def test_policy_of_another_version_is_not_looked_for(asked):
    assert asked["list mutatingadmissionpolicies"] == 1
