import datetime

import httpx2
import ops
import pytest
from hypothesis import given
from hypothesis import strategies as st

import config
import errors
import mesh
import meshconfig
from tests.unit.charm import fake_cluster


def discover(fake, clock=None, **options) -> mesh.Discovery:
    given = {"now": clock} if clock else {}
    discovery = mesh.Discovery(
        fake.api(),
        config.Config.load({key.replace("_", "-"): value for key, value in options.items()}),
        model="kubeflow",
        application="istio-integrator",
        ask_version=lambda namespace, service: "1.30.2",
        **given,
    )
    discovery.reconcile()
    return discovery


def worst(discovery: mesh.Discovery) -> ops.StatusBase:
    return list(discovery.statuses())[-1]


def test_discovery_finds_a_living_mesh_and_what_it_can_do(fake):
    fake_cluster.install_istio(
        fake,
        mesh_config="rootNamespace: root\ndefaultConfig:\n  statusPort: 15999\n"
        "extensionProviders:\n- name: oidc\n",
    )
    found = discover(fake).mesh
    assert found == mesh.Mesh(
        namespace="istio-system",
        revision="default",
        is_default=True,
        version="1.31.1",
        webhook_configuration="istio-sidecar-injector",
        status_port=15999,
        root_namespace="root",
        alive=True,
        probed=True,
        native_sidecars=True,
        proxy_revision="default",
        extension_providers=({"name": "oidc"},),
    )
    assert fake.writes == []


@pytest.mark.parametrize(("seconds", "known"), [(119, False), (120, True)])
def test_providers_count_when_istiod_must_have_read_them(fake, seconds, known):
    fake_cluster.install_istio(fake, mesh_config="extensionProviders:\n- name: oidc\n")
    written = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    config_map = fake.find("ConfigMap", "istio", "istio-system")
    config_map["metadata"]["managedFields"] = [
        {"manager": "helm", "time": "2025-01-01T00:00:00Z"},
        {"manager": "kubectl-edit", "time": "2026-01-01T00:00:00Z"},
        {"manager": "nobody"},
    ]
    now = written + datetime.timedelta(seconds=seconds)
    found = discover(fake, clock=lambda: now).mesh
    assert bool(found.extension_providers) is known


def test_discovery_says_which_mesh_it_is(fake):
    fake_cluster.install_istio(fake)
    assert worst(discover(fake)) == ops.ActiveStatus("istio-system/istiod 1.31")


def test_discovery_names_the_revision(fake):
    fake_cluster.install_istio(fake, revision="canary")
    assert worst(discover(fake)) == ops.ActiveStatus("istio-system/istiod-canary canary 1.31")


def test_discovery_asks_istiod_where_the_image_does_not_tell_the_version(fake):
    fake_cluster.install_istio(fake, image="localhost/proxy:sha-abcdef")
    assert discover(fake).mesh.version == "1.30.2"


def test_discovery_of_a_dead_istiod_waits_with_the_reason(fake):
    fake_cluster.install_istio(fake, alive=False)
    discovery = discover(fake)
    assert discovery.mesh.alive is False
    assert isinstance(worst(discovery), ops.WaitingStatus)
    assert worst(discovery).message == (
        "istio-system/istiod does not inject: object.sidecar-injector.istio.io: connection refused"
    )


def test_discovery_without_istio_waits(fake):
    discovery = discover(fake)
    assert discovery.mesh is None
    assert isinstance(worst(discovery), ops.WaitingStatus)


def test_discovery_of_an_unknown_revision_blocks(fake):
    fake_cluster.install_istio(fake)
    assert worst(discover(fake, revision="x")) == ops.BlockedStatus(
        "revision x does not exist; there is default"
    )


def test_discovery_sees_that_the_mesh_holds_applications_already(fake):
    fake_cluster.install_istio(
        fake, mesh_config="defaultConfig: {holdApplicationUntilProxyStarts: true}"
    )
    assert discover(fake).mesh.hold_by_default


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
        "1 profile namespaces ask for the default revision and there is none; "
        "run: istioctl tag set default --revision 1-31"
    )


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
        pytest.param({}, "auto", "native sidecars", id="asked for"),
        pytest.param({}, "classic", "classic sidecars", id="not asked for"),
        pytest.param({"native_by_default": True}, "classic", "native sidecars", id="by default"),
        pytest.param({"native": False}, "auto", "classic sidecars", id="not to be had"),
    ],
)
def test_mesh_says_which_sidecars_pods_really_get(fake, behaviour, mode, expected):
    fake_cluster.install_istio(fake, **behaviour)
    assert discover(fake, sidecar_mode=mode).mesh.sidecars == expected


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


def test_discovery_with_native_wanted_and_not_injected_blocks(fake):
    fake_cluster.install_istio(fake, native=False)
    assert worst(discover(fake, sidecar_mode="native")) == ops.BlockedStatus(
        "sidecar-mode=native, but istiod injects classic sidecars"
    )


@pytest.mark.parametrize(
    ("mode", "shown", "kubelets", "expected"),
    [
        pytest.param("auto", True, ["v1.33.0"], True, id="auto on 1.33"),
        pytest.param("auto", True, ["v1.33.0", "v1.32.9"], False, id="auto with an older node"),
        pytest.param("auto", False, ["v1.36.0"], False, id="auto but not injected"),
        pytest.param("auto", True, [], False, id="auto without nodes"),
        pytest.param("native", True, ["v1.29.1"], True, id="native on beta kubelets"),
        pytest.param("native", True, ["v1.28.9"], False, id="native on kubelets without"),
        pytest.param("native", False, ["v1.36.0"], False, id="native but not injected"),
        pytest.param("classic", True, ["v1.36.0"], False, id="classic"),
        pytest.param("auto", True, ["v1.33.4-eks-1"], True, id="a provider's version"),
        pytest.param("auto", True, ["unknown"], False, id="no version"),
    ],
)
def test_native_sidecars_are_used_where_all_agree(mode, shown, kubelets, expected):
    assert mesh.decide_native(mode, shown=shown, kubelets=kubelets)[0] is expected


