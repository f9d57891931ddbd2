"""What the charm makes of an Istio as its own installer and istioctl write it.

The webhook configurations, ConfigMaps and tags are rendered by the real istioctl; the injector
that answers is the real istiod, on loopback.
"""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest
from ops import testing

import cluster as charm_cluster
import config
import injectors
import membership
import mesh
from testbed import istio, programs
from tests import waiting
from tests.functional import charm_runs, loopback_istiod

CONTROLLER = "controller.juju.is/id"
ALLOWED = {"istio-injection": "enabled"}


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


def injectors_of(api, *revisions):
    """Have the injectors of revisions, without any istiod behind them."""
    return injectors_as(api, *(f"revision={revision}" for revision in revisions))


@contextlib.contextmanager
def injectors_as(api, *settings):
    """Have the injector of an installation with each of the settings."""
    applied = []
    loopback_istiod.create_namespace(api)
    try:
        for setting in settings:
            for (kind, _), item in loopback_istiod.render(setting).items():
                if kind == "MutatingWebhookConfiguration":
                    applied.append(api.apply(item))
        yield
    finally:
        for item in applied:
            api.delete(item)


def istioctl(kubeconfig, command):
    """Run the real istioctl."""
    run = subprocess.run(
        [programs.binary("istioctl"), *command.split()],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr + run.stdout


@pytest.fixture
def tags(kubeconfig):
    """Set a tag by istioctl, as the operator does; at the end all are removed."""
    share = programs.directory("istio") / "share" / "manifests"
    there = set()

    def set_tag(command):
        name = command.removeprefix("tag set ").partition(" ")[0]
        there.add(name)
        istioctl(kubeconfig, f"{command} --overwrite --skip-confirmation --manifests={share}")

    yield set_tag
    for name in there:
        istioctl(kubeconfig, f"tag remove {name} --skip-confirmation")


def discover(api, model, *, hint="", **options):
    """Look as the charm does; the hint is that of a charmed Istio."""
    wish = config.Config(**options)
    discovery = mesh.Discovery(api, wish, model=model, application="istio-integrator", hint=hint)
    discovery.reconcile()
    return discovery


def said(discovery):
    """All that the discovery says."""
    return [f"{status.name}: {status.message}" for status in discovery.statuses()]


# First what needs no Istio of the default revision: from its first use it stays.
def test_only_revision_is_joined_by_its_name(api, namespace):
    with injectors_of(api, "canary"):
        found = discover(api, namespace).mesh
    assert not found.is_default
    assert found.namespace_labels == {"istio.io/rev": "canary"}
    assert (found.service, found.webhook_configuration) == (
        "istiod-canary",
        "istio-sidecar-injector-canary",
    )


@pytest.mark.long
def test_several_revisions_are_named_with_the_line_to_type(api, namespace):
    with injectors_of(api, "blue", "green"):
        several = said(discover(api, namespace))
        assert "juju config istio-integrator revision=" in several[0]
        assert all(f"{name} (istio-system)" in several[0] for name in ("blue", "green"))
        assert discover(api, namespace, revision="green").mesh.revision == "green"
        assert said(discover(api, namespace, revision="red")) == [
            "blocked: revision red does not exist; there is blue, green"
        ]


@pytest.mark.long
def test_istios_of_several_namespaces_are_told_apart(api, namespace):
    places = ("istio-one", "istio-two")
    with injectors_as(api, *(f"values.global.istioNamespace={place}" for place in places)):
        (several,) = said(discover(api, namespace))
        assert several.startswith("blocked: several Istios")
        assert several.endswith("juju config istio-integrator istiod-namespace=istio-one")
        for place in places:
            for wish in ({"istiod_namespace": place}, {"hint": place}):
                found = discover(api, namespace, **wish).mesh
                assert (found.namespace, found.is_default) == (place, True)
                assert found.webhook_configuration == f"istio-sidecar-injector-{place}"
        both = discover(api, namespace, hint="istio-one", istiod_namespace="istio-two")
        assert both.mesh.namespace == "istio-two"


@pytest.mark.long
def test_tag_that_istioctl_sets_counts_and_is_followed(api, namespace, tags):
    with injectors_of(api, "blue", "green"):
        tags("tag set prod --revision blue")
        assert "prod (istio-system)" in said(discover(api, namespace))[0]
        found = discover(api, namespace, revision="prod").mesh
        assert found.namespace_labels == {"istio.io/rev": "prod"}
        assert found.service == "istiod-blue"
        tags("tag set prod --revision green")
        moved = discover(api, namespace, revision="prod").mesh
        assert moved.namespace_labels == found.namespace_labels
        assert moved.service == "istiod-green"


@pytest.mark.long
def test_profiles_without_a_default_revision_get_one_by_the_command_of_the_status(
    api, namespace, tags
):
    labels = {**ALLOWED, "app.kubernetes.io/part-of": "kubeflow-profile"}
    metadata = {"name": f"{namespace}-alice", "labels": labels}
    profile = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    api.create(profile)
    try:
        with injectors_of(api, "canary"):
            (blocked,) = [one for one in said(discover(api, namespace)) if "profile" in one]
            assert blocked.startswith("blocked: 1 profile namespaces")
            command = blocked.partition("run: istioctl ")[2]
            assert command == "tag set default --revision canary"
            tags(command)
            discovery = discover(api, namespace)
            assert discovery.mesh.namespace_labels == ALLOWED
            assert not any("profile" in one for one in said(discovery))
    finally:
        api.delete(profile)


def test_default_istio_is_found_and_proved_without_configuration(api, namespace, default):
    discovery = discover(api, namespace)
    found = discovery.mesh
    assert found.name == "istio-system/istiod 1.31"
    assert found.is_default
    assert found.alive
    assert found.probed
    assert found.hold_honoured
    assert (found.version, found.proxy_revision) == ("1.31.1", "default")
    assert found.root_namespace == istio.SYSTEM
    assert not found.cni
    assert not found.cuts_off_controller
    assert said(discovery) == ["active: istio-system/istiod 1.31"]


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
    "scoped-gateways": (
        ["values.pilot.env.PILOT_SCOPE_GATEWAY_TO_NAMESPACE=true"],
        {"gateways_scoped": True},
    ),
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


@pytest.mark.long
def test_injector_elsewhere_is_asked_at_its_url(api, namespace, default):
    place = f"values.istiodRemote.injectionURL={default.url}/inject"
    remote = loopback_istiod.render(
        "profile=remote",
        place,
        f"values.istiodRemote.injectionCABundle={default.bundle}",
        "revision=away",
    )
    (item,) = [one for (kind, _), one in remote.items() if kind == "MutatingWebhookConfiguration"]
    applied = api.apply(item)
    try:
        found = discover(api, namespace, revision="away").mesh
        assert found.url == f"{default.url}/inject"
        assert found.namespace == ""
        assert found.alive
        assert found.name == f"{found.url} away 1.31"
    finally:
        api.delete(applied)


def labelled(api, namespace, **labels):
    """Label a namespace as somebody else does."""
    patch = {"metadata": {"labels": labels}}
    api.merge_patch(api.get(charm_cluster.NAMESPACE, namespace), patch)


def mesh_labels(api, namespace):
    """The labels of a namespace that Istio goes by, and what we remember of them."""
    metadata = api.get(charm_cluster.NAMESPACE, namespace)["metadata"]
    keys = (injectors.INJECTION_LABEL, injectors.REVISION_LABEL, injectors.DATAPLANE_LABEL)
    labels = {key: metadata["labels"][key] for key in keys if key in metadata["labels"]}
    return labels, membership.RECORD in metadata.get("annotations", {})


def test_model_joins_and_leaves_as_it_was(connected, namespace, default):
    charm_runs.run("start", namespace)
    assert mesh_labels(connected, namespace) == (ALLOWED, True)
    labelled(connected, namespace, **{injectors.INJECTION_LABEL: None})
    charm_runs.run("update_status", namespace)
    assert mesh_labels(connected, namespace) == (ALLOWED, True)
    charm_runs.run("remove", namespace, units=0)
    assert mesh_labels(connected, namespace) == ({}, False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        pytest.param({"istio.io/dataplane-mode": "ambient"}, "is in ambient mode", id="ambient"),
        pytest.param({"istio-injection": "disabled"}, "has istio-injection=disabled", id="out"),
        pytest.param({"istio.io/rev": "other"}, "somebody else set istio.io/rev=other", id="else"),
        pytest.param({**ALLOWED, "istio.io/rev": "other"}, "has both", id="both"),
        pytest.param({CONTROLLER: "x"}, "a controller model never joins", id="controller"),
    ],
)
def test_model_with_a_place_of_its_own_is_left_there(connected, namespace, default, labels, words):
    labelled(connected, namespace, **labels)
    before, _ = mesh_labels(connected, namespace)
    out = charm_runs.run("start", namespace)
    assert isinstance(out.unit_status, testing.BlockedStatus)
    assert words in out.unit_status.message
    # The record says who serves the model; a controller's is served by nobody.
    assert mesh_labels(connected, namespace) == (before, CONTROLLER not in labels)
    charm_runs.run("remove", namespace, units=0)
    assert mesh_labels(connected, namespace) == (before, False)


# The last one: it takes the place of the module's own installation.
@pytest.mark.long
def test_istiod_is_followed_through_its_end_and_a_new_installation(
    api, namespace, kubeconfig, tmp_path
):
    with loopback_istiod.installed(api, kubeconfig, tmp_path / "first") as first:
        assert discover(api, namespace).mesh.alive
        first.istiod.process.kill()
        first.istiod.process.wait()
        gone = discover(api, namespace)
        assert not gone.mesh.alive
        assert "connection refused" in gone.mesh.problem
    assert said(discover(api, namespace)) == [
        "waiting: waiting for istiod: the cluster has no sidecar injector"
    ]
    with loopback_istiod.installed(api, kubeconfig, tmp_path / "second"):
        assert discover(api, namespace).mesh.alive
