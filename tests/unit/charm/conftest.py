import pytest

from tests.unit.charm import fake_cluster


@pytest.fixture
def fake() -> fake_cluster.FakeCluster:
    """Return a cluster with a model `kubeflow` and one node, without Istio."""
    fake = fake_cluster.FakeCluster()
    fake.namespace("kubeflow")
    fake.namespace("default")
    fake.node()
    return fake
