"""Which namespaces are served: one answer for each, and selectors that say the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import names, namespaces, selectors

PROFILE = {names.PART_OF: names.PROFILE}
ENABLED, DISABLED = {names.SERVED: "enabled"}, {names.SERVED: "disabled"}
THEIRS = {names.SERVED_BY: "other.a"}
SERVED = namespaces.Served(
    model="kubeflow", mesh_namespace="istio-system", owner=names.owner("kubeflow", "a")
)


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        pytest.param("kubeflow", {}, "model", id="model"),
        pytest.param("kubeflow", THEIRS, "model", id="model, whoever claims it"),
        pytest.param("kubeflow", DISABLED, None, id="model, switched off"),
        pytest.param("alice", PROFILE, "profiles", id="profile"),
        pytest.param("alice", {**PROFILE, **DISABLED}, None, id="profile, switched off"),
        pytest.param("alice", {**PROFILE, names.SERVED_BY: "kubeflow.a"}, "profiles", id="ours"),
        pytest.param("alice", {**PROFILE, **THEIRS}, None, id="another's"),
        pytest.param("alice", ENABLED, "labelled", id="labelled"),
        pytest.param("alice", {**PROFILE, **ENABLED}, "labelled", id="labelled profile"),
        pytest.param("alice", {**ENABLED, **THEIRS}, None, id="labelled, another's"),
        pytest.param("istio-system", ENABLED, None, id="istiod's"),
        pytest.param("kube-system", ENABLED, None, id="kube-system"),
        pytest.param("kube-system", PROFILE, None, id="kube-system, as a profile"),
        pytest.param("other", {**ENABLED, names.CONTROLLER_MODEL: "x"}, None, id="controller's"),
        pytest.param("other", {}, None, id="any other"),
    ],
)
def test_a_namespace_is_served(name, labels, want):
    assert SERVED.kind_of(name, labels) == want


def test_a_profile_is_served_as_such_where_labelled_namespaces_are_not():
    served = namespaces.Served(model="m", kinds=frozenset(["profiles"]))

    assert served.kind_of("alice", {**PROFILE, **ENABLED}) == "profiles"


NAMES = st.sampled_from(["m", "istio", "kube-system", "x"])
LABELS = st.fixed_dictionaries(
    {},
    optional={
        names.PART_OF: st.sampled_from([names.PROFILE, "other"]),
        names.SERVED: st.sampled_from(["enabled", "disabled", "odd"]),
        names.CONTROLLER_MODEL: st.just("x"),
        names.SERVED_BY: st.sampled_from(["m.a", "n.a"]),
    },
)
KINDS = st.frozensets(st.sampled_from(namespaces.KINDS))


@given(NAMES, LABELS, KINDS, st.sampled_from(["", "istio"]))
def test_selectors_select_what_is_served_each_by_one_of_them(name, labels, kinds, mesh_namespace):
    served = namespaces.Served(model="m", mesh_namespace=mesh_namespace, owner="m.a", kinds=kinds)
    marks = {**labels, names.NAMESPACE_NAME: name}

    selected = [key for key, each in served.as_selectors() if selectors.matches(each, marks)]

    kind = served.kind_of(name, labels)
    if name == "m":
        assert selected == ["model"]
    elif kind is None:
        assert selected == []
    else:
        assert selected == [f"{kind}-ours" if names.SERVED_BY in labels else kind]


@given(NAMES, LABELS, KINDS)
def test_without_an_owner_selectors_know_nothing_of_other_integrators(name, labels, kinds):
    served = namespaces.Served(model="m", kinds=kinds)
    marks = {**labels, names.NAMESPACE_NAME: name}

    selected = [key for key, each in served.as_selectors() if selectors.matches(each, marks)]

    kind = "model" if name == "m" else served.allowed_kind(name, labels)
    assert selected == ([kind] if kind else [])


def test_kinds_are_read_by_their_names():
    assert namespaces.kinds(["labelled", "model"]) == {"model", "labelled"}
    with pytest.raises(ValueError, match="'team' is none of model, profiles, labelled"):
        namespaces.kinds(["model", "team"])
