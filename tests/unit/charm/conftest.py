"""What the charm's unit tests share."""

import pytest
from ops import testing

import charm as our_charm
from tests import parsed_once
from tests.unit.charm import charm_world, fake_cluster, ingress_world

parsed_once.install()


@pytest.fixture
def fake() -> fake_cluster.FakeCluster:
    """Return a cluster with a model `kubeflow` and one node, without Istio."""
    return charm_world.model()


@pytest.fixture
def ctx(fake, monkeypatch) -> testing.Context[our_charm.IstioIntegrator]:
    """Return what runs hooks of the charm against that cluster."""
    charm_world.connect(fake, monkeypatch)
    return testing.Context(our_charm.IstioIntegrator)


@pytest.fixture
def installed(fake) -> None:
    """Install Istio in that cluster."""
    fake_cluster.install_istio(fake)


@pytest.fixture
def world(fake, monkeypatch) -> ingress_world.World:
    """Return a model that may have an ingress, with a gateway in that cluster."""
    ingress_world.connect(fake, monkeypatch)
    return ingress_world.World(fake)
