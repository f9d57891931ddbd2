"""Two models that share a profile namespace, on a real API server."""

import pytest

from integrator_contract import names
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import manifests
from tests.functional import charm_runs


@pytest.fixture
def other(client, namespace):
    """A second model."""
    api = charm_cluster.Cluster(client)
    name = f"{namespace}-other"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@pytest.fixture
def profile(client, namespace):
    """A namespace of a Kubeflow user."""
    api = charm_cluster.Cluster(client)
    metadata = {
        "name": f"{namespace}-alice",
        "labels": {"app.kubernetes.io/part-of": "kubeflow-profile"},
    }
    profile = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    api.create(profile)
    yield metadata["name"]
    api.delete(profile)


def test_first_of_two_models_serves_a_profile_until_it_goes(
    client, namespace, other, profile, monkeypatch
):
    api = charm_cluster.Cluster(client)
    monkeypatch.setattr(charm_cluster, "connect", lambda: api)
    for model in (namespace, other):
        charm_runs.deploy(api, model)

    def holder():
        found = api.get(charm_cluster.NAMESPACE, profile)
        return found["metadata"]["labels"].get(names.SERVED_BY)

    first = names.owner(namespace, "istio-integrator")
    charm_runs.run("start", namespace)
    assert holder() == first
    said = charm_runs.run("start", other)
    assert holder() == first
    assert said.unit_status.name == "waiting"
    own = manifests.Manifests(api, model=other, application="istio-integrator")
    charm_runs.run("remove", namespace, units=0)
    assert holder() is None
    charm_runs.run("update_status", other)
    assert holder() == names.owner(other, "istio-integrator")
    charm_runs.run("remove", other, units=0)
    assert holder() is None
    assert own.owned() == []
