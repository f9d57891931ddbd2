"""What new pods get, kept while the mesh can't be asked."""

import dataclasses
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import names, pods
from istio_integrator.admission import settings
from istio_integrator.config import config
from istio_integrator.istio import installation
from istio_integrator.situation import situation
from tests.unit.cases import cases

ALIVE = installation.Mesh(
    namespace="istio-system", revision="x", is_default=False, probed=True, native_sidecars=True
)
AWAY = dataclasses.replace(ALIVE, probed=False, native_sidecars=False)
NATIVE = settings.Seen(
    native=True, inject_label=("istio.io/rev", "x"), istiod_namespace="istio-system"
)
CLASSIC = msgspec.structs.replace(NATIVE, native=False)
HELD = msgspec.structs.replace(NATIVE, held=True)


NOTHING = [
    "",
    "{",
    "[" * 9999,
    '"\ud83d"',
    "[]",
    '{"native": 1}',
    "null",
    *(
        json.dumps({"controller-ports": ports})
        for ports in ("x", [-1], [0], [65536], [10**30], [True])
    ),
]


def scope(found, addresses="", **options):
    return situation.Situation(
        cluster=None,
        manifests=None,
        config=config.Config(**options),
        mesh=found,
        model="m",
        application="a",
        unit="a/0",
        leader=True,
        controller=situation.Controller.read(addresses),
    )


def made(found, seen, **options):
    """What new pods get, as the webhook's servers read it."""
    return settings.make(scope(found, **options), seen, lifecycle_in_model=True).document()


IN_CLUSTER = "controller-service.controller-x.svc.cluster.local:17070"
CUTTING = dataclasses.replace(ALIVE, registry_only=True)
CUT = msgspec.structs.replace(NATIVE, controller_ports=(17070,))
EXCLUDING = dataclasses.replace(CUTTING, excluded_outbound_ports=(17070,))


@cases(
    ("found", "before", "want"),
    as_it_shows_itself=(ALIVE, None, NATIVE),
    it_changed=(ALIVE, CLASSIC, NATIVE),
    istiod_is_away=(AWAY, NATIVE, NATIVE),
    old_istiod_away=(dataclasses.replace(AWAY, native_sidecars=True), CLASSIC, CLASSIC),
    istiod_was_never_seen=(AWAY, None, CLASSIC),
    its_settings_came=(dataclasses.replace(AWAY, hold_by_default=True), NATIVE, HELD),
    they_are_away=(dataclasses.replace(AWAY, has_settings=False), HELD, HELD),
    its_webhook_is_away_too=(None, NATIVE, NATIVE),
    there_was_never_an_istio=(None, None, settings.Seen(native=False)),
    controller_is_cut_off=(CUTTING, None, CUT),
    controller_is_not_cut_off=(ALIVE, CUT, NATIVE),
    mesh_lets_out_to_it=(EXCLUDING, None, msgspec.structs.replace(NATIVE, mesh_ports=(17070,))),
    cut_off_while_istiod_is_away=(AWAY, CUT, CUT),
    cut_off_while_its_webhook_is_away=(None, CUT, CUT),
)
def test_what_was_seen_last_is_kept_while_the_mesh_says_nothing(found, before, want):
    seen = settings.Seen.of(scope(found), before)
    assert seen == want
    own = {"pods": "app.kubernetes.io/name", "ports": (17070,)}
    # The mesh's own ports are nobody's rule.
    assert made(found, seen)["excluded-outbound-ports"] == ((own,) if want is CUT else ())
    assert settings.Seen.of(scope(found, job_sidecars="classic"), before).native is False


@pytest.mark.parametrize("option", [True, False])
@pytest.mark.parametrize("found", [ALIVE, AWAY, None], ids=["alive", "away", "gone"])
@pytest.mark.parametrize("held", [True, False])
def test_pods_ask_for_the_hold_unless_the_mesh_holds_them_anyway(found, option, held):
    before = msgspec.structs.replace(NATIVE, held=held)
    if found is not None:
        found = dataclasses.replace(found, hold_by_default=held)
    seen = settings.Seen.of(scope(found), before)
    document = made(found, seen, hold_application=option)
    assert document["hold-application"] == (option and not held)
    assert document["mesh-holds"] == held


