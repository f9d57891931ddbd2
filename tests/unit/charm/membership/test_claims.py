"""Which of several integrators serves a namespace."""

import dataclasses

import pytest

from integrator_contract import namespaces
from istio_integrator.config import config
from istio_integrator.istio import installation
from istio_integrator.kube import errors, fences, manifests
from istio_integrator.lifecycle import removal_notice
from istio_integrator.membership import claims
from istio_integrator.messages import Message
from istio_integrator.situation import situation
from tests import asked, shown

OWNER = "kubeflow.istio-integrator"
SERVED_BY = "istio-integrator.charmhub.io/served-by"
SERVED = "istio-integrator.charmhub.io/served"
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
LABELLED = {SERVED: "enabled"}
UNFINISHED = {"restartPolicy": "Never", "containers": [{"name": "istio-proxy"}]}
MESH = installation.Mesh(namespace="istio-system", revision="default", is_default=True)


def scope_of(fake, *, model="kubeflow", leader=True, **options) -> situation.Situation:
    api = fake.api()
    return situation.Situation(
        cluster=api,
        manifests=manifests.Manifests(api, model=model, application="istio-integrator"),
        config=config.Config(**options),
        mesh=MESH,
        model=model,
        application="istio-integrator",
        unit="istio-integrator/0",
        leader=leader,
    )


def shared(fake, **options) -> list[Message]:
    return claims.Claims(scope_of(fake, **options)).reconcile()


def holder(fake, name) -> str | None:
    return fake.labels(name).get(SERVED_BY)


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        pytest.param("alice", PROFILE, True, id="profile"),
        pytest.param("batch", LABELLED, True, id="labelled"),
        pytest.param("alice", {**PROFILE, SERVED: "disabled"}, False, id="switched off"),
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
    assert [said.message for said in shown.statuses(other)] == [
        f"1 namespace is managed by {OWNER}"
    ]
    claims.Claims(scope_of(fake)).remove()
    assert (holder(fake, "alice"), holder(fake, "bob")) == (None, "second.istio-integrator")
    assert shared(fake, model="second") == []
    assert holder(fake, "alice") == "second.istio-integrator"


def test_claim_of_a_model_that_is_gone_is_taken_over(fake):
    fake.namespace("alice", **PROFILE, **{SERVED_BY: "gone.istio-integrator"})
    shared(fake)
    assert holder(fake, "alice") == OWNER


def test_what_is_not_served_any_more_is_given_back(fake):
    fake.namespace("alice", **PROFILE)
    shared(fake)
    shared(fake, served_namespaces=("model",))
    assert holder(fake, "alice") is None


def test_follower_claims_nothing_and_the_last_unit_gives_back_all(fake):
    fake.namespace("alice", **PROFILE)
    shared(fake, leader=False)
    assert holder(fake, "alice") is None
    shared(fake)
    claims.Claims(scope_of(fake, leader=False)).remove()
    assert holder(fake, "alice") is None


def test_namespace_that_is_going_is_left_alone(fake):
    fake.namespace("alice", **PROFILE)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    fake.namespace("bob", **PROFILE, **{SERVED_BY: OWNER})["metadata"]["deletionTimestamp"] = "x"
    fake.writes.clear()
    shared(fake)
    claims.Claims(scope_of(fake)).remove()
    assert fake.writes == []


def test_without_the_right_to_claim_namespaces_are_served_all_the_same(fake):
    fake.namespace("alice", **PROFILE)
    fake.forbidden.add(("patch", "namespaces"))
    fences.forget()
    assert shared(fake) == []
    assert fences.noted() == {}


def test_namespace_that_can_not_be_claimed_is_noted_and_keeps_no_other_from_it(fake):
    fake.namespace("alice", **PROFILE)
    fake.namespace("bob", **PROFILE)
    fake.broken["patch", "namespaces", "alice"] = 422
    fences.forget()
    shared(fake)
    assert fences.noted() == {"Namespace alice": "422: the server says no"}
    assert holder(fake, "bob") == OWNER


