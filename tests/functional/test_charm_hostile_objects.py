"""What a tenant may store in a real API server, and what the charm reads of it."""

import json

import lightkube
import pytest
from lightkube.config import client_adapter

from integrator_contract import names
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors, fences, manifests
from tests.functional import istiod_world

FILTER = charm_cluster.kind("networking.istio.io/v1alpha3", "EnvoyFilter")


@pytest.fixture(scope="module")
def api(client: lightkube.Client) -> charm_cluster.Cluster:
    """An API server that serves Istio's kinds."""
    return istiod_world.install_definitions(client)


def store(api, namespace, name, value, **metadata):
    """Create an EnvoyFilter whose text no encoder of ours could write."""
    obj = {
        "apiVersion": FILTER.api_version,
        "kind": FILTER.name,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"configPatches": [{"applyTo": "CLUSTER", "patch": {"value": {"x": "@value@"}}}]},
    }
    text = json.dumps(obj).replace('"@value@"', value)
    address = f"/apis/{FILTER.api_version}/namespaces/{namespace}/{FILTER.plural}"
    limits = client_adapter.ConnectionParams()
    with client_adapter.Client(api.client.config, limits) as client:
        answer = client.post(address, content=text, headers={"Content-Type": "application/json"})
        answer.raise_for_status()


@pytest.mark.parametrize("depth", [1000, 5000])
def test_filter_of_nested_lists_costs_itself_alone(api, namespace, depth):
    fences.forget()
    store(api, namespace, "deep", "[" * depth + "]" * depth, labels={"name": "a"})
    store(api, namespace, "honest", '"[{\\"x\\\\"')
    (found,) = api.list(FILTER, namespace)
    assert found["metadata"]["name"] == "honest"
    value = found["spec"]["configPatches"][0]["patch"]["value"]["x"]
    assert value == '[{"x\\'
    reference = f"EnvoyFilter {namespace}/deep"
    assert "nests more than" in fences.noted()[reference]
    assert "honest" in [each["metadata"]["name"] for each in api.list(FILTER)]
    with pytest.raises(errors.GarbledError, match=reference):
        api.get(FILTER, "deep", namespace)


def test_labels_of_ours_on_an_object_of_a_tenant_make_it_nobodys(api, namespace):
    place = f"{namespace}-tenant"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    own = manifests.Manifests(api, model=namespace, application="app")
    labels = {names.OWNER: own.owner, names.COMPONENT: "authentication"}
    store(api, place, "theirs", '"x"', labels=labels)
    own.remove("authentication")
    own.prune_retired()
    assert api.get(FILTER, "theirs", place) is not None
    assert own.owned() == []
