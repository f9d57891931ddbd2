"""A model of its own for each test of `diagnose`, on the API server of the functional tier."""

import lightkube
import pytest

from istio_integrator.kube import cluster as charm_cluster
from tests.functional import istiod_world
from tests.functional.diagnosis.world import World, account


@pytest.fixture(scope="module")
def api(client: lightkube.Client) -> charm_cluster.Cluster:
    """An API server that serves Istio's kinds."""
    return istiod_world.install_definitions(client)


@pytest.fixture
def world(api, control_plane, kubeconfig, namespace):
    found = World(api, control_plane, kubeconfig, namespace)
    account(api, namespace)
    found.create("Namespace", found.root)
    live = api.get(charm_cluster.NAMESPACE, namespace)
    api.merge_patch(live, {"metadata": {"labels": {"istio-injection": "enabled"}}})
    yield found
    for each in api.list(charm_cluster.NAMESPACE):
        if each["metadata"]["name"].startswith(f"{namespace}-"):
            api.delete(each)