def test_claim_that_another_made_in_between_stays(fake):
    fake.namespace("second")
    fake.application(model="second")
    namespace = fake.namespace("alice", **PROFILE)
    metadata = namespace["metadata"]

    def claim():
        other = {**metadata["labels"], SERVED_BY: "second.istio-integrator"}
        fake.add({**namespace, "metadata": {**metadata, "labels": other}})

    fake.interference = [claim]
    with pytest.raises(errors.ConflictError):
        shared(fake)
    assert holder(fake, "alice") == "second.istio-integrator"
    assert [status.message for status in shown.statuses(shared(fake))] == [
        "1 namespace is managed by second.istio-integrator"
    ]


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


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        pytest.param("alice", PROFILE, True, id="profile"),
        pytest.param("alice", {**PROFILE, SERVED: "disabled"}, True, id="profile not served"),
        pytest.param("batch", LABELLED, True, id="labelled"),
        pytest.param("edge", {SERVED: "disabled"}, False, id="only switched off"),
        pytest.param("edge", {}, False, id="any other"),
        pytest.param("istio-system", LABELLED, False, id="never istiod's"),
        pytest.param("kube-system", LABELLED, False, id="never the cluster's"),
        pytest.param("kubeflow", LABELLED, False, id="never the model"),
    ],
)
def test_tenants_are_who_has_a_namespace_served_or_not(name, labels, want):
    served = namespaces.Served(model="kubeflow", mesh_namespace="istio-system")
    assert served.is_tenants(name, labels) is want


@pytest.mark.parametrize(
    ("name", "labels", "options", "want"),
    [
        pytest.param("kubeflow", {}, {}, True, id="model"),
        pytest.param("kubeflow", {SERVED: "disabled"}, {}, False, id="model switched off"),
        pytest.param("kubeflow", {}, {"served_namespaces": "profiles"}, False, id="not model"),
        pytest.param("kubeflow", LABELLED, {"served_namespaces": "labelled"}, False, id="only"),
        pytest.param("alice", PROFILE, {}, True, id="profile"),
        pytest.param("alice", {**PROFILE, SERVED: "disabled"}, {}, False, id="switched off"),
        pytest.param("alice", {**PROFILE, **LABELLED}, {}, True, id="switched on"),
        pytest.param("alice", PROFILE, {"served_namespaces": "model"}, False, id="no profiles"),
        pytest.param("alice", {**PROFILE, SERVED_BY: "o.app"}, {}, False, id="another serves it"),
        pytest.param("alice", {**PROFILE, SERVED_BY: OWNER}, {}, True, id="claimed"),
        pytest.param("istio-system", LABELLED, {}, False, id="istiod's"),
        pytest.param("c", {**LABELLED, "controller.juju.is/id": "x"}, {}, False, id="controller"),
    ],
)
def test_pods_are_told_of_the_removal_where_proxies_were_stopped(
    fake, name, labels, options, want
):
    fake.namespace(name, **labels)
    made = dataclasses.replace(scope_of(fake, **options), mesh=MESH)
    metadata = {"name": "job", "namespace": name, "uid": "x" * 8}
    fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": UNFINISHED})

    removal_notice.leave(made, Rules())

    assert bool(events(fake)) is want


def test_finished_pods_are_looked_for_where_proxies_are_stopped(fake):
    fake.namespace("alice", **PROFILE)
    fake.namespace("bob", **PROFILE, **{SERVED: "disabled"})
    for name in ("alice", "bob"):
        metadata = {"name": "job", "namespace": name}
        fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": UNFINISHED})
    looked_at = removal_notice.candidates(fake.api(), scope_of(fake).served_namespaces)

    assert [pod["metadata"]["namespace"] for pod in looked_at] == ["alice"]


def test_model_is_served_where_namespaces_may_not_be_listed(fake):
    fake.namespace("alice", **PROFILE)
    fake.forbidden.add(("list", "namespaces"))
    assert scope_of(fake).served_namespaces == ["kubeflow"]


class Rules:
    """A workload that says of every pod that it will hang."""

    def explain(self, pods):
        return [asked.proxy(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods]


def events(fake):
    """Return the pods that have been told."""
    return [o["involvedObject"]["name"] for o in fake.objects.values() if o["kind"] == "Event"]
