"""An istiod outside of the cluster, as Istio's remote profile has a cluster call it.

The real istiod runs on loopback with a kubeconfig; the cluster has a webhook configuration with
its URL, rendered by the real istioctl, and no Deployment, Service or ConfigMap of it.
"""

from __future__ import annotations

import contextlib

import pytest

from istio_integrator.kube import cluster as charm_cluster
from testbed import loopback
from tests.functional import loopback_istiod
from tests.functional.discovery_world import discover

HOME = "external-istiod"
"""Where the remote profile is installed."""


class Remote:
    """An istiod that can be killed and replaced, and the cluster's configuration for it."""

    def __init__(self, api, kubeconfig, folder):
        self.api, self._kubeconfig, self._folder = api, kubeconfig, folder
        self._ports = loopback.free_ports(6)
        self._count = 0

    @contextlib.contextmanager
    def serving(self, *settings):
        """Run an istiod at the same address, with an authority of its own."""
        self._count += 1
        manifests = loopback_istiod.render(*settings)
        with loopback_istiod.running(
            self.api,
            self._kubeconfig,
            self._folder / str(self._count),
            manifests,
            ports=self._ports,
        ) as (_, url, bundle):
            self.url = f"{url}/inject"
            yield bundle

    def configuration(self, bundle, *settings):
        """Render what the cluster is told of it."""
        remote = loopback_istiod.render(
            "profile=remote",
            f"values.global.istioNamespace={HOME}",
            f"values.istiodRemote.injectionURL={self.url}",
            f"values.istiodRemote.injectionCABundle={bundle}",
            *settings,
        )
        kind = "MutatingWebhookConfiguration"
        return next(one for (found, _), one in remote.items() if found == kind)

    @contextlib.contextmanager
    def called(self, bundle):
        """Have the cluster call it while the block runs."""
        applied = self.api.apply(self.configuration(bundle))
        try:
            yield
        finally:
            self.api.delete(applied)


@pytest.fixture(scope="module")
def api(client):
    """The API server."""
    return charm_cluster.Cluster(client)


@pytest.fixture
def remote(api, kubeconfig, tmp_path):
    """An istiod outside of the cluster."""
    return Remote(api, kubeconfig, tmp_path)


def test_settings_of_an_istiod_elsewhere_are_shown_by_its_injector(api, namespace, remote):
    settings = (
        "meshConfig.defaultConfig.holdApplicationUntilProxyStarts=true",
        "meshConfig.defaultConfig.statusPort=15099",
        "meshConfig.defaultConfig.discoveryAddress=198.51.100.7:15012",
        r"values.global.proxy.excludeOutboundPorts=3306\,5432",
    )
    with remote.serving(*settings) as bundle, remote.called(bundle):
        found = discover(api, namespace).mesh
    assert (found.alive, found.probed, found.has_settings) == (True, True, False)
    assert (found.namespace, found.installed_in, found.root_namespace) == ("", HOME, HOME)
    assert (found.version, found.proxy_revision) == ("1.31.1", "default")
    assert found.hold_by_default
    assert found.status_port == 15099
    assert found.excluded_outbound_ports == (3306, 5432)
    assert found.pilot == ("198.51.100.7", 15012)
