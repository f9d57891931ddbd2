"""What benchmarks of the charm use: a real API server with Istio's kinds and a real istiod."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import lightkube
from lightkube.config.kubeconfig import KubeConfig

from istio_integrator.kube import cluster
from testbed import cluster as testbed_cluster
from tests.functional import gateway_api_world, ingress_world, istiod_world, loopback_istiod
from tests.kubernetes_objects import namespace_of

PORTS = (("http2", 80, 8080), ("https", 443, 8443))
"""Of the gateway's Service."""


@contextlib.contextmanager
def control_plane(name: str) -> Iterator[testbed_cluster.Testbed]:
    """Run a control plane without a node while the block runs."""
    testbed = testbed_cluster.Testbed(f"{name}-{os.getpid()}")
    testbed.up(testbed_cluster.Options(control_plane_only=True))
    try:
        yield testbed
    finally:
        testbed.down()


@contextlib.contextmanager
def served(name: str) -> Iterator[tuple[pathlib.Path, lightkube.Client]]:
    """Serve a cluster that knows Istio's kinds; yield the kubeconfig, and a client of it."""
    with control_plane(name) as testbed:
        config: Any = KubeConfig.from_file(testbed.kubeconfig).get()
        with lightkube.Client(config=config) as client:
            istiod_world.install_definitions(client)
            yield testbed.kubeconfig, client


@contextlib.contextmanager
def with_gateway(name: str) -> Iterator[tuple[pathlib.Path, lightkube.Client]]:
    """Serve a cluster whose Istio has a gateway, as `served` does."""
    with contextlib.ExitStack() as stack:
        kubeconfig, client = stack.enter_context(served(name))
        api: Any = cluster.Cluster(client)
        gateway_api_world.install_definitions(client)
        api.create(namespace_of(istiod_world.GATEWAY_NAMESPACE))
        for obj in ingress_world.gateway_workload(PORTS):
            api.create(obj)
        gateway_class = {
            "apiVersion": cluster.GATEWAY_CLASS.api_version,
            "kind": cluster.GATEWAY_CLASS.name,
            "metadata": {"name": "istio"},
            "spec": {"controllerName": "istio.io/gateway-controller"},
        }
        api.apply(gateway_class)
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        stack.enter_context(loopback_istiod.installed(api, kubeconfig, folder))
        yield kubeconfig, client
