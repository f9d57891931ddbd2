"""Which namespaces the reconciler serves."""

import pytest
from sidecar_lifecycle import settings
from sidecar_lifecycle.kube import types
from sidecar_lifecycle.rules import scope

SERVED_BY = "istio-integrator.charmhub.io/served-by"
LIFECYCLE = "istio-integrator.charmhub.io/lifecycle"
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
OURS = settings.Settings(
    model="kubeflow", application="a", unit="a/0", mesh_namespace="istio-system"
).scope()


def namespace(name, **labels):
    return types.Namespace(metadata=types.ObjectMeta(name=name, labels=labels))


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        pytest.param("kubeflow", {}, "model", id="model"),
        pytest.param("kubeflow", {SERVED_BY: "other.a"}, "model", id="model, whoever claims it"),
        pytest.param("kubeflow", {LIFECYCLE: "disabled"}, None, id="model, switched off"),
        pytest.param("alice", PROFILE, "profiles", id="profile"),
        pytest.param("alice", {**PROFILE, SERVED_BY: "kubeflow.a"}, "profiles", id="ours"),
        pytest.param("alice", {**PROFILE, SERVED_BY: "other.a"}, None, id="another's"),
        pytest.param("alice", {LIFECYCLE: "enabled"}, "labelled", id="labelled"),
        pytest.param(
            "alice", {LIFECYCLE: "enabled", SERVED_BY: "other.a"}, None, id="labelled, another's"
        ),
        pytest.param("istio-system", {LIFECYCLE: "enabled"}, None, id="istiod's"),
        pytest.param("other", {}, None, id="any other"),
    ],
)
def test_a_namespace_is_served(name, labels, want):
    assert scope.served_as(namespace(name, **labels), OURS) == want
