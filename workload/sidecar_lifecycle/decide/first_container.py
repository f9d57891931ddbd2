"""Pods whose controller reads `spec.containers[0]`: this container must stay the first.

Juju assumes that the first container of a unit's pod is the charm's. It fails if that container
mounts a volume that Juju does not know, as `istio-proxy` does (juju
internal/provider/kubernetes/application, `Units`). KubeRay watches the first container of a Ray
pod (raycluster_controller.go, `RayContainerIndex`).
"""

from __future__ import annotations

from integrator_contract import names
from sidecar_lifecycle.model import types


def find_addressed(pod: types.Pod) -> str | None:
    """Return the container that the pod's controller expects to be the first, if any."""
    containers = [each.name for each in pod.spec.containers]
    is_unit = any(each.name == names.CHARM_INIT for each in pod.spec.initContainers)
    if is_unit and names.CHARM in containers:
        return names.CHARM
    if names.RAY_NODE_TYPE in pod.metadata.labels:
        return next((each for each in containers if each != names.PROXY), None)
    return None
