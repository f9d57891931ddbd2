"""Trial pods equal the pods that Kubernetes' controllers create; functional tests compare both."""

from typing import Any

import msgspec
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.decide.convergence import trial
from sidecar_lifecycle.model import resources, types

from integrator_contract import dry_run, names
from tests.unit.cases import cases
from tests.unit.workload import pods

NODES = "requiredDuringSchedulingIgnoredDuringExecution"
OTHER_NODE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
TEMPLATE = {
    "metadata": {"labels": {"app": "db"}, "annotations": {"team": "ml"}, "finalizers": ["x/own"]},
    "spec": {"nodeName": "kept", "volumes": [{"name": "data"}, {"name": "tmp"}]},
}
VOLUMES = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-7"}},
    {"name": "log", "persistentVolumeClaim": {"claimName": "log-db-7"}},
    {"name": "tmp"},
]


def creator(name: str = "db", **fields: Any) -> resources.Creator:
    """Return the owner of pods, with a template."""
    metadata = {"name": name, "uid": "uid-owner", **fields.pop("metadata", {})}
    spec = {"template": TEMPLATE, **fields.pop("spec", {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, **fields}, resources.Creator)


def made(kind: str, owner: resources.Creator, replaced: types.Pod | None = None) -> Any:
    return msgspec.json.decode(msgspec.json.encode(trial.make_pod_of(kind, owner, replaced)))


def owned_by(kind: str, version: str = "apps/v1") -> list[dict[str, Any]]:
    reference = {"apiVersion": version, "kind": kind, "name": "db", "uid": "uid-owner"}
    return [reference | {"controller": True, "blockOwnerDeletion": True}]


@cases(
    ("replaced", "replicas", "partition", "ordinal", "revision"),
    above_the_partition=("db-7", 3, 2, 7, "new"),
    at_the_partition=("db-7", 3, 3, 7, "new"),
    below_the_partition=("db-7", 3, 4, 7, "old"),
    additional=(None, 3, 0, 7, "new"),
)
def test_pod_of_a_statefulset_has_its_ordinal_claims_and_revision(
    replaced: str | None, replicas: int, partition: int, ordinal: int, revision: str
):
    strategy = {"rollingUpdate": {"partition": partition}}
    claims = [{"metadata": {"name": name}} for name in ("data", "log")]
    spec = {"ordinals": {"start": 4}, "serviceName": "db-service", "updateStrategy": strategy}
    status = {"replicas": replicas, "currentRevision": "old", "updateRevision": "new"}
    owner = creator(spec={**spec, "volumeClaimTemplates": claims}, status=status)
    found = made("StatefulSet", owner, pods.pod(name=replaced) if replaced else None)

    own = {names.POD_NAME: f"db-{ordinal}", names.POD_INDEX: str(ordinal)}
    assert found["metadata"] == {
        "name": f"db-{ordinal}-trial",
        "generateName": "db-",
        "labels": {"app": "db", **own, names.REVISION_HASH: revision},
        "annotations": {"team": "ml"},
        "finalizers": ["x/own"],
        "ownerReferences": owned_by("StatefulSet"),
    }
    named = {"hostname": f"db-{ordinal}", "subdomain": "db-service", "volumes": VOLUMES}
    assert found["spec"] == {"nodeName": "kept", **named}


@cases(
    ("host_network", "affinity"),
    host_network=(True, {"nodeAffinity": {**PREFERRED, NODES: OTHER_NODE}, "podAffinity": {}}),
    preference=(False, {"nodeAffinity": PREFERRED}),
    no_affinity=(False, {}),
)
def test_pod_of_a_daemonset_is_bound_to_its_node_and_tolerates_its_taints(
    host_network: bool, affinity: dict[str, Any]
):
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "operator": "Exists"}
    own = [{"key": "gpu", "operator": "Exists"}] if affinity else []
    spec = {"hostNetwork": host_network, **({"affinity": affinity} if affinity else {})}
    if affinity:
        spec["tolerations"] = [*own, {**taint, "tolerationSeconds": 9}]
    template = {"spec": spec}
    metadata = {"annotations": {resources.TEMPLATE_GENERATION: "3"}}
    owner = creator(spec={"template": template}, metadata=metadata)
    replaced = pods.pod(node="node-2", labels={names.REVISION_HASH: "abc"})
    found = made("DaemonSet", owner, replaced)

    assert found["metadata"]["labels"] == {
        names.TEMPLATE_GENERATION: "3",
        names.REVISION_HASH: "abc",
    }
    tolerated = found["spec"]["tolerations"]
    assert tolerated[: len(own) + 1] == [*own, taint]
    assert [(each["key"], each["effect"]) for each in tolerated[len(own) :]] == [
        *names.DAEMON_TAINTS,
        *[names.HOST_NETWORK_TAINT] * host_network,
    ]
    field = {"key": "metadata.name", "operator": "In", "values": ["node-2"]}
    required = {NODES: {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    bound = {**affinity.get("nodeAffinity", {}), **required}
    assert found["spec"]["affinity"] == {**affinity, "nodeAffinity": bound}
    added = made("DaemonSet", creator(spec={"template": template}))
    assert (added["metadata"]["labels"], added["spec"].get("affinity", {})) == ({}, affinity)


@cases(
    ("kind", "name", "start"),
    replica_set=("ReplicaSet", "db", "db-"),
    job=("Job", "db", "db-"),
    cron_job=("CronJob", "db", "db-"),
    longest_name=("ReplicaSet", "d" * 252, "d" * 252 + "-"),
    too_long_for_a_dash=("ReplicaSet", "d" * 253, "d" * 253),
)
def test_pod_has_the_template_and_the_owner_of_its_kind(kind: str, name: str, start: str):
    spec = {"jobTemplate": {"spec": {"template": TEMPLATE}}, "template": {}}
    found = made(kind, creator(name, spec=spec if kind == "CronJob" else {}))

    of_job = kind != "ReplicaSet"
    (owner,) = owned_by("Job", "batch/v1") if of_job else owned_by(kind)
    assert found["metadata"] == {
        "generateName": start,
        "labels": {"app": "db"},
        "annotations": {"team": "ml"},
        "finalizers": ["x/own", *["batch.kubernetes.io/job-tracking"] * of_job],
        "ownerReferences": [{**owner, "name": name}],
    }
    assert found["spec"] == TEMPLATE["spec"]


@cases(
    ("owners", "kind"),
    replica_set=([("Node", False), ("ReplicaSet", True)], "ReplicaSet"),
    stateful_set=([("StatefulSet", True)], "StatefulSet"),
    daemon_set=([("DaemonSet", True)], "DaemonSet"),
    job=([("Job", True)], None),
    nothing=([], None),
)
def test_creator_of_a_pod_is_the_controller_that_replaces_it(
    owners: list[tuple[str, bool]], kind: str | None
):
    owned = [{"kind": kind, "controller": controller} for kind, controller in owners]
    found = trial.find_creator(pods.pod(ownerReferences=owned))
    assert (found.kind if found else None) == kind


@cases(
    ("labels", "settings", "asked"),
    default=({}, {}, {names.INJECT: "true"}),
    default_by_name=({}, {"mesh_revision": "default"}, {names.INJECT: "true"}),
    revision=({}, {"mesh_revision": "1-31"}, {names.REVISION: "1-31"}),
    namespace=({names.INJECTION: "enabled"}, {"mesh_revision": "1-31"}, {}),
    namespace_of_a_revision=({names.REVISION: "1-31"}, {"mesh_revision": "1-31"}, {}),
    ambient=({names.INJECTION: "enabled"}, {"data_plane": "ambient"}, names.AMBIENT),
)
def test_generic_pod_requests_the_mesh_where_its_namespace_does_not(
    labels: dict[str, str], settings: dict[str, Any], asked: dict[str, str]
):
    scope = eligible.Scope(model="kf", application="a", namespace_labels=labels, **settings)
    found = trial.make_generic_pod(scope, pods.pod())
    assert found["metadata"]["labels"] == asked


def test_pod_is_hidden_from_the_webhook_by_a_label_beside_its_own():
    pod = {"metadata": {"name": "p", "labels": {"app": "db"}}, "spec": {"x": 1}}
    hidden = {"app": "db", names.MESH_PROBE: "true", names.INJECT: "false"}
    assert trial.hide_from_webhook(pod, **{names.INJECT: "false"}) == {
        **pod,
        "metadata": {"name": "p", "labels": hidden},
    }
    assert pod["metadata"] == {"name": "p", "labels": {"app": "db"}}


def test_patch_is_applied_to_a_copy():
    pod = {"metadata": {}, "spec": {"containers": [{"image": "a"}, {}]}}
    paths = ("/spec/containers/1/image", "/metadata/x~1y~0")
    found = trial.apply_patch(pod, [{"path": each, "value": "b"} for each in paths])
    images = [{"image": "a"}, {"image": "b"}]
    assert found == {"metadata": {"x/y~": "b"}, "spec": {"containers": images}}
    assert pod == {"metadata": {}, "spec": {"containers": [{"image": "a"}, {}]}}


def test_dry_run_pod_has_the_image_and_the_controller_of_the_units_pod():
    owners = [
        {"kind": "StatefulSet", "name": "mesh-2", "controller": True, "blockOwnerDeletion": True},
        {"kind": "App", "name": "mesh-2", "controller": False},
    ]
    own = pods.pod(ownerReferences=owners, others={"charm": pods.running()})
    own.spec.containers[1].image = "registry.invalid/charm:7"
    found = trial.make_own_pod(own, {"a": "b"}, "Never")

    least = {"cpu": "1m", "memory": "1Mi"}
    assert found["metadata"] == {
        "generateName": "istio-integrator-dry-run-",
        "labels": {"a": "b"},
        "annotations": {},
        "ownerReferences": [{**owners[0], "blockOwnerDeletion": False}],
    }
    assert found["spec"] == {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "dry-run",
                "image": "registry.invalid/charm:7",
                "resources": {"requests": least, "limits": least},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
    unknown = dry_run.make_pod({}, {}, namespace="kf", annotations={"c": "d"})
    assert unknown["metadata"] == {
        "generateName": "istio-integrator-dry-run-",
        "namespace": "kf",
        "labels": {},
        "annotations": {"c": "d"},
        "ownerReferences": [],
    }
    assert unknown["spec"]["restartPolicy"] == "Always"
    assert unknown["spec"]["containers"][0]["image"] == "never-created.invalid/dry-run"
