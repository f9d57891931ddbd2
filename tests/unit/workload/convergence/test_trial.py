"""The pods that are created by dry run; the functional tier compares them with Kubernetes' own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.decide.convergence import trial
from sidecar_lifecycle.model import resources, types

from tests.unit.workload import pods

SPEC = {"containers": [{"name": "main", "image": "x"}]}
HASH = "controller-revision-hash"


def creator(name: str, template: dict[str, Any], **spec: Any) -> resources.Creator:
    status = {"replicas": 1, "currentRevision": "web-old", "updateRevision": "web-new"}
    metadata = {"name": name, "uid": f"uid-of-{name}", "annotations": spec.pop("annotations", {})}
    made = {"metadata": metadata, "spec": {"template": template, **spec}, "status": status}
    return msgspec.convert(made, resources.Creator)


def replaced(name: str, **extra: Any) -> types.Pod:
    return msgspec.convert(pods.pod_json(name=name, **extra), types.Pod)


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def test_trial_of_a_deployment_is_a_pod_of_its_replica_set():
    labels = {"app": "shop", "pod-template-hash": "abc"}
    meta = {"labels": labels, "annotations": {"a": "b"}, "finalizers": ["f/g"]}
    made = trial.of_creator("ReplicaSet", creator("shop-abc", {"metadata": meta, "spec": SPEC}))

    assert plain(made["metadata"]) == {
        "generateName": "shop-abc-",
        "labels": labels,
        "annotations": {"a": "b"},
        "finalizers": ["f/g"],
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "shop-abc",
                "uid": "uid-of-shop-abc",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    assert made["spec"] == SPEC


def test_trial_of_a_stateful_set_takes_the_place_of_the_pod_but_not_its_name():
    template = {"spec": {**SPEC, "volumes": [{"name": "data", "emptyDir": {}}, {"name": "v"}]}}
    claims = [{"metadata": {"name": "data"}}]
    web = creator("web", template, serviceName="web-endpoints", volumeClaimTemplates=claims)
    made = trial.of_creator("StatefulSet", web, replaced("web-3"))

    assert made["metadata"]["name"] == "web-3-trial"
    assert made["metadata"]["labels"] == {
        "statefulset.kubernetes.io/pod-name": "web-3",
        "apps.kubernetes.io/pod-index": "3",
        HASH: "web-new",
    }
    assert made["spec"] == {
        **SPEC,
        "hostname": "web-3",
        "subdomain": "web-endpoints",
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-3"}},
            {"name": "v"},
        ],
    }


@pytest.mark.parametrize(
    ("spec", "name", "revision"),
    [
        pytest.param({}, "web-1-trial", "web-new", id="next"),
        pytest.param({"ordinals": {"start": 5}}, "web-6-trial", "web-new", id="other-start"),
        pytest.param(
            {"updateStrategy": {"rollingUpdate": {"partition": 2}}},
            *("web-1-trial", "web-old"),
            id="below-the-partition",
        ),
    ],
)
def test_additional_pod_of_a_stateful_set_has_the_next_ordinal(
    spec: dict[str, Any], name: str, revision: str
):
    made = trial.of_creator("StatefulSet", creator("web", {"spec": SPEC}, **spec))
    assert (made["metadata"]["name"], made["metadata"]["labels"][HASH]) == (name, revision)


def test_trial_of_a_daemon_set_is_for_the_node_of_the_pod():
    kept = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    spec = {**SPEC, "tolerations": [{**kept, "tolerationSeconds": 9}], "hostNetwork": True}
    agent = creator("agent", {"spec": spec}, annotations={resources.TEMPLATE_GENERATION: "4"})
    made = trial.of_creator("DaemonSet", agent, replaced("agent-x", labels={HASH: "h"}))

    assert made["metadata"]["labels"] == {HASH: "h", "pod-template-generation": "4"}
    (term,) = made["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == ["node-1"]
    tolerations = made["spec"]["tolerations"]
    assert tolerations[0] == kept
    assert len(tolerations) == 7


OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "istio-integrator", "uid": "u"}
OWN = replaced("istio-integrator-0", ownerReferences=[{**OWNER, "controller": True}])


def scope(labels: dict[str, str] | None = None, **settings: Any) -> eligible.Scope:
    return eligible.Scope(model="m", application="a", namespace_labels=labels or {}, **settings)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(scope({"istio-injection": "enabled"}), {}, id="member"),
        pytest.param(scope({"istio.io/rev": "x"}, mesh_revision="x"), {}, id="member-by-revision"),
        pytest.param(scope(), {"sidecar.istio.io/inject": "true"}, id="outside"),
        pytest.param(scope(mesh_revision="x"), {"istio.io/rev": "x"}, id="outside-by-revision"),
    ],
)
def test_generic_trial_asks_for_a_sidecar_where_the_namespace_does_not(
    given: eligible.Scope, want: dict[str, str]
):
    assert trial.generic(given, OWN)["metadata"]["labels"] == want


def test_generic_trial_has_the_owner_and_the_image_of_the_charm_and_no_fixed_user():
    made = trial.generic(scope(), OWN)
    (container,) = made["spec"]["containers"]

    assert plain(made["metadata"]["ownerReferences"]) == [{**OWNER, "controller": True}]
    assert container["image"] == OWN.spec.containers[0].image
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert made["spec"].keys() == {"containers", "restartPolicy"}
