"""The tenant policy in the life of an application, also where Kubernetes has no such policies.

What it rejects is tested on a real API server in tests/functional/test_tenant_policy.py.
"""

import pytest

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.charm import ingress_world
from tests.unit.charm.ingress_world import World, auth, route

NAME = "istio-integrator.kf.mesh-2.tenants"


@pytest.fixture
def world(fake, monkeypatch):
    ingress_world.connect(fake, monkeypatch)
    return World(fake, route(), auth())


def policies(world):
    return [
        name
        for _, plural, _, name in world.fake.objects
        if plural.startswith("validatingadmissionpolic")
    ]


@pytest.mark.parametrize(
    ("given", "actions"), [("auto", ["Deny"]), ("enforce", ["Deny"]), ("warn", ["Warn", "Audit"])]
)
def test_policy_comes_with_the_ingress_and_goes_with_it(world, given, actions):
    world.config["tenant_policy"] = given
    world.fake.put("Pod", "web-0", "istio-ingress", labels={"app": "web-2"}, spec={})
    world.run()
    kind = "ValidatingAdmissionPolicyBinding"
    profiles = world.fake.find(kind, f"{NAME}.profiles")
    assert profiles["spec"]["validationActions"] == actions
    # The charm's own dry runs, which it has to see refused.
    assert world.fake.find(kind, f"{NAME}.model")["spec"]["validationActions"] == ["Deny"]
    # A label that the gateway's pods have and its selector has not.
    policy = world.fake.find("ValidatingAdmissionPolicy", NAME)
    assert "pod-template-hash=5" in str(policy["spec"])
    assert "app=web-2" not in str(policy["spec"])
    world.related = []
    world.run()
    assert policies(world) == []


@cases(
    ("prefixes", "gone"),
    none_of_them=(["/", "/notebooks", "/jupyter/notebook/", "/users"], set()),
    below_a_word=(["/user/profile", "/serving/"], {"user", "serving"}),
    around_words=(
        ["/pvcviewer", "/tensor", "/notebook"],
        {"pvcviewer", "pvcviewers", "tensorboard", "notebook"},
    ),
)
def test_path_of_an_application_is_no_path_of_a_namespace(world, prefixes, gone):
    world.related = [
        *(route(f"app-{at}", prefix=each) for at, each in enumerate(prefixes)),
        auth(),
    ]
    world.run()
    (path,) = (
        each["expression"]
        for each in world.fake.find("ValidatingAdmissionPolicy", NAME)["spec"]["variables"]
        if each["name"] == "path"
    )
    words = {"notebook", "tensorboard", "pvcviewer", "pvcviewers", "serving", "user"}
    assert set(path.partition("(")[2].partition(")")[0].split("|")) == words - gone


def owner(group, *, controls=True):
    return {"apiVersion": f"{group}/v1", "kind": "X", "name": "x", "controller": controls}


KNATIVE, KUBEFLOW = owner("networking.internal.knative.dev"), owner("kubeflow.org")


@cases(
    ("owners", "level"),
    of_no_controller=([], "3"),
    of_a_controller=([KUBEFLOW], "2"),
    of_one_that_chooses_hosts=([KNATIVE], "1"),
    of_a_group_with_such_an_end=([owner("serving.kserve.io")], "1"),
    of_a_group_that_is_like_it=([owner("knative.dev.example.com")], "2"),
    of_an_owner_that_is_no_controller=([{**KNATIVE, "controller": False}], "3"),
    of_the_second_owner=([{**KNATIVE, "controller": False}, KUBEFLOW], "2"),
)
def test_existing_object_is_judged_by_its_controller(world, owners, level):
    world.fake.namespace("kf-user", **{"app.kubernetes.io/part-of": "kubeflow-profile"})
    world.fake.put("VirtualService", "web", "kf-user", ownerReferences=owners, spec={})
    tried = []
    world.fake.validators.append(lambda obj: tried.append(obj["metadata"].get("labels", {})))
    world.run()
    found = {
        (each[names.TENANT], each[names.TENANT_LEVEL]) for each in tried if names.TENANT in each
    }
    assert found == {("kf-user", level)}


def test_kubernetes_without_such_policies_is_a_note_unless_it_was_asked_for(world):
    world.fake.absent.update(("validatingadmissionpolicies", "validatingadmissionpolicybindings"))
    said = world.status()
    assert said.name == "active"
    assert "tenant-policy is off: it needs Kubernetes 1.30" in said.message
    assert world.routes()
    world.config["tenant_policy"] = "enforce"
    said = world.status()
    assert said.name == "blocked"
    command = "juju config mesh-2 tenant-policy=off"
    assert said.message == f"tenant-policy=enforce needs Kubernetes 1.30; run: {command}"
    assert world.routes()


def test_missing_right_is_named_and_everything_else_is_served(world):
    world.fake.forbidden.add(("list", "validatingadmissionpolicies"))
    assert "missing permission: list validatingadmissionpolicies" in world.status().message
    assert world.routes()
