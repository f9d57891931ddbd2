"""Namespaces beside the model's that istiod's discoverySelectors leave out."""

import pytest
from ops import testing

from integrator_contract import names
from tests.unit.charm import fake_cluster
from tests.unit.charm.ingress_world import OWN, auth, route

SELECTORS = (
    "rootNamespace: istio-system\ndiscoverySelectors:\n- matchLabels: {istio-discovery: enabled}\n"
    "  matchExpressions: [{key: unseen, operator: DoesNotExist}]\n"
)


@pytest.fixture
def selective(world):
    """A model that istiod serves, and no other namespace."""
    fake_cluster.install_istio(world.fake, mesh_config=SELECTORS)
    select(world, "kf")
    world.related = [route(), auth()]
    return world


def select(world, name):
    namespace = world.fake.find("Namespace", name)
    namespace["metadata"]["labels"]["istio-discovery"] = "enabled"
    world.fake.add(namespace)


def status(world):
    """The unit's status, whose command stands within the first 100 characters."""
    found = world.status()
    if isinstance(found, testing.BlockedStatus):
        command = found.message.partition("run: ")[2].partition(";")[0]
        assert found.message.index(command) + len(command) <= 100
    return found


def test_named_gateway_that_istiod_ignores_serves_nothing(selective):
    found = status(selective)
    assert isinstance(found, testing.BlockedStatus)
    assert "run: kubectl label namespace istio-ingress istio-discovery=enabled" in found.message
    assert "discoverySelectors" in found.message
    assert selective.gateway() is None
    assert selective.routes() == []
    select(selective, "istio-ingress")
    assert isinstance(status(selective), testing.ActiveStatus)
    assert len(selective.routes()) == 1
    del selective.fake.find("Namespace", "istio-ingress")["metadata"]["labels"]["istio-discovery"]
    assert isinstance(status(selective), testing.BlockedStatus)
    assert selective.routes() == []


def test_authorization_service_that_istiod_ignores_is_named(selective, caplog):
    selective.config = {**OWN}
    selective.fake.namespace("login")
    selective.fake.namespace("bob", **{names.PART_OF: names.PROFILE})
    selective.fake.put("Service", "oidc", "login")
    selective.related = [route(), auth(namespace="login")]
    selective.run()
    selective.get_ready("mesh-2-gateway")
    found = status(selective)
    assert isinstance(found, testing.BlockedStatus)
    assert "run: kubectl label namespace login istio-discovery=enabled" in found.message
    assert "istiod ignores login/oidc" in found.message
    assert "istiod ignores 1 served namespaces (bob)" in caplog.text
    select(selective, "login")
    assert isinstance(status(selective), testing.ActiveStatus)


def test_profiles_that_istiod_ignores_are_a_note(selective):
    select(selective, "istio-ingress")
    for name in ("kf-user", "bob", "carol"):
        labels = {names.PART_OF: names.PROFILE, **({"unseen": "x"} if name == "kf-user" else {})}
        selective.fake.namespace(name, **labels)
    select(selective, "carol")
    found = status(selective)
    assert isinstance(found, testing.ActiveStatus)
    assert "istiod ignores 2 served namespaces (bob, kf-user)" in found.message
    assert "istio-discovery=enabled" in found.message
    assert "unseen-" not in found.message
    del selective.fake.find("Namespace", "kf-user")["metadata"]["labels"]["unseen"]
    for name in ("kf-user", "bob"):
        select(selective, name)
    assert "ignores" not in status(selective).message
