"""How the model's namespace comes into ambient mode and out of it, and which pods stay outside."""

import json

import ops
import pytest

from integrator_contract import names
from istio_integrator.kube import errors, fences
from tests import shown
from tests.unit.charm.ambient_objects import install_ambient
from tests.unit.charm.membership import test_model_namespace as sidecars
from tests.unit.charm.membership.test_model_namespace import (
    DEAD,
    DEFAULT,
    ENABLED,
    blocked,
    mesh_labels,
    place,
    reconciled,
    record,
)

AMBIENT = {"istio.io/dataplane-mode": "ambient"}
NONE = {"istio.io/dataplane-mode": "none"}
MODELOPERATOR = {"operator.juju.is/name": "modeloperator"}


@pytest.fixture
def ambient(fake):
    """A cluster whose Istio has what ambient mode takes."""
    install_ambient(fake)
    return fake


def add_pod(fake, name, **labels):
    metadata = {"name": name, "namespace": "kubeflow", "labels": labels}
    return fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}})


def pod_labels(fake, name):
    return fake.find("Pod", name, "kubeflow")["metadata"]["labels"]


def plane(made):
    return made._decision.data_plane


def test_only_the_option_brings_a_model_into_ambient_mode(ambient):
    assert plane(reconciled(ambient, DEFAULT)) == "sidecar"
    made = reconciled(ambient, DEFAULT, mesh_mode="ambient")
    assert made.joined
    assert plane(made) == "ambient"
    assert mesh_labels(ambient) == AMBIENT
    assert record(ambient) == {
        "owner": "kubeflow.istio-integrator",
        "set": AMBIENT,
        "before": {"istio.io/dataplane-mode": None},
    }


@pytest.mark.parametrize("steps", [("ambient",), ("sidecar", "ambient", "auto", "sidecar")])
def test_model_is_given_back_as_it_was_wherever_it_has_been(ambient, steps):
    metadata = ambient.find("Namespace", "kubeflow")["metadata"]
    before = json.dumps(metadata["labels"])
    for mode in steps:
        made = reconciled(ambient, DEFAULT, mesh_mode=mode)
        assert made.joined
    made.remove()
    after = ambient.find("Namespace", "kubeflow")["metadata"]
    assert json.dumps(after["labels"]) == before
    assert not after["annotations"]


def test_auto_keeps_a_model_in_ambient_mode_and_sidecar_takes_it_back(ambient):
    reconciled(ambient, DEFAULT, mesh_mode="ambient")
    assert plane(reconciled(ambient, DEFAULT)) == "ambient"
    assert plane(reconciled(ambient, DEFAULT, mesh_mode="sidecar")) == "sidecar"
    assert mesh_labels(ambient) == ENABLED


def test_model_that_somebody_put_into_ambient_mode_is_served_there(ambient):
    ambient.labels("kubeflow").update(AMBIENT)
    made = reconciled(ambient, DEFAULT)
    assert made.joined
    assert plane(made) == "ambient"
    assert made.said == []
    made.remove()
    assert mesh_labels(ambient) == AMBIENT


def test_label_by_hand_takes_a_model_of_ours_into_ambient_mode(ambient):
    reconciled(ambient, DEFAULT)
    ambient.labels("kubeflow").update(AMBIENT)
    made = reconciled(ambient, DEFAULT)
    assert plane(made) == "ambient"
    assert mesh_labels(ambient) == AMBIENT
    made.remove()
    assert mesh_labels(ambient) == AMBIENT


def test_model_that_somebody_put_into_ambient_mode_takes_no_sidecars(ambient):
    ambient.labels("kubeflow").update(AMBIENT)
    made = reconciled(ambient, DEFAULT, mesh_mode="sidecar")
    assert "is in ambient mode" in blocked(made)
    assert not made.joined
    assert ambient.writes == []


