"""What a pod shows of its proxy."""

from __future__ import annotations

from integrator_contract import names
from istio_integrator.kube import cluster


def is_in_mesh(pod: cluster.Object) -> bool:
    """Tell whether the pod's connections go through a proxy, its own or its node's."""
    spec = cluster.at(pod, "spec")
    containers = (*cluster.parts(spec, "containers"), *cluster.parts(spec, "initContainers"))
    ambient = (
        cluster.at(pod, "metadata", "annotations").get(names.AMBIENT_REDIRECTION) == "enabled"
    )
    # A proxy with the image `auto` waits for the injector, which has not filled it in.
    return ambient or any(
        container.get("name") == names.PROXY and container.get("image") != names.AUTO_IMAGE
        for container in containers
    )


def is_router(pod: cluster.Object) -> bool:
    """Tell whether a pod, or the template of one, routes for others."""
    return any(
        container.get("name") == names.PROXY and "router" in cluster.items(container, "args")
        for container in cluster.parts(cluster.at(pod, "spec"), "containers")
    )
