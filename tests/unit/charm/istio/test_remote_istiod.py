"""An istiod outside of the cluster: what is known of it here, and what the operator tells."""

import pytest

from istio_integrator.config import config
from istio_integrator.istio import discovery, injectors, probe
from istio_integrator.kube import cluster
from tests import shown
from tests.unit.charm import fake_cluster, istio_objects

URL = "https://istiod.example:15017/inject"


def discover(fake, *, hint="", **options) -> discovery.Discovery:
    search = discovery.Discovery(
        fake.api(),
        config.Config(**options),
        model="kubeflow",
        application="istio-integrator",
        hint=hint,
    )
    search.reconcile()
    return search


def messages(search):
    return [status.message for status in shown.statuses(search.messages())]


@pytest.mark.parametrize(
    ("name", "revision", "tag", "want"),
    [
        ("istio-sidecar-injector", "", "", "istio-system"),
        ("istio-sidecar-injector-external-istiod", "", "", "external-istiod"),
        ("istio-sidecar-injector-1-31", "1-31", "", "istio-system"),
        ("istio-sidecar-injector-1-31-external-istiod", "1-31", "", "external-istiod"),
        ("istio-revision-tag-prod", "1-31", "prod", "istio-system"),
        ("istio-revision-tag-prod-external-istiod", "1-31", "prod", "external-istiod"),
        ("istiod-asm-managed", "asm-managed", "", ""),
        ("istio-sidecar-injectors", "", "", ""),
    ],
)
def test_namespace_of_a_remote_installation_is_in_its_configurations_name(
    fake, name, revision, tag, want
):
    istio_objects.install_remote(fake, name=name, revision=revision, tag=tag)
    (found,) = injectors.find(fake.api().list(cluster.MUTATING_WEBHOOK))
    assert (found.namespace, found.installed_in, found.url) == ("", want, URL)


def mesh_configuration(fake, text, *, namespace="istio-system", name="istio"):
    metadata = {"name": name, "namespace": namespace}
    fake.add(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"mesh": text}}
    )


def test_settings_in_the_namespace_of_a_remote_installation_are_read(fake):
    istio_objects.install_remote(fake)
    text = "{rootNamespace: root, outboundTrafficPolicy: {mode: REGISTRY_ONLY}}"
    mesh_configuration(fake, text)
    found = discover(fake).mesh
    assert found.has_settings
    assert (found.namespace, found.installed_in, found.root_namespace) == (
        "",
        "istio-system",
        "root",
    )
    assert found.cuts_off_controller


def test_dry_run_pod_without_settings_of_its_own_shows_istios_defaults(fake):
    istio_objects.install_remote(fake)
    found = discover(fake).mesh
    assert not found.hold_by_default
    assert found.status_port == 15020
    assert found.excluded_outbound_ports == ()
    assert found.pilot == ("istiod.istio-system.svc", 15012)


def test_settings_in_the_cluster_are_believed_before_the_dry_run_pod(fake):
    istio_objects.install_remote(fake, proxy_config={"statusPort": 15099})
    mesh_configuration(fake, "defaultConfig: {statusPort: 15098}")
    assert discover(fake).mesh.status_port == 15098


def test_native_decision_is_by_the_dry_run_pod(fake):
    istio_objects.install_remote(fake, native=False)
    assert not discover(fake).mesh.native_sidecars
    fake.remote[URL]["native"] = True
    assert discover(fake).mesh.native_sidecars


def test_option_tells_the_namespace_that_a_configuration_does_not(fake):
    managed = {"name": "istiod-asm-managed", "revision": "asm-managed"}
    istio_objects.install_remote(fake, **managed)
    mesh_configuration(fake, "rootNamespace: root", namespace="managed", name="istio-asm-managed")
    unknown = discover(fake).mesh
    assert (unknown.alive, unknown.has_settings, unknown.root_namespace) == (True, False, "")
    told = discover(fake, istiod_namespace="managed").mesh
    assert (told.has_settings, told.installed_in, told.root_namespace) == (True, "managed", "root")


def test_option_is_no_reason_to_join_another_mesh_that_says_where_it_is(fake):
    istio_objects.install_remote(fake)
    search = discover(fake, istiod_namespace="elsewhere")
    assert messages(search) == ["waiting for an istiod in elsewhere; there is one in istio-system"]


def test_what_a_charmed_istio_says_is_not_believed_of_another(fake):
    istio_objects.install_remote(fake, name="istiod-asm-managed", revision="asm-managed")
    search = discover(fake, hint="istio-k8s")
    assert messages(search) == [f"waiting for an istiod in istio-k8s; there is one in {URL}"]


def test_several_istios_are_told_apart_by_the_option_that_differs(fake):
    fake_cluster.install_istio(fake, namespace="mesh-a")
    istio_objects.install_remote(fake)
    (message,) = messages(discover(fake))
    assert message == (
        "several Istios; run: juju config istio-integrator istiod-namespace=istio-system; "
        f"or choose another of default ({URL}), default (mesh-a)"
    )
    assert discover(fake, istiod_namespace="istio-system").mesh.url == URL
    assert discover(fake, istiod_namespace="mesh-a").mesh.namespace == "mesh-a"


def test_two_injectors_for_the_same_pods_are_named(fake):
    for name in ("managed-a", "managed-b"):
        istio_objects.install_remote(fake, name=name, url=f"https://{name}/inject")
    (message,) = messages(discover(fake))
    assert message.startswith(
        "several Istios are asked for the same pods; "
        "run: kubectl delete mutatingwebhookconfiguration managed-b; "
    )


def test_model_of_another_revision_says_what_keeps_it_from_asking(fake):
    fake.labels("kubeflow")["istio.io/rev"] = "other"
    istio_objects.install_remote(fake)
    fake.namespace("default")
    fake.forbidden.add(("create", "pods", "default"))
    search = discover(fake)
    assert not search.mesh.alive
    assert "can't be asked while kubeflow has other labels" in messages(search)[-1]


HOLD = '{"holdApplicationUntilProxyStarts": true}'


@pytest.mark.parametrize(
    ("annotations", "want"), [({}, True), ({"proxy.istio.io/config": HOLD}, False)]
)
def test_hold_that_our_own_admission_gave_the_pod_is_not_the_meshs(annotations, want):
    proxy = {"name": "istio-proxy", "env": [{"name": "PROXY_CONFIG", "value": HOLD}]}
    created = {"metadata": {"annotations": annotations}, "spec": {"containers": [proxy]}}
    assert probe.read(created).hold_by_default is want