def test_injection_that_is_switched_off_is_no_matter_in_ambient_mode(ambient):
    ambient.labels("kubeflow")["istio-injection"] = "disabled"
    made = reconciled(ambient, DEFAULT, mesh_mode="ambient")
    assert plane(made) == "ambient"
    assert mesh_labels(ambient) == {**AMBIENT, "istio-injection": "disabled"}
    made.remove()
    assert mesh_labels(ambient) == {"istio-injection": "disabled"}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        pytest.param(
            ENABLED,
            "namespace kubeflow has istio-injection=enabled; "
            "run: kubectl label ns kubeflow istio-injection-; "
            "this charm would set istio.io/dataplane-mode=ambient",
            id="sidecars",
        ),
        pytest.param({"istio.io/rev": "x"}, "kubectl label ns kubeflow istio.io/rev-", id="rev"),
        pytest.param(NONE, "kubectl label ns kubeflow istio.io/dataplane-mode-", id="out"),
    ],
)
def test_what_somebody_else_says_keeps_a_model_from_ambient_mode(ambient, labels, words):
    ambient.labels("kubeflow").update(labels)
    made = reconciled(ambient, DEFAULT, mesh_mode="ambient")
    assert words in blocked(made)
    assert plane(made) == "sidecar"
    assert mesh_labels(ambient) == labels


def test_model_waits_for_istiod_before_ambient_mode(ambient):
    reconciled(ambient, DEFAULT)
    made = reconciled(ambient, DEAD, mesh_mode="ambient")
    assert shown.statuses(made.said) == [
        ops.WaitingStatus("not in the mesh until istiod has injected a dry-run pod")
    ]
    assert plane(made) == "sidecar"
    assert mesh_labels(ambient) == ENABLED


@pytest.mark.parametrize("joined", [True, False], ids=["member", "stranger"])
def test_model_stays_as_it_is_where_the_cluster_has_no_ztunnel(fake, joined):
    fake.labels("kubeflow").update(ENABLED if joined else {})
    made = reconciled(fake, DEFAULT, mesh_mode="ambient")
    assert blocked(made) == (
        "namespace kubeflow is to be in ambient mode (mesh-mode=ambient), and the cluster has no "
        "ztunnel: install Istio with profile=ambient, or set mesh-mode=sidecar"
    )
    assert plane(made) == "sidecar"
    assert mesh_labels(fake) == (ENABLED if joined else {})


def test_model_stays_as_it_is_where_nobody_may_look_for_ztunnel(ambient):
    reconciled(ambient, DEFAULT)
    ambient.forbidden.add(("list", "daemonsets"))
    made = reconciled(ambient, DEFAULT, mesh_mode="ambient")
    assert "run: juju trust istio-integrator --scope=cluster" in blocked(made)
    assert plane(made) == "sidecar"
    assert mesh_labels(ambient) == ENABLED


def test_ztunnel_that_went_away_is_said_and_the_model_stays(ambient):
    reconciled(ambient, DEFAULT, mesh_mode="ambient")
    ambient.delete("DaemonSet", "ztunnel", "istio-system")
    made = reconciled(ambient, DEFAULT, mesh_mode="ambient")
    assert "the cluster has no ztunnel" in blocked(made)
    assert made.joined
    assert plane(made) == "ambient"
    assert mesh_labels(ambient) == AMBIENT


def test_running_pods_that_stay_outside_are_labelled_before_the_namespace(ambient):
    add_pod(ambient, "modeloperator-x", **MODELOPERATOR)
    add_pod(ambient, "ours-0", **{"app.kubernetes.io/name": "istio-integrator"})
    add_pod(ambient, "minio-0", app="minio")
    add_pod(ambient, "kfp-0", app="kfp")
    made = reconciled(ambient, DEFAULT, mesh_mode="ambient", excluded_pods="app=minio")
    patched = [each.split()[-1] for each in ambient.writes if each.startswith("patch")]
    assert sorted(patched[:3]) == ["minio-0", "modeloperator-x", "ours-0"]
    assert patched[3:] == ["kubeflow"]
    assert pod_labels(ambient, "minio-0") == {"app": "minio", **NONE}
    assert pod_labels(ambient, "kfp-0") == {"app": "kfp"}
    ambient.writes.clear()
    reconciled(ambient, DEFAULT, mesh_mode="ambient", excluded_pods="app=minio")
    assert ambient.writes == []
    made.remove()
    assert pod_labels(ambient, "minio-0") == {"app": "minio"}
    assert pod_labels(ambient, "modeloperator-x") == MODELOPERATOR
    notes = [each["metadata"].get("annotations") for each in ambient.objects.values()]
    assert not any(note and names.MEMBERSHIP in note for note in notes)


def test_pod_that_is_not_excluded_any_more_comes_in(ambient):
    add_pod(ambient, "minio-0", app="minio")
    reconciled(ambient, DEFAULT, mesh_mode="ambient", excluded_pods="app=minio")
    reconciled(ambient, DEFAULT, mesh_mode="ambient")
    assert pod_labels(ambient, "minio-0") == {"app": "minio"}


