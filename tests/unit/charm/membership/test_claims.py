"""Which of several integrators serves a namespace beside its model."""

import dataclasses

import pytest
from ops import testing

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import OWN_POD, state

OWNER, SECOND = "kf.mesh-2", "kf-2.mesh-2"
SERVED_BY = "istio-integrator.charmhub.io/served-by"
SERVED = "istio-integrator.charmhub.io/served"
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
LABELLED = {SERVED: "enabled"}


@pytest.fixture(autouse=True)
def deployed(ctx, fake):
    """Two models with an integrator each, beside one Istio."""
    fake_cluster.install_istio(fake)
    fake.may_change = {"namespaces kf-2", "clusterroles kf-2-mesh-2"}
    fake.may_change |= {"configmaps kf-2 mesh-2-convergence", "secrets kf-2 mesh-2-record"}
    fake.application()
    fake.application(model="kf-2")
    pod = fake.find("Pod", OWN_POD, "kf")
    fake.add({**pod, "metadata": {**pod["metadata"], "namespace": "kf-2"}})


def run(ctx, model="kf", event="config_changed", **options):
    given = dataclasses.replace(state(**options), model=testing.Model(model, type="kubernetes"))
    return ctx.run(getattr(ctx.on, event)(), given).unit_status


def holder(fake, name):
    return fake.labels(name).get(SERVED_BY)


@cases(
    ("name", "labels", "want"),
    profile=("kf-user", PROFILE, True),
    any_other=("other", {}, False),
    istiods=("istio-system", LABELLED, False),
    the_models_own=("kf", LABELLED, False),
    of_a_model_that_is_gone=("kf-user", {**PROFILE, SERVED_BY: "k.mesh-2"}, True),
    of_an_application_that_is_gone=("kf-user", {**PROFILE, SERVED_BY: "kf-2.gone"}, True),
)
def test_namespace_that_is_served_is_claimed_once(ctx, fake, name, labels, want):
    fake.namespace(name, **labels)
    run(ctx)
    assert holder(fake, name) == (OWNER if want else None)
    fake.writes.clear()
    run(ctx)
    assert f"patch namespaces {name}" not in fake.writes


def test_first_one_keeps_what_it_serves_and_the_second_says_so(ctx, fake):
    fake.namespace("kf-user", **PROFILE)
    run(ctx)
    fake.namespace("bob", **PROFILE)
    assert f"1 namespace is managed by {OWNER}" in run(ctx, "kf-2").message
    fake.application("mesh")
    fake.namespace("carol", **PROFILE, **{SERVED_BY: OWNER})
    fake.namespace("dave", **PROFILE, **{SERVED_BY: "kf.mesh"})
    message = run(ctx, "kf-2").message
    assert f"3 namespaces are managed by kf.mesh, {OWNER} ·" in message
    fake.delete("StatefulSet", "mesh", "kf")
    assert (holder(fake, "kf-user"), holder(fake, "bob")) == (OWNER, SECOND)
    run(ctx, event="remove", units=0, leader=False)
    assert (holder(fake, "kf-user"), holder(fake, "bob")) == (None, SECOND)
    assert "managed by" not in run(ctx, "kf-2").message
    assert holder(fake, "kf-user") == SECOND


def test_owner_that_may_not_be_looked_for_keeps_its_claim(ctx, fake):
    fake.namespace("kf-user", **PROFILE, **{SERVED_BY: "kf-2.gone"})
    fake.forbidden.add(("list", "statefulsets"))
    run(ctx)
    assert holder(fake, "kf-user") == "kf-2.gone"


def test_what_is_not_served_any_more_is_given_back(ctx, fake):
    fake.namespace("kf-user", **PROFILE)
    fake.namespace("bob", **PROFILE, **{SERVED_BY: SECOND})
    run(ctx, leader=False)
    assert holder(fake, "kf-user") is None
    run(ctx)
    assert holder(fake, "kf-user") == OWNER
    run(ctx, served_namespaces="model")
    assert (holder(fake, "kf-user"), holder(fake, "bob")) == (None, SECOND)


def test_namespace_that_is_going_is_left_alone(ctx, fake):
    fake.namespace("kf-user", **PROFILE)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    fake.namespace("bob", **PROFILE, **{SERVED_BY: OWNER})["metadata"]["deletionTimestamp"] = "x"
    run(ctx)
    run(ctx, event="remove", units=0)
    assert not [each for each in fake.writes if each.endswith(("kf-user", "bob"))]


def test_without_the_right_to_claim_namespaces_are_served_all_the_same(ctx, fake, caplog):
    run(ctx)
    fake.namespace("kf-user", **PROFILE)
    fake.forbidden.add(("patch", "namespaces"))
    assert run(ctx).name == "active"
    assert "passed over" not in caplog.text


def test_namespace_that_can_not_be_claimed_keeps_no_other_from_it(ctx, fake, caplog):
    for name in ("kf-user", "bob"):
        fake.namespace(name, **PROFILE)
    fake.broken["patch", "namespaces", "kf-user"] = 422
    run(ctx)
    assert (holder(fake, "kf-user"), holder(fake, "bob")) == (None, OWNER)
    assert "Namespace kf-user is passed over" in caplog.text


def test_claim_that_another_made_in_between_stays(ctx, fake):
    run(ctx)
    namespace = fake.namespace("kf-user", **PROFILE)
    metadata = namespace["metadata"]
    labels = {**metadata["labels"], SERVED_BY: SECOND}
    other = {**namespace, "metadata": {**metadata, "labels": labels}}
    fake.interference.append(lambda: fake.add(other))
    assert f"1 namespace is managed by {SECOND}" in run(ctx).message
    assert holder(fake, "kf-user") == SECOND
