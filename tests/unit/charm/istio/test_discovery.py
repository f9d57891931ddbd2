import ops
import pytest

from istio_integrator.config import config
from istio_integrator.istio import discovery, installation
from istio_integrator.kube import errors
from istio_integrator.messages import Said
from tests import shown
from tests.unit.cases import cases
from tests.unit.charm import fake_cluster

BY_DEFAULT = {"native_by_default": True}
CLASSIC = {"native": False}
UNKNOWN = "not every node tells its kubelet's version"


def discover(fake, **options) -> discovery.Discovery:
    search = discovery.Discovery(
        fake.api(),
        config.Config.load({key.replace("_", "-"): value for key, value in options.items()}),
        model="kubeflow",
        application="istio-integrator",
    )
    search.reconcile()
    return search


def worst(discovery: discovery.Discovery) -> ops.StatusBase:
    return shown.statuses(discovery.messages())[-1]


def test_discovery_finds_a_living_mesh_and_what_it_can_do(fake):
    fake_cluster.install_istio(
        fake,
        mesh_config=(
            "rootNamespace: root\n"
            "defaultConfig: {statusPort: 15999, holdApplicationUntilProxyStarts: true}\n"
        ),
    )
    found = discover(fake).mesh
    assert found == installation.Mesh(
        namespace="istio-system",
        revision="default",
        istiod_revision="default",
        is_default=True,
        version="1.31.1",
        webhook_configuration="istio-sidecar-injector",
        environment={},
        status_port=15999,
        hold_by_default=True,
        root_namespace="root",
        alive=True,
        probed=True,
        native_sidecars=True,
        proxy_revision="default",
        discovery_address="istiod.istio-system.svc:15012",
    )
    assert fake.writes == []


@pytest.mark.parametrize(
    ("installed", "name"),
    [
        ({}, "istio-system/istiod 1.31"),
        ({"revision": "canary"}, "istio-system/istiod-canary canary 1.31"),
    ],
)
def test_discovery_says_which_mesh_it_is(fake, installed, name):
    fake_cluster.install_istio(fake, **installed)
    assert worst(discover(fake)) == ops.ActiveStatus(name)


def test_several_istios_are_named_with_the_command(fake):
    fake_cluster.install_istio(fake, revision="1-30")
    fake_cluster.install_istio(fake, revision="1-31", tags=("prod",))
    assert worst(discover(fake)) == ops.BlockedStatus(
        "several Istios; run: juju config istio-integrator revision=1-30; or choose another of "
        "1-30 (istio-system), 1-31 (istio-system), prod (istio-system)"
    )


def test_namespace_without_istiod_is_waited_for(fake):
    fake_cluster.install_istio(fake)
    assert worst(discover(fake, istiod_namespace="elsewhere")) == ops.WaitingStatus(
        "waiting for an istiod in elsewhere; there is one in istio-system"
    )


def test_deactivated_injector_is_no_istio(fake):
    fake_cluster.install_istio(fake)
    configuration = fake.find("MutatingWebhookConfiguration", "istio-sidecar-injector")
    for hook in configuration["webhooks"]:
        hook["namespaceSelector"] = {"matchLabels": {"istio.io/deactivated": "never-match"}}
    assert worst(discover(fake)) == ops.WaitingStatus(
        "waiting for istiod: the cluster has no sidecar injector"
    )


def test_discovery_of_a_dead_istiod_waits_with_the_reason(fake):
    fake_cluster.install_istio(fake, alive=False)
    discovery = discover(fake)
    assert discovery.mesh.alive is False
    assert isinstance(worst(discovery), ops.WaitingStatus)
    assert worst(discovery).message == (
        "istio-system/istiod does not inject: object.sidecar-injector.istio.io: connection refused"
    )


@pytest.mark.parametrize("text", ["]", "text", "[1]"])
def test_discovery_survives_a_mesh_configuration_that_is_none(fake, text):
    fake_cluster.install_istio(fake, mesh_config=text)
    assert discover(fake).mesh.status_port == 15020


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"istio-injection": "enabled"}, id="joined"),
        pytest.param({"istio-injection": "disabled"}, id="disabled"),
        pytest.param({"istio.io/rev": "other"}, id="of another revision"),
    ],
)
def test_discovery_has_an_answer_whatever_the_namespace_is_labelled(fake, labels):
    fake.labels("kubeflow").update(labels)
    fake_cluster.install_istio(fake)
    assert discover(fake).mesh.alive


