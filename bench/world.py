"""What benchmarks of the charm stand on: a real API server with Istio's kinds and a real istiod.

Imported first: it makes the charm, the testbed and the tests' worlds importable.
"""

from __future__ import annotations

import contextlib
import pathlib
import sys
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / each) for each in (".", "src", "lib", "workload")]

import lightkube  # noqa: E402
from lightkube.config.kubeconfig import KubeConfig  # noqa: E402

from istio_integrator.kube import cluster  # noqa: E402
from testbed import cluster as testbed_cluster  # noqa: E402
from tests.functional import (  # noqa: E402
    gateway_api_world,
    ingress_world,
    istiod_world,
    loopback_istiod,
)
from tests.kubernetes_objects import namespace_of  # noqa: E402

PORTS = (("http2", 80, 8080), ("https", 443, 8443))
"""Of the gateway's Service."""


@contextlib.contextmanager
def served(name: str) -> Iterator[tuple[pathlib.Path, lightkube.Client]]:
    """Serve a cluster that knows Istio's kinds, while the block runs.

    Args:
        name: Of the testbed.

    Yields:
        The administrator's kubeconfig, and a client of it.
    """
    testbed = testbed_cluster.Testbed(name)
    testbed.up(testbed_cluster.Options(control_plane_only=True))
    with contextlib.ExitStack() as stack:
        stack.callback(testbed.down)
        config = KubeConfig.from_file(testbed.kubeconfig).get()
        client = stack.enter_context(lightkube.Client(config=config))
        istiod_world.install_definitions(client)
        yield testbed.kubeconfig, client


@contextlib.contextmanager
def with_gateway(name: str) -> Iterator[tuple[pathlib.Path, lightkube.Client]]:
    """Serve a cluster whose Istio has a gateway, as `served` does."""
    with contextlib.ExitStack() as stack:
        kubeconfig, client = stack.enter_context(served(name))
        api = cluster.Cluster(client)
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