@pytest.mark.parametrize(
    ("addresses", "want"),
    [
        ("", situation.Controller((17070,))),
        ("10.1.2.3:17070 [fd00::1]:17070", situation.Controller((17070,))),
        ("[fd00::1]:17070", situation.Controller((17070,))),
        ("controller.example.com:443 10.1.2.3:17070", situation.Controller((443, 17070))),
        (IN_CLUSTER, situation.Controller((17070,), is_named=True)),
        ("nonsense", situation.Controller((17070,))),
    ],
)
def test_controller_is_where_juju_tells(addresses, want):
    assert situation.Controller.read(addresses) == want


CAPTURING = dataclasses.replace(ALIVE, cni=True, captures_names=True)


@cases(
    ("found", "addresses", "want"),
    a_name_nobody_answers=(CAPTURING, IN_CLUSTER, (17070, 53)),
    an_address_too=(CAPTURING, f"{IN_CLUSTER} 10.1.2.3:17070", (17070,)),
    native=(dataclasses.replace(CAPTURING, native_proxy=True), IN_CLUSTER, ()),
    no_plugin=(dataclasses.replace(CAPTURING, cni=False), IN_CLUSTER, ()),
    only_names_are_captured=(
        dataclasses.replace(CAPTURING, captures_outbound=False),
        IN_CLUSTER,
        (53,),
    ),
    nothing_captured=(dataclasses.replace(CUTTING, captures_outbound=False), "", ()),
)
def test_charms_find_a_controller_that_has_only_a_name(found, addresses, want):
    assert settings.Seen.of(scope(found, addresses), None).controller_ports == want


def test_ports_that_the_mesh_excludes_stay_so_beside_others():
    found = dataclasses.replace(CUTTING, excluded_outbound_ports=(3306, 5432))
    seen = settings.Seen.of(scope(found), None)
    document = made(found, seen, excluded_outbound_ports="5432")
    assert [rule["ports"] for rule in document["excluded-outbound-ports"]] == [
        (5432, 3306),
        (17070, 3306, 5432),
    ]
    assert settings.Seen.of(scope(None), seen).mesh_ports == (3306, 5432)


@given(
    seen=st.builds(
        settings.Seen,
        native=st.booleans(),
        inject_label=st.tuples(st.text(), st.text()),
        istiod_namespace=st.text(),
        controller_ports=st.lists(st.integers(1, 65535)).map(tuple),
        mesh_ports=st.lists(st.integers(1, 65535)).map(tuple),
    )
)
def test_what_is_written_is_read_back(seen):
    annotations = {names.SEEN: seen.text()}
    assert settings.Seen.read({"metadata": {"annotations": annotations}}) == seen


@pytest.mark.parametrize("text", NOTHING)
def test_what_cannot_be_understood_was_not_seen(text):
    annotations = {names.SEEN: text}
    assert settings.Seen.read({"metadata": {"annotations": annotations}}) is None
    assert settings.Seen.read(None) is None


CHOSEN = {
    "included_pods": "in",
    "excluded_pods": "out",
    "hold_application": False,
    "pod_labels": "{team: ml}",
    "pod_annotations": "{a/b: c}",
    "excluded_outbound_ports": "80",
    "image_registries": "[{pods: q, prefixes: {docker.io: m.io/x}}]",
}


def test_option_of_a_settings_name_is_what_new_pods_get():
    fields = {field.name for field in dataclasses.fields(pods.Settings)}
    assert fields & set(config.Config.model_fields) == {*CHOSEN, "revision"}
    where = scope(ALIVE, revision="canary", **CHOSEN)

    got = settings.make(where, settings.Seen(), lifecycle_in_model=True)

    assert {name: getattr(got, name) for name in CHOSEN} == {
        name: getattr(where.config, name) for name in CHOSEN
    }
    assert got.membership == "selected"
    assert got == settings.revised(got)


@pytest.mark.parametrize("data_plane", ["sidecar", "ambient"])
@pytest.mark.parametrize("lifecycle_in_model", [True, False])
def test_new_pods_get_what_their_model_is(data_plane, lifecycle_in_model):
    where = dataclasses.replace(scope(ALIVE), data_plane=data_plane)

    got = settings.make(where, NATIVE, lifecycle_in_model=lifecycle_in_model)

    assert (got.model, got.application) == (where.model, where.application)
    assert (got.data_plane, got.lifecycle_in_model) == (data_plane, lifecycle_in_model)
    assert (got.inject_label, got.native) == (dict([NATIVE.inject_label]), NATIVE.native)
