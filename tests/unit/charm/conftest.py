import pytest
import yaml

from tests.unit.charm import fake_cluster

# Scenario reads and writes all of a charm's YAML at each run, half of a test's time otherwise.
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
yaml.SafeDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@pytest.fixture
def fake() -> fake_cluster.FakeCluster:
    """Return a cluster with a model `kubeflow` and one node, without Istio."""
    fake = fake_cluster.FakeCluster()
    fake.namespace("kubeflow")
    fake.namespace("default")
    fake.node()
    return fake
