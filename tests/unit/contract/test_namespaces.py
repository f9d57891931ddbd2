"""Which namespaces are served: one answer for each, and selectors that say the same."""

import itertools

import pytest

from integrator_contract import names, namespaces, selectors
from tests.unit.cases import cases

PROFILE = {names.PART_OF: names.PROFILE}
SERVED_KEY = "istio-integrator.charmhub.io/served"
ENABLED, DISABLED = {SERVED_KEY: "enabled"}, {SERVED_KEY: "disabled"}
THEIRS = {names.SERVED_BY: "other.a"}
SERVED = namespaces.Served(
    model="kf", mesh_namespace="istio-system", owner=names.name_owner("kf", "a")
)


@cases(
    ("name", "labels", "want"),
    model=("kf", {}, "model"),
    model_whoever_claims_it=("kf", THEIRS, "model"),
    model_switched_off=("kf", DISABLED, None),
    profile=("kf-user", PROFILE, "profiles"),
    profile_switched_off=("kf-user", {**PROFILE, **DISABLED}, None),
    ours=("kf-user", {**PROFILE, names.SERVED_BY: "kf.a"}, "profiles"),
    another_s=("kf-user", {**PROFILE, **THEIRS}, None),
    labelled=("kf-user", ENABLED, "labelled"),
    labelled_profile=("kf-user", {**PROFILE, **ENABLED}, "labelled"),
    labelled_another_s=("kf-user", {**ENABLED, **THEIRS}, None),
    istiod_s=("istio-system", ENABLED, None),
    kube_system=("kube-system", ENABLED, None),
    kube_system_as_a_profile=("kube-system", PROFILE, None),
    served_by_another_value=("kf-user", {names.SERVED: "odd"}, None),
    another_part=("kf-user", {names.PART_OF: "kubeflow"}, None),
    controller_s=("other", {**ENABLED, names.CONTROLLER_MODEL: "x"}, None),
    any_other=("other", {}, None),
)
def test_a_namespace_is_served(name, labels, want):
    assert SERVED.find_kind(name, labels) == want


def test_only_namespaces_of_users_are_tenants():
    every = ("kf", "kf-user", "kube-system", "istio-system")
    assert [name for name in every if SERVED.is_tenant(name, PROFILE)] == ["kf-user"]
    assert not SERVED.is_tenant("other", {})
    assert SERVED.is_tenant("other", {**ENABLED, **THEIRS})
    assert not SERVED.is_tenant("other", DISABLED)


def test_a_profile_is_served_as_such_where_labelled_namespaces_are_not():
    served = namespaces.Served(model="m", owner="m.a", kinds=frozenset(["profiles"]))

    assert served.find_kind("kf-user", {**PROFILE, **ENABLED}) == "profiles"
    assert [served.find_kind("kf-user", ENABLED), served.find_kind("m", PROFILE)] == [None, None]
    theirs = {**PROFILE, **THEIRS}
    assert served.find_kind("kf-user", theirs) is None
    assert served.find_allowed_kind("kf-user", theirs) == "profiles"


LABELS = {
    names.PART_OF: (None, names.PROFILE, "other"),
    names.SERVED: (None, "enabled", "disabled", "odd"),
    names.CONTROLLER_MODEL: (None, "x"),
    names.SERVED_BY: (None, "m.a", "n.a"),
}


@pytest.mark.parametrize("mesh_namespace", ["", "istio"])
@pytest.mark.parametrize("size", range(4))
def test_selectors_select_what_is_served_each_by_one_of_them(size, mesh_namespace):
    every = itertools.product(("m", "istio", "kube-system", "x"), *LABELS.values())
    choices = itertools.combinations(namespaces.KINDS, size)
    for (name, *values), kinds in itertools.product(every, map(frozenset, choices)):
        labels = {key: value for key, value in zip(LABELS, values, strict=True) if value}
        served = namespaces.Served(
            model="m", mesh_namespace=mesh_namespace, owner="m.a", kinds=kinds
        )
        marks = {**labels, "kubernetes.io/metadata.name": name}
        selected = [key for key, each in served.as_selectors() if selectors.matches(each, marks)]

        kind = "model" if name == "m" else served.find_kind(name, labels)
        suffix = "-ours" if name != "m" and names.SERVED_BY in labels else ""
        assert selected == ([f"{kind}{suffix}"] if kind else []), (name, labels, kinds)


def test_kinds_are_read_by_their_names():
    assert namespaces.parse_kinds(["labelled", "model"]) == {"model", "labelled"}
    with pytest.raises(ValueError, match=r"^'team' is none of model, profiles, labelled$"):
        namespaces.parse_kinds(["model", "team"])
