"""Who should be in a model in ambient mode, who is, and what its pods get at their creation."""

import hypothesis.strategies as st
from hypothesis import given
from sidecar_lifecycle.decide import creation, eligible, mutate
from sidecar_lifecycle.decide.convergence import facts, trial
from sidecar_lifecycle.model import types

from integrator_contract import names, pods
from tests.unit.cases import cases

AMBIENT = {"istio.io/dataplane-mode": "ambient"}
NONE = {"istio.io/dataplane-mode": "none"}
SIDECAR = {names.SIDECAR_STATUS: "{}"}


def pod(labels=None, annotations=None, *, host_network=False):
    proxies = [names.PROXY] if annotations == SIDECAR else []
    containers = [types.Container(name=each) for each in ("main", *proxies)]
    return types.Pod(
        metadata=types.ObjectMeta(
            name="p", namespace="kubeflow", labels=labels or {}, annotations=annotations or {}
        ),
        spec=types.PodSpec(hostNetwork=host_network, containers=containers),
    )


def scope(namespace=AMBIENT, **settings):
    options = {"data_plane": "ambient", **settings}
    return eligible.Scope(
        namespace_labels=namespace, model="kubeflow", application="istio-integrator", **options
    )


@cases(
    ("labels", "annotations", "want", "in_mesh"),
    plain=({}, {}, "Ambient", True),
    leftover=({}, SIDECAR, "SidecarLeft", False),
    says_no_to_sidecars=({names.INJECT: "false"}, {}, "Ambient", True),
    asks_for_one=({names.INJECT: "true"}, SIDECAR, "PodInjection", False),
    by_revision=({names.REVISION: "x"}, SIDECAR, "PodInjection", False),
    out=(NONE, {}, "OutOfAmbient", False),
    out_with_a_sidecar=(NONE, SIDECAR, "OutOfAmbient", False),
    excluded=({"app": "out"}, SIDECAR, "Excluded", False),
    juju=({"operator.juju.is/name": "modeloperator"}, {}, "ModelOperator", True),
)
def test_what_a_pod_of_an_ambient_model_is(labels, annotations, want, in_mesh):
    subject = pod(labels, annotations)
    decided = eligible.wanted(subject, scope(excluded_pods="app=out"))

    assert decided.reason == want
    assert decided.wanted is (want in ("Ambient", "SidecarLeft"))
    assert eligible.in_mesh(subject, scope()) is in_mesh


def test_a_pod_on_the_host_network_is_never_wanted():
    assert eligible.wanted(pod(host_network=True), scope()).reason == "HostNetwork"


@cases(
    ("labels", "want", "in_mesh"),
    yet_to_come=({"app": "in"}, "Included", False),
    there=({"app": "in", **AMBIENT}, "Ambient", True),
    not_selected=({"app": "else"}, "NotIncluded", False),
    says_no=({"app": "in", **NONE}, "OutOfAmbient", False),
)
def test_selected_pods_are_in_ambient_mode_by_their_own_label(labels, want, in_mesh):
    around = scope({}, membership="selected", included_pods="app=in")

    assert eligible.wanted(pod(labels), around).reason == want
    assert eligible.in_mesh(pod(labels), around) is in_mesh


ANY = st.dictionaries(
    st.sampled_from([names.INJECT, names.REVISION, names.DATAPLANE_MODE, "app"]),
    st.sampled_from(["true", "false", "ambient", "none", "x"]),
)


@given(labels=ANY, namespace=ANY, annotations=st.sampled_from([{}, SIDECAR]))
def test_either_way_is_the_other_turned_round(labels, namespace, annotations):
    """What is replaced on the way there has a sidecar, and on the way back has none."""
    subject = pod(labels, annotations)
    there, back = scope(namespace), scope(namespace, data_plane="sidecar")
    for around, leaves_behind in ((there, True), (back, False)):
        wrong = eligible.wanted(subject, around).wanted and not eligible.in_mesh(subject, around)
        if wrong:
            assert bool(annotations) is leaves_behind


@given(labels=ANY, annotations=st.sampled_from([{}, SIDECAR]))
def test_who_asks_for_a_sidecar_is_never_replaced_for_having_one(labels, annotations):
    decided = eligible.wanted(pod(labels, annotations), scope())
    if labels.get(names.INJECT) == "true" or labels.get(names.DATAPLANE_MODE) == "none":
        assert not decided.wanted


def test_a_trial_of_ambient_mode_asks_for_no_sidecar():
    assert trial.generic(scope({}), types.Pod())["metadata"]["labels"] == AMBIENT


def test_another_data_plane_lifts_guards():
    assert facts.fingerprint(scope(), ()) != facts.fingerprint(scope(data_plane="sidecar"), ())


def created(labels=None, annotations=None, *, kind="model", **settings):
    sent = creation.Pod(
        metadata=creation.Metadata(labels=labels or {}, annotations=annotations or {}),
        spec=creation.Spec(containers=[types.Container(name="main")]),
    )
    options = {"model": "m", "application": "a", "data_plane": "ambient", **settings}
    return mutate.mutate(sent, pods.Settings(**options), kind)


def test_an_excluded_pod_is_labelled_out_of_ambient_mode():
    found = created({"tier": "db"}, excluded_pods="tier=db")
    key = "istio.io~1dataplane-mode"
    assert {"op": "add", "path": f"/metadata/labels/{key}", "value": "none"} in found.patch


def test_a_pod_of_a_profile_gets_its_hold_though_the_model_is_ambient():
    assert created(kind="profiles").applied == ("hold",)
    assert created().applied == ()
    assert [each.reason for each in created().skipped] == ["Ambient"]