def profile(fake) -> None:
    labels = {"app.kubernetes.io/part-of": "kubeflow-profile", "istio-injection": "enabled"}
    fake.namespace("alice", **labels)


def test_profiles_that_no_revision_serves_block_with_the_command(fake):
    profile(fake)
    fake_cluster.install_istio(fake, revision="1-31")
    assert worst(discover(fake)) == ops.BlockedStatus(
        "no default revision for 1 profile namespaces; "
        "run: istioctl tag set default --revision 1-31"
    )


def test_profile_that_is_being_deleted_asks_for_nothing(fake):
    profile(fake)
    fake.find("Namespace", "alice")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    fake_cluster.install_istio(fake, revision="1-31")
    assert worst(discover(fake)).name == "active"


def test_profiles_are_served_where_there_is_a_default_beside_the_revision(fake):
    profile(fake)
    fake_cluster.install_istio(fake, revision="1-31", tags=("default",))
    assert worst(discover(fake, revision="1-31")) == ops.ActiveStatus(
        "istio-system/istiod-1-31 1-31 1.31"
    )


def test_a_tag_that_moves_is_followed(fake):
    fake_cluster.install_istio(fake, revision="1-30", tags=("prod",))
    assert discover(fake, revision="prod").mesh.service == "istiod-1-30"
    fake.delete("MutatingWebhookConfiguration", "istio-revision-tag-prod")
    fake_cluster.install_istio(fake, revision="1-31", tags=("prod",), image="proxyv2:1.32.0")
    mesh_now = discover(fake, revision="prod").mesh
    assert (mesh_now.service, mesh_now.version) == ("istiod-1-31", "1.32.0")
    assert mesh_now.namespace_labels == {"istio.io/rev": "prod"}


@pytest.mark.parametrize(
    ("behaviour", "mode", "expected"),
    [
        pytest.param({}, "auto", "classic sidecars, native in Jobs", id="asked for"),
        pytest.param({}, "classic", "classic sidecars", id="not asked for"),
        pytest.param({"native_by_default": True}, "classic", "native sidecars", id="by default"),
        pytest.param({"native": False}, "auto", "classic sidecars", id="not to be had"),
    ],
)
def test_mesh_says_which_sidecars_pods_really_get(fake, behaviour, mode, expected):
    fake_cluster.install_istio(fake, **behaviour)
    assert discover(fake, job_sidecars=mode).mesh.sidecars == expected


def test_discovery_without_rights_to_ask_says_so(fake):
    fake_cluster.install_istio(fake)
    fake.forbidden.add(("create", "pods"))
    with pytest.raises(errors.ForbiddenError):
        discover(fake)


@pytest.mark.parametrize("ready", [True, False])
def test_discovery_that_may_ask_only_in_its_model_looks_at_istiods_endpoints(fake, ready):
    fake.labels("kubeflow")["istio.io/rev"] = "other"
    fake_cluster.install_istio(fake)
    fake.forbidden.add(("create", "pods", "istio-system"))
    metadata = {"name": "istiod-x", "namespace": "istio-system"}
    metadata["labels"] = {"kubernetes.io/service-name": "istiod"}
    slice_ = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata}
    fake.add({**slice_, "endpoints": [{"conditions": {"ready": ready}}]})
    assert discover(fake).mesh.alive is ready


