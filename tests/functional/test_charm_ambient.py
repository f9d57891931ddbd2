"""The charm takes a model into ambient mode and back, on the objects of Istio's ambient profile.

They are rendered by the real istioctl, and the injector is the real istiod's. There is no node, so
no ztunnel takes any pod in: what is tried is all that the API server sees.
"""

from __future__ import annotations

import pytest
from ops import testing

from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import manifests
from tests import waiting
from tests.functional import charm_runs, loopback_istiod
from tests.functional.test_charm_removal import COLLECTED, everything

AMBIENT = {"istio.io/dataplane-mode": "ambient"}
ENABLED = {"istio-injection": "enabled"}


@pytest.fixture(scope="module")
def api(client):
    """The API server."""
    return charm_cluster.Cluster(client)


@pytest.fixture(scope="module")
def profile(api, kubeconfig, tmp_path_factory):
    """An Istio of the ambient profile."""
    folder = tmp_path_factory.mktemp("ambient")
    with loopback_istiod.installed(api, kubeconfig, folder, "profile=ambient") as found:
        yield found


@pytest.fixture
def model(api, namespace, profile, monkeypatch):
    """A model's namespace, with what istiod and Kubernetes put into every one."""
    monkeypatch.setattr(charm_cluster, "connect", lambda: api)
    for name in ("istio-ca-root-cert", "kube-root-ca.crt"):
        wanted = (charm_cluster.CONFIG_MAP, name, namespace)
        assert waiting.eventually(lambda wanted=wanted: api.get(*wanted), 30), name
    account = (charm_cluster.kind("v1", "ServiceAccount"), "default", namespace)
    assert waiting.eventually(lambda: api.get(*account), 30)
    return namespace


def switch(model, mode):
    """Set the option, as an operator does."""
    return charm_runs.run("config_changed", model, **{"mesh-mode": mode}).unit_status


def kinds(api, model):
    """The kinds of what the charm has made."""
    own = manifests.Manifests(api, model=model, application="istio-integrator")
    return {each["kind"] for each in own.owned()}


def of_model(api, model):
    """What there is in the model's namespace or about it."""
    return {each for each in everything(api) if model in each}


def assert_restored(api, model, before):
    """Wait until the model is as it was."""
    is_restored = waiting.eventually(lambda: of_model(api, model) == before, COLLECTED)
    assert is_restored, of_model(api, model) ^ before


def test_model_goes_there_and_back_and_everything_is_as_it_was(api, model):
    before = of_model(api, model)
    charm_runs.run("start", model)
    assert charm_runs.mesh_labels(api, model) == (ENABLED, True)
    assert "MutatingWebhookConfiguration" in kinds(api, model)
    said = switch(model, "ambient")
    assert isinstance(said, testing.ActiveStatus), said
    assert "admission: not needed · ambient mode" in said.message
    assert charm_runs.mesh_labels(api, model) == (AMBIENT, True)
    assert kinds(api, model) == set()
    # Without the option it stays there.
    assert isinstance(charm_runs.run("update_status", model).unit_status, testing.ActiveStatus)
    assert charm_runs.mesh_labels(api, model) == (AMBIENT, True)
    assert isinstance(switch(model, "sidecar"), testing.ActiveStatus)
    assert charm_runs.mesh_labels(api, model) == (ENABLED, True)
    assert "MutatingWebhookConfiguration" in kinds(api, model)
    charm_runs.run("remove", model, units=0)
    assert_restored(api, model, before)
