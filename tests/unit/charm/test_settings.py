"""The webhook's settings, from options and from the last known state of the mesh."""

import dataclasses
import json

import pytest

from integrator_contract import names, pods
from istio_integrator.config.config import Config
from tests.unit.cases import cases
from tests.unit.charm import ambient_objects, fake_cluster
from tests.unit.charm.charm_world import state

CONFIGURATION = ("MutatingWebhookConfiguration", "0-istio-integrator.kf.mesh-2")
MAP = ("ConfigMap", "mesh-2-admission", "kf")
OUTSIDE = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"
HOLD = "defaultConfig: {holdApplicationUntilProxyStarts: true}"
CHARMS = "app.kubernetes.io/name"


def run(ctx, fake, **options):
    """Run a hook; what the webhook's servers are told."""
    ctx.run(ctx.on.config_changed(), state(**options))
    return json.loads(fake.find(*MAP)["data"]["settings.json"])


def test_no_option_about_new_pods_is_forgotten(ctx, fake, installed):
    options = {
        "included_pods": "in",
        "excluded_pods": "out",
        "hold_application": False,
        "pod_labels": "{team: ml}",
        "pod_annotations": "{a/b: c}",
        "excluded_outbound_ports": "80",
        "image_registries": "[{pods: q, prefixes: {docker.io: m.io/x}}]",
    }
    shared = {each.name for each in dataclasses.fields(pods.Settings)} & {*Config.model_fields}
    assert options.keys() == shared
    got = run(ctx, fake, **options)
    want = {
        "model": "kf",
        "application": "mesh-2",
        "membership": "selected",
        "included-pods": "in",
        "excluded-pods": "out",
        "hold-application": False,
        "pod-labels": [{"pods": "", "add": {"team": "ml"}}],
        "pod-annotations": [{"pods": "", "add": {"a/b": "c"}}],
        "excluded-outbound-ports": [{"pods": "", "ports": [80]}],
        "image-registries": [{"pods": "q", "prefixes": {"docker.io": "m.io/x"}}],
    }
    assert {key: got[key] for key in want} == want
    assert run(ctx, fake, included_pods="in", mesh_mode="none")["included-pods"] == ""


def charms(*ports):
    return {"excluded-outbound-ports": [{"pods": CHARMS, "ports": [*ports]}]}


@cases(
    ("installed", "want"),
    native_in_jobs=({}, {"native": True, "hold-application": True, "mesh-holds": False}),
    classic=({"native": False}, {"native": False}),
    held_by_the_mesh=({"mesh_config": HOLD}, {"hold-application": False, "mesh-holds": True}),
    controller_is_not_cut_off=({}, {"excluded-outbound-ports": []}),
    controller_is_cut_off=({"mesh_config": OUTSIDE}, charms(17070)),
    # The mesh's own ports are nobody's rule.
    mesh_lets_out_to_it=({"mesh_config": OUTSIDE, "excluded_ports": "17070"}, {
        "excluded-outbound-ports": [],
    }),
    **{f"mesh_{how}_lets_out_to_others": (
        {"mesh_config": OUTSIDE, "excluded_ports": "0, 3306, *, 65536", "cni": cni},
        charms(17070, 3306),
    ) for how, cni in {"redirected": False, "by_the_plugin": True}.items()},
    revision=({"revision": "canary"}, {"inject-label": {"istio.io/rev": "canary"}}),
)  # fmt: skip
def test_what_was_seen_last_is_kept_while_the_mesh_says_nothing(ctx, fake, installed, want):
    fake_cluster.install_istio(fake, **installed)
    before = run(ctx, fake)
    assert {key: before[key] for key in want} == want
    webhooks = fake.find(*CONFIGURATION)["webhooks"]
    revision = installed.get("revision", "")
    name = f"istiod-{revision}" if revision else "istiod"
    fake_cluster.set_istiod(fake, name, alive=False)
    assert run(ctx, fake) == before
    fake_cluster.uninstall_istio(fake, revision=revision)
    assert run(ctx, fake) == before
    assert fake.find(*CONFIGURATION)["webhooks"] == webhooks
    assert run(ctx, fake, job_sidecars="classic")["native"] is False


