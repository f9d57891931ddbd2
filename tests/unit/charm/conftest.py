"""What the charm's unit tests share."""

from collections.abc import Iterator

import pytest
from ops import testing

import charm as our_charm
from tests.unit.charm import charm_world, fake_cluster, ingress_world

OFTEN_CHANGED = (
    *("namespaces kf", "pods kf mesh-2-0", f"pods kf {charm_world.OWN_POD}"),
    *("configmaps kf mesh-2-convergence", "clusterroles kf-mesh-2"),
)
"""Objects of other owners that the charm labels, or has deleted with the model."""


@pytest.fixture
def fake() -> Iterator[fake_cluster.FakeCluster]:
    """Return a cluster with a model `kf` and one node, without Istio."""
    found = charm_world.model()
    yield found
    assert found.changed <= {*OFTEN_CHANGED, *found.may_change}, "of other owners"
    assert found.without_owner() <= found.may_change


@pytest.fixture
def ctx(fake, monkeypatch) -> testing.Context[our_charm.IstioIntegrator]:
    """Return what runs hooks of the charm against that cluster."""
    charm_world.connect(fake, monkeypatch)
    return charm_world.context()


@pytest.fixture
def installed(fake) -> None:
    """Install Istio in that cluster."""
    fake_cluster.install_istio(fake)


@pytest.fixture
def world(fake, monkeypatch) -> ingress_world.World:
    """Return a model that may have an ingress, with a gateway in that cluster."""
    ingress_world.connect(fake, monkeypatch)
    return ingress_world.World(fake)
