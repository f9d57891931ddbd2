"""An istiod that ends and is installed anew, as the charm sees it."""

from __future__ import annotations

import pytest

from istio_integrator.kube import cluster as charm_cluster
from tests.functional import loopback_istiod
from tests.functional.discovery_world import discover, said


@pytest.fixture(scope="module")
def api(client):
    """The API server."""
    return charm_cluster.Cluster(client)


@pytest.mark.long
def test_istiod_is_followed_through_its_end_and_a_new_installation(
    api, namespace, kubeconfig, tmp_path
):
    with loopback_istiod.installed(api, kubeconfig, tmp_path / "first") as first:
        assert discover(api, namespace).mesh.alive
        first.istiod.process.kill()
        first.istiod.process.wait()
        gone = discover(api, namespace)
        assert not gone.mesh.alive
        assert "connection refused" in gone.mesh.problem
    assert said(discover(api, namespace)) == [
        "waiting: waiting for istiod: the cluster has no sidecar injector"
    ]
    with loopback_istiod.installed(api, kubeconfig, tmp_path / "second"):
        assert discover(api, namespace).mesh.alive