@cases(
    ("behaviour", "kubelets", "mode", "want", "obstacle"),
    auto_on_1_33=({}, ["v1.33.0"], "auto", True, ""),
    auto_with_an_older_node=({}, ["v1.33.0", "v1.32.9"], "auto", False, ""),
    auto_on_a_version_of_a_provider=({}, ["v1.33.4-eks-1"], "auto", True, ""),
    auto_on_no_version=({}, ["unknown"], "auto", False, ""),
    auto_without_nodes=({}, [], "auto", False, ""),
    auto_by_default_on_an_old_node=(BY_DEFAULT, ["v1.28.0"], "auto", True, ""),
    auto_but_not_injected=(CLASSIC, ["v1.36.3"], "auto", False, ""),
    native_on_1_29=({}, ["v1.29.1"], "native", True, ""),
    native_on_1_28=({}, ["v1.28.9"], "native", False, "a node's kubelet 1.28 has none"),
    native_by_default_on_1_28=(
        BY_DEFAULT,
        ["v1.28.9"],
        "native",
        False,
        "a node's kubelet 1.28 has none",
    ),
    native_on_no_version=({}, ["v1.36.3", ""], "native", False, UNKNOWN),
    native_without_nodes=({}, [], "native", False, UNKNOWN),
    native_but_not_injected=(
        CLASSIC,
        ["v1.36.3"],
        "native",
        False,
        "istiod injects classic sidecars",
    ),
    classic=({}, ["v1.36.3"], "classic", False, ""),
    classic_by_default_native=(BY_DEFAULT, ["v1.36.3"], "classic", False, ""),
)
def test_jobs_get_native_sidecars_where_injector_kubelets_and_option_agree(  # noqa: PLR0917 - a table
    fake, behaviour, kubelets, mode, want, obstacle
):
    fake_cluster.install_istio(fake, **behaviour)
    fake.delete("Node", "node")
    for number, kubelet in enumerate(kubelets):
        fake.node(f"node-{number}", kubelet)
    search = discover(fake, job_sidecars=mode)
    assert search.mesh.native_sidecars is want
    said = [Said.NATIVE_SIDECARS_IMPOSSIBLE(obstacle=obstacle)] if obstacle else []
    assert search.messages()[1:] == said


@pytest.mark.parametrize(
    ("outbound", "behaviour", "want"),
    [
        pytest.param("ALLOW_ANY", {}, False, id="istio-init"),
        pytest.param("ALLOW_ANY", {"cni": True}, True, id="cni, classic"),
        pytest.param("ALLOW_ANY", {"cni": True, "native_by_default": True}, False, id="cni"),
        pytest.param("REGISTRY_ONLY", {}, True, id="registry only"),
        pytest.param("REGISTRY_ONLY", {"native_by_default": True}, True, id="and native"),
    ],
)
def test_mesh_knows_whether_charms_reach_their_controller(fake, outbound, behaviour, want):
    outside = f"outboundTrafficPolicy: {{mode: {outbound}}}"
    fake_cluster.install_istio(fake, mesh_config=outside, **behaviour)
    found = discover(fake).mesh
    assert found.cuts_off_controller is want
    assert found.cni is behaviour.get("cni", False)


DNS = {"ISTIO_META_DNS_CAPTURE": "true"}
NO_DNS = {"ISTIO_META_DNS_CAPTURE": "false"}
INBOUND_ONLY = {"traffic.sidecar.istio.io/excludeOutboundIPRanges": "0.0.0.0/0"}


@pytest.mark.parametrize(
    ("behaviour", "controller", "names"),
    [
        pytest.param({"proxy_metadata": DNS}, True, True, id="dns capture"),
        pytest.param({"proxy_metadata": {**DNS, **NO_DNS}}, True, False, id="switched off"),
        pytest.param({"injected_annotations": INBOUND_ONLY}, False, False, id="inbound only"),
        pytest.param(
            {"proxy_metadata": DNS, "injected_annotations": INBOUND_ONLY},
            False,
            True,
            id="inbound only but for dns",
        ),
        pytest.param(
            {"proxy_metadata": DNS, "native_by_default": True}, False, False, id="native"
        ),
    ],
)
def test_mesh_knows_what_the_cni_plugin_leads_nowhere(fake, behaviour, controller, names):
    fake_cluster.install_istio(fake, cni=True, **behaviour)
    found = discover(fake).mesh
    assert (found.cuts_off_controller, found.cuts_off_names) == (controller, names)


def test_what_istiod_writes_over_is_named(fake, caplog):
    replaced = {"proxy.istio.io/config": "{}"}
    fake_cluster.install_istio(fake, injected_annotations=replaced)
    discovery = discover(fake)
    assert discovery.mesh.overwritten == ("proxy.istio.io/config",)
    assert shown.statuses(discovery.messages())
    assert "injectedAnnotations replace proxy.istio.io/config" in caplog.text


def test_injector_that_never_answers_is_not_alive(fake):
    fake_cluster.install_istio(fake)
    fake.timeouts.add(("create", "pods"))
    found = discover(fake).mesh
    assert not found.alive
    assert "timed out" in found.problem
