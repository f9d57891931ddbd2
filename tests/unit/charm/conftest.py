import pytest
import yaml
from scenario import _runtime
from scenario import state as scenario_state

from tests.unit.charm import fake_cluster


class _Libyaml:
    """What Scenario uses of `yaml`, by libyaml: half of each test's time went into reading."""

    @staticmethod
    def safe_load(text):
        return yaml.load(text, Loader=yaml.CSafeLoader)

    @staticmethod
    def safe_dump(data):
        return yaml.dump(data, Dumper=yaml.CSafeDumper)


if yaml.__with_libyaml__:
    for _module in (_runtime, scenario_state):
        vars(_module)["yaml"] = _Libyaml


@pytest.fixture
def fake() -> fake_cluster.FakeCluster:
    """Return a cluster with a model `kubeflow` and one node, without Istio."""
    fake = fake_cluster.FakeCluster()
    fake.namespace("kubeflow")
    fake.namespace("default")
    fake.node()
    return fake
