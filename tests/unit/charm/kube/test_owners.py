import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import names
from istio_integrator.kube import owners

OWNER = "kubeflow.istio-integrator"


@given(st.text("abc-.", max_size=80), st.text("abc-.", max_size=80))
def test_label_fits_and_differs(model, application):
    label = names.owner(model, application)
    assert len(label) <= 63
    assert label == f"{model}.{application}" or label != names.owner(model, "x")


@pytest.mark.parametrize("application", ["istio-integrator", "i" * 60])
@pytest.mark.parametrize("model", ["kubeflow", "m" * 60, "m" * 51 + "-a"])
def test_owner_is_there_while_juju_runs_it(fake, model, application):
    owner = names.owner(model, application)
    fake.namespace(model)
    assert owners.is_gone(fake.api(), owner)
    fake.application(application, model)
    assert not owners.is_gone(fake.api(), owner)
    fake.delete("StatefulSet", application, model)
    fake.application("another", model)
    assert owners.is_gone(fake.api(), owner)


def test_models_that_an_owner_can_not_be_of_are_not_looked_into(fake):
    for name in ("kube", "kubeflow-2", "flow"):
        fake.namespace(name)
    owners.is_gone(fake.api(), OWNER)
    assert fake.requests == ["list namespaces", "list statefulsets kubeflow"]


def test_owner_that_may_not_be_looked_for_may_be_there(fake):
    fake.forbidden.add(("list", "statefulsets"))
    assert not owners.is_gone(fake.api(), OWNER)
    assert owners.is_gone(fake.api(), "another-model.istio-integrator")


def anchored(fake) -> tuple[str, str]:
    anchor = owners.anchor(fake.api(), model="kubeflow", application="istio-integrator")
    return anchor["kind"], anchor["metadata"]["name"]


def test_role_of_the_application_is_bound_to_the_model_beside_the_owners_that_it_has(fake):
    fake.application()
    other = {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "of-the-node"}
    role = fake.find("ClusterRole", "kubeflow-istio-integrator")
    role["metadata"]["ownerReferences"] = [other]
    assert anchored(fake) == ("ClusterRole", "kubeflow-istio-integrator")
    role = fake.find("ClusterRole", "kubeflow-istio-integrator")
    assert [each["kind"] for each in role["metadata"]["ownerReferences"]] == ["Node", "Namespace"]
    fake.writes.clear()
    assert anchored(fake) == ("ClusterRole", "kubeflow-istio-integrator")
    assert fake.writes == []


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_without_the_right_everything_goes_with_the_model(fake, verb):
    fake.application()
    fake.forbidden.add((verb, "clusterroles"))
    assert anchored(fake) == ("Namespace", "kubeflow")


def test_a_role_of_somebody_else_is_left_alone(fake):
    fake.application()
    role = fake.find("ClusterRole", "kubeflow-istio-integrator")
    role["metadata"]["labels"] = {}
    fake.writes.clear()
    assert anchored(fake) == ("Namespace", "kubeflow")
    assert fake.writes == []