def test_pods_are_given_back_when_the_model_returns_to_sidecars(ambient):
    add_pod(ambient, "modeloperator-x", **MODELOPERATOR)
    add_pod(ambient, "theirs", **NONE)
    reconciled(ambient, DEFAULT, mesh_mode="ambient")
    reconciled(ambient, DEFAULT, mesh_mode="sidecar")
    assert pod_labels(ambient, "modeloperator-x") == MODELOPERATOR
    assert pod_labels(ambient, "theirs") == NONE


BACK = pytest.mark.parametrize(
    ("options", "then"),
    [
        pytest.param(
            {"mesh_mode": "sidecar"},
            {"set": ENABLED, "before": {"istio-injection": None}},
            id="sidecars",
        ),
        pytest.param(
            {"included_pods": "a=b"},
            {"set": {}, "before": {}},
            id="selected",
        ),
        pytest.param({"mesh_mode": "none"}, {"set": {}, "before": {}}, id="none"),
    ],
)


@BACK
def test_nothing_is_remembered_of_ambient_mode_once_it_is_undone(ambient, options, then):
    reconciled(ambient, DEFAULT, mesh_mode="ambient")
    reconciled(ambient, DEFAULT, **options)
    assert record(ambient) == {"owner": "kubeflow.istio-integrator", **then}


@BACK
def test_pods_that_could_not_be_given_back_are_given_back_later(ambient, options, then):
    add_pod(ambient, "modeloperator-x", **MODELOPERATOR)
    reconciled(ambient, DEFAULT, mesh_mode="ambient")
    ambient.forbidden.add(("list", "pods"))
    with pytest.raises(errors.ForbiddenError):
        reconciled(ambient, DEFAULT, **options)
    ambient.forbidden.clear()
    reconciled(ambient, DEFAULT, **options)
    assert pod_labels(ambient, "modeloperator-x") == MODELOPERATOR
    assert record(ambient) == {"owner": "kubeflow.istio-integrator", **then}


def test_pod_that_says_itself_where_it_is_stays_there(ambient):
    add_pod(ambient, "modeloperator-x", **MODELOPERATOR, **AMBIENT)
    reconciled(ambient, DEFAULT, mesh_mode="ambient")
    assert pod_labels(ambient, "modeloperator-x") == {**MODELOPERATOR, **AMBIENT}


def test_pod_that_can_not_be_labelled_keeps_no_other_from_it(ambient):
    add_pod(ambient, "modeloperator-x", **MODELOPERATOR)
    add_pod(ambient, "ours-0", **{"app.kubernetes.io/name": "istio-integrator"})
    ambient.broken["patch", "pods", "modeloperator-x"] = 422
    fences.forget()
    reconciled(ambient, DEFAULT, mesh_mode="ambient")
    assert fences.noted() == {"Pod kubeflow/modeloperator-x": "422: the server says no"}
    assert pod_labels(ambient, "ours-0").items() >= NONE.items()
    assert mesh_labels(ambient) == AMBIENT


def test_missing_right_to_label_pods_is_no_trouble_of_one_pod(ambient):
    add_pod(ambient, "modeloperator-x", **MODELOPERATOR)
    ambient.forbidden.add(("patch", "pods"))
    with pytest.raises(errors.ForbiddenError):
        reconciled(ambient, DEFAULT, mesh_mode="ambient")


def test_sidecar_model_costs_no_look_at_daemons(ambient):
    place(ambient, DEFAULT).reconcile()
    assert ("list", "daemonsets") not in ambient.asked


def test_selected_pods_get_sidecars_where_only_our_label_said_otherwise(ambient):
    reconciled(ambient, DEFAULT, mesh_mode="ambient")
    for _ in range(2):
        made = reconciled(ambient, DEFAULT, included_pods="a=b")
        assert made.joined
        assert plane(made) == "sidecar"
    assert mesh_labels(ambient) == {}


def test_selected_pods_join_ambient_mode_without_the_namespace(ambient):
    made = sidecars.reconciled(ambient, DEFAULT, mesh_mode="ambient", included_pods="a=b")
    assert made.joined
    assert plane(made) == "ambient"
    assert mesh_labels(ambient) == {}
