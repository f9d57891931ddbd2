import base64
import json
from pathlib import Path

import pytest

from testbed.juju.agent import modeloperator
from testbed.juju.controller import objects, operations, pods
from testbed.juju.controller.state import Model

CREATED_BY = "app.juju.is/created-by"
BY = "/metadata/labels/app.juju.is~1created-by"
NAME = "/metadata/labels/model.juju.is~1name"


@pytest.fixture
def model():
    return Model("kubeflow", "11111111-2222-3333-4444-555555555555", "controller-uuid")


def deploy(model, packed, **changes):
    application = operations.deploy(
        model, Path(packed), name="", config={}, resources={}, trust=False, units=2
    )
    application.metadata.update(changes)
    return application


def build(model, application):
    built = objects.application_objects(
        model, application, image="charm:1", controller="192.0.2.1:17070", certificate="PEM"
    )
    return {(thing["kind"], thing["metadata"]["name"]): thing for thing in built}


def test_untrusted_application_gets_jujus_few_rights(model, plain):
    built = build(model, deploy(model, plain))
    assert built["ClusterRole", "kubeflow-plain"]["rules"] == [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]}
    ]
    verbs = {rule["resources"][0]: rule["verbs"] for rule in built["Role", "plain"]["rules"]}
    assert verbs["pods/exec"] == ["create"]
    assert verbs["pods"] == ["get", "list", "patch"]


def test_trusted_application_gets_everything_but_urls(model, plain):
    application = deploy(model, plain)
    application.trust = True
    for kind, name in (("Role", "plain"), ("ClusterRole", "kubeflow-plain")):
        assert build(model, application)[kind, name]["rules"] == [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        ]


def test_pods_carry_only_the_applications_label(model, plain):
    built = build(model, deploy(model, plain))["StatefulSet", "plain"]
    assert built["spec"]["template"]["metadata"]["labels"] == {"app.kubernetes.io/name": "plain"}
    assert built["spec"]["replicas"] == 2
    assert built["spec"]["podManagementPolicy"] == "Parallel"
    assert built["metadata"]["annotations"]["model.juju.is/id"] == model.uuid


def test_containers_run_pebble_as_root_by_default(model, plain):
    pod = build(model, deploy(model, plain))["StatefulSet", "plain"]["spec"]["template"]["spec"]
    charm, workload = pod["containers"]
    assert charm["command"] == workload["command"] == ["/charm/bin/pebble"]
    assert workload["args"] == [
        "run", "--create-dirs", "--hold", "--http", ":38813", "--verbose",
    ]  # fmt: skip
    assert charm["securityContext"] == {"runAsUser": 0, "runAsGroup": 0}
    assert charm["resources"]["limits"] == {"memory": "1024Mi"}
    assert workload["readinessProbe"]["httpGet"]["path"] == "/v1/health?level=ready"
    assert "securityContext" not in pod


def test_non_root_charm_user_owns_the_volume_and_the_pebbles(model, plain):
    application = deploy(model, plain, **{"charm-user": "non-root"})
    pod = build(model, application)["StatefulSet", "plain"]["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"fsGroup": 170, "supplementalGroups": [170]}
    charm, workload = pod["containers"]
    assert charm["securityContext"] == {"runAsUser": 170, "runAsGroup": 170}
    assert workload["securityContext"] == {}
    assert workload["args"][-2:] == ["--identities", pods.IDENTITIES]


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param(None, [("add", "/metadata/labels"), ("add", BY), ("add", NAME)], id="none"),
        pytest.param({"a": "b"}, [("add", BY), ("add", NAME)], id="others"),
        pytest.param({CREATED_BY: "x"}, [("replace", BY), ("add", NAME)], id="another's"),
    ],
)
def test_webhook_labels_what_an_application_creates(labels, want):
    metadata = {"name": "x"} if labels is None else {"name": "x", "labels": labels}
    request = {"uid": "1", "kind": {"kind": "ConfigMap"}, "object": {"metadata": metadata}}
    response = modeloperator.review(request, "plain", {"model.juju.is/name": "kubeflow"})
    patch = json.loads(base64.b64decode(response["patch"]))
    assert [(each["op"], each["path"]) for each in patch] == want
    assert [each["value"] for each in patch[-2:]] == ["plain", "kubeflow"]


@pytest.mark.parametrize(
    ("kind", "application"),
    [
        pytest.param("ConfigMap", "", id="somebody else"),
        pytest.param("SelfSubjectAccessReview", "plain", id="access review"),
    ],
)
def test_webhook_leaves_the_rest_alone(kind, application):
    request = {"uid": "1", "kind": {"kind": kind}, "object": {"metadata": {}}}
    assert modeloperator.review(request, application, {}) == {"uid": "1", "allowed": True}