def test_hold_of_the_mesh_configuration_is_followed_while_istiod_is_away(ctx, fake):
    fake_cluster.install_istio(fake)
    assert run(ctx, fake)["mesh-holds"] is False
    fake_cluster.install_istio(fake, mesh_config=HOLD)
    fake_cluster.set_istiod(fake, alive=False)
    assert run(ctx, fake)["mesh-holds"] is True


@cases(
    "text",
    none="",
    no_json="{",
    deep="[" * 9999,
    list="[]",
    no_bool='{"native": 1}',
    no_port='{"controller-ports": [0]}',
    high_port='{"controller-ports": [65536]}',
)
def test_what_was_seen_and_can_not_be_read_was_not_seen(ctx, fake, text):
    fake_cluster.install_istio(fake, native=False)
    assert run(ctx, fake)["native"] is False
    fake_cluster.set_istiod(fake, alive=False)
    fake.find(*MAP)["metadata"]["annotations"][names.MESH_SETTINGS] = text
    # The nodes alone are asked then.
    assert run(ctx, fake)["native"] is True


NAMED = "controller-service.controller-x.svc.cluster.local:17070"
DNS = {"proxy_metadata": {"ISTIO_META_DNS_CAPTURE": "True"}}
RANGES = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
SOME_RANGE = {"injected_annotations": {RANGES: "10.0.0.0/8"}}
INBOUND_ONLY = {"injected_annotations": {RANGES: "10.0.0.0/8,0.0.0.0/0"}}


@cases(
    ("installed", "addresses", "want"),
    not_told=({"cni": True}, "", [17070]),
    address=({"cni": True}, "10.1.2.3:17071", [17071]),
    addresses=({"cni": True}, "10.1.2.3:17070 [fd00::1]:17070", [17070]),
    name=({"cni": True}, "10.1.2.3:17080 controller.example.com:17070", [17070, 17080]),
    nonsense=({"cni": True}, "nonsense", [17070]),
    a_name_that_is_not_captured=({"cni": True}, NAMED, [17070]),
    a_name_nobody_answers=({"cni": True, **DNS}, NAMED, [17070, 53]),
    an_address_too=({"cni": True, **DNS, **SOME_RANGE}, f"{NAMED} [fd00::1]:17070", [17070]),
    native=({"cni": True, **DNS, "native_by_default": True}, NAMED, []),
    no_plugin=(DNS, NAMED, []),
    only_names_are_captured=({"cni": True, **DNS, **INBOUND_ONLY}, NAMED, [53]),
    nothing_captured=({"mesh_config": OUTSIDE, **INBOUND_ONLY}, "", []),
)
def test_charms_are_let_out_to_their_controller(  # noqa: PLR0917 - a table
    ctx, fake, monkeypatch, installed, addresses, want
):
    monkeypatch.setenv("JUJU_API_ADDRESSES", addresses)
    fake_cluster.install_istio(fake, **installed)
    rules = run(ctx, fake)["excluded-outbound-ports"]
    assert [each["ports"] for each in rules] == ([want] if want else [])


def test_ports_that_the_mesh_excludes_stay_so_beside_others(ctx, fake):
    fake_cluster.install_istio(fake, mesh_config=OUTSIDE, excluded_ports="3306,5432")
    rules = run(ctx, fake, excluded_outbound_ports="5432")["excluded-outbound-ports"]
    assert [each["ports"] for each in rules] == [[5432, 3306], [17070, 3306, 5432]]
    ambient_objects.install_ambient(fake)
    got = run(ctx, fake, excluded_outbound_ports="5432", mesh_mode="ambient")
    assert [each["ports"] for each in got["excluded-outbound-ports"]] == [[5432, 3306]]
    assert got["data-plane"] == "ambient"
    assert got["inject-label"] == {"istio.io/dataplane-mode": "ambient"}


@pytest.mark.parametrize("left_alone", [True, False])
def test_pods_of_a_model_that_is_left_alone_are_its_members_and_no_more(ctx, fake, left_alone):
    fake_cluster.install_istio(fake)
    if left_alone:
        fake.labels("kf")[names.SERVED] = "disabled"
    assert run(ctx, fake)["lifecycle-in-model"] is not left_alone
