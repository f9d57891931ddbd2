"""Pods whose controller addresses `spec.containers[0]`: this container must stay the first.

Juju takes the first container of a unit's pod for the charm's and fails where it mounts a volume
that Juju does not know, as `istio-proxy` does (juju internal/provider/kubernetes/application,
`Units`). KubeRay watches the first container of a Ray pod (raycluster_controller.go,
`RayContainerIndex`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from integrator_contract import names


def addressed(
    labels: Mapping[str, str], init_containers: Collection[str], containers: Sequence[str]
) -> str | None:
    """Return the container that the pod's controller expects to be the first, if it does."""
    if names.CHARM_INIT in init_containers and names.CHARM in containers:
        return names.CHARM
    if names.RAY_NODE_TYPE in labels:
        return next((each for each in containers if each != names.PROXY), None)
    return None
