"""The gateways that can serve a model: its own, the named one, and one that istiod deploys."""

from __future__ import annotations

from istio_integrator.kube import cluster
from istio_integrator.situation import situation


def find_istiod(scope: situation.Situation) -> cluster.Object | None:
    """Read istiod's Deployment; None where istiod does not run in the cluster."""
    mesh = scope.mesh
    if mesh is None or not mesh.namespace:
        return None
    return scope.cluster.get(cluster.DEPLOYMENT, mesh.service, mesh.namespace)