@given(
    st.sampled_from(["auto", "native", "classic"]),
    st.booleans(),
    st.lists(st.tuples(st.just(1), st.integers(20, 40)), max_size=4),
)
def test_native_sidecars_need_the_injector_and_every_kubelet(mode, shown, minors):
    kubelets = [f"v{major}.{minor}.1" for major, minor in minors]
    decision, _ = mesh.decide_native(mode, shown=shown, kubelets=kubelets)
    if decision:
        assert shown
        assert mode != "classic"
        assert min(minor for _, minor in minors) >= (33 if mode == "auto" else 29)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(httpx2.Response(200, text="1.31.1-abc-Clean"), "1.31.1", id="of a release"),
        pytest.param(httpx2.Response(200, text="unknown"), "", id="of nothing known"),
        pytest.param(httpx2.Response(503, text="1.31.1"), "", id="of a failing istiod"),
        pytest.param(httpx2.ConnectError("refused"), "", id="of one that does not answer"),
    ],
)
def test_version_is_what_istiod_says(monkeypatch, answer, expected):
    def get(url, timeout):
        assert url == "http://istiod.istio-system.svc:15014/version"
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(httpx2, "get", get)
    assert mesh.istiod_version("istio-system", "istiod") == expected


def test_version_of_a_remote_istiod_is_not_asked():
    assert mesh.istiod_version("", "") == ""


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


@pytest.mark.parametrize(("value", "want"), [("true", True), ("false", False)])
def test_mesh_knows_that_gateways_keep_to_their_namespace(fake, value, want):
    fake_cluster.install_istio(fake, environment={"PILOT_SCOPE_GATEWAY_TO_NAMESPACE": value})
    assert discover(fake).mesh.gateways_scoped is want


def test_what_istiod_writes_over_is_named(fake, caplog):
    replaced = {"proxy.istio.io/config": "{}"}
    fake_cluster.install_istio(fake, injected_annotations=replaced)
    discovery = discover(fake)
    assert discovery.mesh.overwritten == ("proxy.istio.io/config",)
    assert list(discovery.statuses())
    assert "injectedAnnotations replace proxy.istio.io/config" in caplog.text


def test_revision_of_new_proxies_is_what_a_tag_leads_to(fake):
    fake_cluster.install_istio(fake, revision="1-31", tags=("prod",))
    found = discover(fake, revision="prod").mesh
    assert (found.revision, found.proxy_revision) == ("prod", "1-31")


def test_injector_that_never_answers_is_not_alive(fake):
    fake_cluster.install_istio(fake)
    fake.timeouts.add(("create", "pods"))
    found = discover(fake).mesh
    assert not found.alive
    assert "timed out" in found.problem


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ('{"global": {"proxy": {"excludeOutboundPorts": "3306,5432"}}}', (3306, 5432)),
        ('{"global": {"proxy": {"excludeOutboundPorts": ""}}}', ()),
        ('{"global": {"proxy": {"excludeOutboundPorts": "*"}}}', ()),
        ('{"global": null}', ()),
        ("[]", ()),
        ("{", ()),
    ],
)
def test_ports_that_every_proxy_leaves_alone_are_read_as_far_as_they_can_be(values, want):
    assert meshconfig.excluded_ports({"data": {"values": values}}) == want


def sidecar(namespace, mode="", **spec):
    """A Sidecar, whose policy is the mesh's where the mode is empty."""
    outbound = {"outboundTrafficPolicy": {"mode": mode}} if mode else {}
    return {"metadata": {"namespace": namespace}, "spec": {**outbound, **spec}}


OF_PODS = {"workloadSelector": {"labels": {"app": "x"}}}
CLOSED = {"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}}


@pytest.mark.parametrize(
    ("settings", "sidecars", "want"),
    [
        pytest.param({}, [], False, id="nothing said"),
        pytest.param(CLOSED, [], True, id="the mesh"),
        pytest.param({}, [sidecar("istio-system", "REGISTRY_ONLY")], True, id="root"),
        pytest.param({}, [sidecar("m", "REGISTRY_ONLY")], True, id="model"),
        pytest.param(
            CLOSED,
            [sidecar("istio-system", "REGISTRY_ONLY"), sidecar("m", "ALLOW_ANY")],
            False,
            id="nearest wins",
        ),
        pytest.param(CLOSED, [sidecar("m")], True, id="model says nothing"),
        pytest.param({}, [sidecar("m", "REGISTRY_ONLY", **OF_PODS)], True, id="some pods"),
        pytest.param(CLOSED, [sidecar("m", "ALLOW_ANY", **OF_PODS)], True, id="all but some"),
        pytest.param(
            {}, [sidecar("istio-system", "REGISTRY_ONLY", **OF_PODS)], False, id="root's own pods"
        ),
    ],
)
def test_what_proxies_let_out_is_the_nearest_sidecars_word(settings, sidecars, want):
    assert meshconfig.is_registry_only(settings, sidecars, model="m") is want
