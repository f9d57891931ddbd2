"""What new pods get, kept while the mesh can't be asked."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import component
import config
import mesh
import wishes

ALIVE = mesh.Mesh(
    namespace="istio-system", revision="x", is_default=False, probed=True, native_sidecars=True
)
AWAY = dataclasses.replace(ALIVE, probed=False, native_sidecars=False)
NATIVE = wishes.Seen(
    native=True, inject_label=("istio.io/rev", "x"), istiod_namespace="istio-system"
)
CLASSIC = dataclasses.replace(NATIVE, native=False)


def scope(found, mode="auto"):
    return component.Scope(
        cluster=None,
        manifests=None,
        config=config.Config(sidecar_mode=mode),
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
        pytest.param(None, NATIVE, NATIVE, id="its webhook is away too"),
        pytest.param(None, None, wishes.Seen(), id="there was never an istio"),
    ],
)
def test_what_was_seen_last_is_kept_while_the_mesh_says_nothing(found, before, want):
    assert wishes.Seen.of(scope(found), before) == want


@pytest.mark.parametrize("found", [ALIVE, AWAY, None])
def test_classic_sidecars_are_an_option_whatever_was_seen(found):
    assert wishes.Seen.of(scope(found, "classic"), NATIVE).native is False


@given(
    seen=st.builds(
        wishes.Seen,
        native=st.booleans(),
        inject_label=st.tuples(st.text(), st.text()),
        istiod_namespace=st.text(),
    )
)
def test_what_is_written_is_read_back(seen):
    annotations = {wishes.SEEN_ANNOTATION: seen.text()}
    assert wishes.Seen.read({"metadata": {"annotations": annotations}}) == seen


@pytest.mark.parametrize("text", ["", "{", "[]", '{"native": 1}', "null", '{"native": true}'])
def test_what_cannot_be_understood_was_not_seen(text):
    annotations = {wishes.SEEN_ANNOTATION: text}
    assert wishes.Seen.read({"metadata": {"annotations": annotations}}) is None
    assert wishes.Seen.read(None) is None
