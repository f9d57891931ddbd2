"""Which of several integrators serves a namespace."""

import pytest

import claims
import component
import config
import manifests
import mesh

OWNER = "kubeflow.istio-integrator"
SERVED_BY = "istio-integrator.charmhub.io/served-by"
LIFECYCLE = "istio-integrator.charmhub.io/lifecycle"
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
LABELLED = {LIFECYCLE: "enabled"}
MESH = mesh.Mesh(namespace="istio-system", revision="default", is_default=True)


def shared(fake, *, model="kubeflow", leader=True, **options) -> claims.Claims:
    api = fake.api()
    scope = component.Scope(
        cluster=api,
        manifests=manifests.Manifests(api, model=model, application="istio-integrator"),
        config=config.Config(**options),
        mesh=MESH,
        model=model,
        application="istio-integrator",
        unit="istio-integrator/0",
        leader=leader,
    )
    made = claims.Claims(scope)
    made.reconcile()
    return made


def holder(fake, name) -> str | None:
    return fake.labels(name).get(SERVED_BY)


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        pytest.param("alice", PROFILE, True, id="profile"),
        pytest.param("batch", LABELLED, True, id="labelled"),
        pytest.param("alice", {**PROFILE, LIFECYCLE: "disabled"}, False, id="switched off"),
        pytest.param("other", {}, False, id="any other"),
        pytest.param("kube-system", LABELLED, False, id="kube-system"),
        pytest.param("istio-system", LABELLED, False, id="istiod's"),
        pytest.param("kubeflow", LABELLED, False, id="the model's own"),
        pytest.param("c", {**LABELLED, "controller.juju.is/id": "x"}, False, id="a controller's"),
    ],
)
def test_what_is_served_is_claimed(fake, name, labels, want):
    fake.namespace(name, **labels)
    shared(fake)
    assert holder(fake, name) == (OWNER if want else None)


def test_first_one_keeps_what_it_serves_and_the_second_says_so(fake):
    fake.namespace("second")
    fake.application()
    fake.application(model="second")
    fake.namespace("alice", **PROFILE)
    shared(fake)
    fake.namespace("bob", **PROFILE)
    other = shared(fake, model="second")
    assert (holder(fake, "alice"), holder(fake, "bob")) == (OWNER, "second.istio-integrator")
    assert [status.message for status in other.statuses()] == [f"1 namespace left to {OWNER}"]
    first = shared(fake)
    first.remove()
    assert (holder(fake, "alice"), holder(fake, "bob")) == (None, "second.istio-integrator")
    assert list(shared(fake, model="second").statuses()) == []
    assert holder(fake, "alice") == "second.istio-integrator"


def test_claim_of_a_model_that_is_gone_is_taken_over(fake):
    fake.namespace("alice", **PROFILE, **{SERVED_BY: "gone.istio-integrator"})
    shared(fake)
    assert holder(fake, "alice") == OWNER


def test_what_is_not_served_any_more_is_given_back(fake):
    fake.namespace("alice", **PROFILE)
    shared(fake)
    shared(fake, lifecycle_namespaces=("model",))
    assert holder(fake, "alice") is None


def test_follower_claims_nothing_and_the_last_unit_gives_back_all(fake):
    fake.namespace("alice", **PROFILE)
    shared(fake, leader=False)
    assert holder(fake, "alice") is None
    shared(fake)
    shared(fake, leader=False).remove()
    assert holder(fake, "alice") is None


def test_namespace_that_is_going_is_left_alone(fake):
    fake.namespace("alice", **PROFILE)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    fake.namespace("bob", **PROFILE, **{SERVED_BY: OWNER})["metadata"]["deletionTimestamp"] = "x"
    fake.writes.clear()
    shared(fake).remove()
    assert fake.writes == []


def test_without_the_right_to_claim_namespaces_are_served_all_the_same(fake):
    fake.namespace("alice", **PROFILE)
    fake.forbidden.add(("patch", "namespaces"))
    assert list(shared(fake).statuses()) == []


def test_second_reconcile_writes_nothing(fake):
    fake.namespace("alice", **PROFILE)
    shared(fake)
    fake.writes.clear()
    shared(fake)
    assert fake.writes == []


def test_claim_of_an_application_that_was_removed_by_force_is_taken_over(fake):
    fake.namespace("second")
    fake.application("other", "second")
    fake.namespace("alice", **PROFILE, **{SERVED_BY: "second.istio-integrator"})
    shared(fake)
    assert holder(fake, "alice") == OWNER
