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


def scope(found, mode="auto"):
    return situation.Situation(
        cluster=None,
        manifests=None,
        config=config.Config(job_sidecars=mode),
        mesh=found,
        model="m",
        application="a",
        unit="a/0",
        leader=True,
    )


@pytest.mark.parametrize(
    ("found", "before", "want"),
    [
        pytest.param(ALIVE, None, NATIVE, id="as it shows itself"),
        pytest.param(ALIVE, CLASSIC, NATIVE, id="it changed"),
        pytest.param(AWAY, NATIVE, NATIVE, id="istiod is away"),
        pytest.param(
            dataclasses.replace(AWAY, native_sidecars=True), CLASSIC, CLASSIC, id="old istiod away"
        ),
        pytest.param(AWAY, None, CLASSIC, id="istiod was never seen"),
        pytest.param(
            dataclasses.replace(AWAY, hold_by_default=True),
            NATIVE,
            HELD,
            id="its settings came",
        ),
        pytest.param(
            dataclasses.replace(AWAY, has_settings=False), HELD, HELD, id="they are away"
        ),
        pytest.param(None, NATIVE, NATIVE, id="its webhook is away too"),
        pytest.param(None, None, settings.Seen(native=False), id="there was never an istio"),
    ],
)
def test_what_was_seen_last_is_kept_while_the_mesh_says_nothing(found, before, want):
    assert settings.Seen.of(scope(found), before) == want


IN_CLUSTER = "controller-service.controller-x.svc.cluster.local:17070"
CUTTING = dataclasses.replace(ALIVE, registry_only=True)
CUT = msgspec.structs.replace(NATIVE, controller_ports=(17070,))


@pytest.mark.parametrize(
    ("found", "before", "want"),
    [
        pytest.param(CUTTING, None, CUT, id="where it is needed"),
        pytest.param(ALIVE, CUT, NATIVE, id="not where it is not"),
        pytest.param(
            dataclasses.replace(CUTTING, excluded_outbound_ports=(17070,)),
            None,
            msgspec.structs.replace(NATIVE, mesh_ports=(17070,)),
            id="not where the mesh does it",
        ),
        pytest.param(AWAY, CUT, CUT, id="kept while istiod is away"),
        pytest.param(None, CUT, CUT, id="kept while its webhook is away"),
    ],
)
def test_charms_reach_their_controller(found, before, want):
    seen = settings.Seen.of(scope(found), before)
    assert seen == want
    wanted = settings.make(scope(found), seen, lifecycle_in_model=True)
    rules = wanted.document()["excluded-outbound-ports"]
    own = {"pods": "app.kubernetes.io/name", "ports": (17070,)}
    assert rules == ((own,) if want is CUT else ())


@pytest.mark.parametrize("option", [True, False])
@pytest.mark.parametrize("found", [ALIVE, AWAY, None], ids=["alive", "away", "gone"])
@pytest.mark.parametrize("held", [True, False])
def test_pods_ask_for_the_hold_unless_the_mesh_holds_them_anyway(found, option, held):
    before = msgspec.structs.replace(NATIVE, held=held)
    if found is not None:
        found = dataclasses.replace(found, hold_by_default=held)
    where = scope(found)
    where = dataclasses.replace(where, config=config.Config(hold_application=option))
    seen = settings.Seen.of(where, before)
    assert settings.Seen.read({"metadata": {"annotations": {names.SEEN: seen.text()}}}) == seen
    wanted = settings.make(where, seen, lifecycle_in_model=True)
    document = wanted.document()
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


@pytest.mark.parametrize(
    ("found", "addresses", "want"),
    [
        pytest.param(CAPTURING, IN_CLUSTER, (17070, 53), id="a name nobody answers"),
        pytest.param(CAPTURING, f"{IN_CLUSTER} 10.1.2.3:17070", (17070,), id="an address too"),
        pytest.param(
            dataclasses.replace(CAPTURING, native_proxy=True), IN_CLUSTER, (), id="native"
        ),
        pytest.param(dataclasses.replace(CAPTURING, cni=False), IN_CLUSTER, (), id="no plugin"),
        pytest.param(
            dataclasses.replace(CAPTURING, captures_outbound=False),
            IN_CLUSTER,
            (53,),
            id="only names are captured",
        ),
        pytest.param(
            dataclasses.replace(CUTTING, captures_outbound=False), "", (), id="nothing captured"
        ),
    ],
)
def test_charms_find_a_controller_that_has_only_a_name(found, addresses, want):
    where = dataclasses.replace(scope(found), controller=situation.Controller.read(addresses))
    assert settings.Seen.of(where, None).controller_ports == want


def test_ports_that_the_mesh_excludes_stay_so_beside_others():
    found = dataclasses.replace(CUTTING, excluded_outbound_ports=(3306, 5432))
    seen = settings.Seen.of(scope(found), None)
    where = scope(found)
    options = config.Config(excluded_outbound_ports="5432")
    where = dataclasses.replace(where, config=options)
    wanted = settings.make(where, seen, lifecycle_in_model=True)
    assert [rule["ports"] for rule in wanted.document()["excluded-outbound-ports"]] == [
        (5432, 3306),
        (17070, 3306, 5432),
    ]
    kept = settings.Seen.of(scope(None), seen)
    assert kept.mesh_ports == (3306, 5432)


def test_ports_that_the_mesh_excludes_are_nobodys_rule():
    found = dataclasses.replace(ALIVE, excluded_outbound_ports=(3306,))
    seen = settings.Seen.of(scope(found), None)
    wanted = settings.make(scope(found), seen, lifecycle_in_model=True)
    assert wanted.document()["excluded-outbound-ports"] == ()


@pytest.mark.parametrize("found", [ALIVE, AWAY, None])
def test_classic_sidecars_are_an_option_whatever_was_seen(found):
    assert settings.Seen.of(scope(found, "classic"), NATIVE).native is False


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
    options = config.Config(revision="canary", **CHOSEN)
    where = dataclasses.replace(scope(ALIVE), config=options)

    got = settings.make(where, settings.Seen(), lifecycle_in_model=True)

    assert {name: getattr(got, name) for name in CHOSEN} == {
        name: getattr(options, name) for name in CHOSEN
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
