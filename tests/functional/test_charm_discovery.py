"""What the charm makes of an Istio as its own installer and istioctl write it.

The webhook configurations, ConfigMaps and tags are rendered by the real istioctl; the injector
that answers is the real istiod, on loopback.
"""

from __future__ import annotations

import pytest
from ops import testing

from integrator_contract import names
from istio_integrator.kube import cluster as charm_cluster
from tests import waiting
from tests.functional import charm_runs, loopback_istiod
from tests.functional.discovery_world import ALLOWED, discover


@pytest.fixture(scope="module")
def api(client):
    """The API server."""
    return charm_cluster.Cluster(client)


@pytest.fixture
def connected(api, monkeypatch):
    """The API server, which the charm finds too."""
    monkeypatch.setattr(charm_cluster, "connect", lambda: api)
    return api


@pytest.fixture(scope="module")
def default(api, kubeconfig, tmp_path_factory):
    """An Istio of the default revision."""
    folder = tmp_path_factory.mktemp("default")
    with loopback_istiod.installed(api, kubeconfig, folder) as found:
        yield found


def test_default_istio_is_found_and_proved_without_configuration(api, namespace, default):
    found = discover(api, namespace).mesh
    assert found.alive
    assert found.probed
    assert found.hold_honoured
    assert (found.version, found.proxy_revision) == ("1.31.1", "default")
    assert not found.cni
    assert not found.cuts_off_controller


PROXY_DEFAULTS = "meshConfig.defaultConfig"
INJECTED = "values.sidecarInjectorWebhook.injectedAnnotations"
INBOUND_ONLY = r"traffic\.sidecar\.istio\.io/excludeOutboundIPRanges=0.0.0.0/0"
CNI = "components.cni.enabled=true"
NO_HOLD = r"proxy\.istio\.io/config=concurrency: 1"

SETTINGS = {
    "hold": (
        [f"{PROXY_DEFAULTS}.holdApplicationUntilProxyStarts=true"],
        {"hold_by_default": True},
    ),
    "status-port": ([f"{PROXY_DEFAULTS}.statusPort=15099"], {"status_port": 15099}),
    "root": (["meshConfig.rootNamespace=istio-config"], {"root_namespace": "istio-config"}),
    "registry-only": (
        ["meshConfig.outboundTrafficPolicy.mode=REGISTRY_ONLY"],
        {"registry_only": True, "cuts_off_controller": True},
    ),
    "excluded-ports": (
        [r"values.global.proxy.excludeOutboundPorts=3306\,5432"],
        {"excluded_outbound_ports": (3306, 5432)},
    ),
    "dns": (
        [f"{PROXY_DEFAULTS}.proxyMetadata.ISTIO_META_DNS_CAPTURE=true"],
        {"captures_names": True, "cuts_off_names": False},
    ),
    "cni": ([CNI], {"cni": True, "cuts_off_controller": False}),
    "inbound-only": ([f"{INJECTED}.{INBOUND_ONLY}"], {"captures_outbound": False}),
    "inbound-only-cni": (
        [CNI, "values.global.proxy.excludeIPRanges=0.0.0.0/0"],
        {"cni": True, "captures_outbound": False},
    ),
    "overwritten": ([f"{INJECTED}.{NO_HOLD}"], {"overwritten": ("proxy.istio.io/config",)}),
}


@pytest.mark.long
@pytest.mark.parametrize("case", SETTINGS)
def test_what_the_installation_is_like_is_seen(api, namespace, default, case):
    settings, want = SETTINGS[case]

    def shown():
        found = discover(api, namespace).mesh
        return {field: getattr(found, field) for field in want}

    before = shown()
    assert before != want
    default.configure(*settings)
    try:
        assert waiting.eventually(lambda: shown() == want, 20), shown()
    finally:
        default.configure()
        assert waiting.eventually(lambda: shown() == before, 20), shown()


def mesh_labels(api, namespace):
    """The labels of a namespace that Istio goes by, and what we remember of them."""
    metadata = api.get(charm_cluster.NAMESPACE, namespace)["metadata"]
    keys = (names.INJECTION, names.REVISION)
    labels = {key: metadata["labels"][key] for key in keys if key in metadata["labels"]}
    return labels, names.MEMBERSHIP in metadata.get("annotations", {})


def test_istiod_is_seen_to_inject_where_every_pod_is_excluded(connected, namespace, default):
    for event in ("start", "update_status"):
        said = charm_runs.run(event, namespace, **{"excluded-pods": "!team"}).unit_status
        assert isinstance(said, testing.ActiveStatus), said
    assert mesh_labels(connected, namespace) == (ALLOWED, True)
    charm_runs.run("remove", namespace, units=0)
