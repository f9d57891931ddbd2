"""An istiod outside of the cluster, as Istio's remote profile has a cluster call it.

The real istiod runs on loopback with a kubeconfig; the cluster has a webhook configuration with
its URL, rendered by the real istioctl, and no Deployment, Service or ConfigMap of it.
"""

from __future__ import annotations

import base64
import contextlib
import ssl

import pytest
from ops import testing

from istio_integrator.kube import cluster as charm_cluster
from testbed import certificates, loopback
from tests import waiting
from tests.functional import charm_runs, loopback_istiod
from tests.functional.discovery_world import discover, said

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

    def renew(self):
        """Give the istiod that runs a new certificate of its authority."""
        authority = certificates.Authority(self._folder / str(self._count) / "pki")
        authority.server("istiod", ["localhost"], ["127.0.0.1"])

    def certificate(self):
        """What its injector shows."""
        return ssl.get_server_certificate(("127.0.0.1", self._ports[1]), timeout=5)

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


@pytest.mark.long
def test_istiod_elsewhere_is_followed_through_its_end_and_another_authority(
    api, namespace, remote
):
    with contextlib.ExitStack() as stack:
        with remote.serving() as bundle:
            stack.enter_context(remote.called(bundle))
            assert said(discover(api, namespace)) == [f"active: {remote.url} 1.31"]
        gone = discover(api, namespace)
        assert not gone.mesh.alive
        assert "connection refused" in gone.mesh.problem
        with remote.serving() as renewed:
            assert renewed != bundle
            # The API server still has the authority of before.
            stale = discover(api, namespace)
            assert not stale.mesh.alive
            assert "certificate signed by unknown authority" in stale.mesh.problem
            api.apply(remote.configuration(renewed))
            assert waiting.eventually(lambda: discover(api, namespace).mesh.alive, 20)


@pytest.mark.long
def test_new_certificate_of_the_same_authority_interrupts_nothing(
    api, namespace, remote, tmp_path
):
    def is_alive():
        return discover(api, namespace).mesh.alive

    strange = certificates.Authority(tmp_path / "strange").pair.certificate.read_bytes()
    with remote.serving() as bundle, remote.called(bundle):
        shown, answers = remote.certificate(), []
        remote.renew()

        def is_renewed():
            answers.append(is_alive())
            return remote.certificate() != shown

        assert waiting.eventually(is_renewed, 30)
        assert all(answers)
        # The API server keeps its connections, one for each text of an authority.
        api.apply(remote.configuration(base64.b64encode(strange).decode()))
        assert waiting.eventually(lambda: not is_alive(), 20)
        again = base64.b64decode(bundle) + b"\n"
        api.apply(remote.configuration(base64.b64encode(again).decode()))
        assert waiting.eventually(is_alive, 20)


@pytest.mark.long
def test_model_joins_stays_and_leaves_while_istiod_is_elsewhere(
    api, namespace, remote, monkeypatch
):
    monkeypatch.setattr(charm_cluster, "connect", lambda: api)

    def labels():
        metadata = api.get(charm_cluster.NAMESPACE, namespace)["metadata"]
        return metadata["labels"].get("istio-injection")

    with contextlib.ExitStack() as stack:
        with remote.serving() as bundle:
            stack.enter_context(remote.called(bundle))
            out = charm_runs.run("start", namespace)
            assert isinstance(out.unit_status, testing.ActiveStatus)
            assert remote.url in out.unit_status.message
            assert labels() == "enabled"
        out = charm_runs.run("update_status", namespace)
        assert isinstance(out.unit_status, testing.WaitingStatus)
        assert f"{remote.url} does not inject, new pods are refused" in out.unit_status.message
        assert labels() == "enabled"
        charm_runs.run("remove", namespace, units=0)
        assert labels() is None
