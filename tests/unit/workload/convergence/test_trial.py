"""The pods that controllers would create next, as a whole."""

from typing import Any

import msgspec
import pytest
from sidecar_lifecycle.decide.convergence import trial
from sidecar_lifecycle.model import resources, types

from integrator_contract import names
from tests.unit.workload.pods import pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
METADATA = {"labels": {"app": "db"}, "annotations": {"a": "b"}, "finalizers": ["x/y"]}


def make_pod(kind: str, spec: Any, replaced: types.Pod | None = None, **fields: Any) -> Any:
    """Return the next pod of an owner `db` whose template has this specification."""
    document = {
        "metadata": {"name": "db", "uid": "u", "annotations": fields.pop("annotations", {})},
        "status": fields.pop("status", {}),
        "spec": {"template": {"metadata": METADATA, "spec": spec}, **fields},
    }
    owner = msgspec.convert(document, resources.Creator)
    return msgspec.json.decode(msgspec.json.encode(trial.make_pod_of(kind, owner, replaced)))


def metadata(kind: str, version: str = "apps/v1", **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": version, "kind": kind, "name": "db", "uid": "u"}
    owners = [{**owner, "controller": True, "blockOwnerDeletion": True}]
    finalizers = ["x/y", *[names.JOB_TRACKING] * (kind == "Job")]
    labels = {"app": "db", **more.pop("labels", {})}
    found = {**METADATA, "generateName": "db-", "ownerReferences": owners, **more}
    return {**found, "labels": labels, "finalizers": finalizers}


@pytest.mark.parametrize(
    ("replaced", "ordinal", "revision"), [(None, 8, "new"), ("db-7", 7, "new"), ("db-6", 6, "old")]
)
def test_pod_of_a_stateful_set_has_the_identity_claims_and_template_of_its_ordinal(
    replaced: str | None, ordinal: int, revision: str
):
    own = {"name": "own", "emptyDir": {}}
    made = make_pod(
        "StatefulSet",
        {"volumes": [{"name": "data", "emptyDir": {}}, own]},
        pod(name=replaced) if replaced else None,
        serviceName="peers",
        ordinals={"start": 5},
        updateStrategy={"rollingUpdate": {"partition": 2}},
        volumeClaimTemplates=[{"metadata": {"name": each}} for each in ("logs", "data")],
        status={"replicas": 3, "currentRevision": "old", "updateRevision": "new"},
    )
    name = f"db-{ordinal}"
    labels = {names.POD_NAME: name, names.POD_INDEX: str(ordinal), names.REVISION_HASH: revision}
    claims = [
        {"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}}
        for each in ("logs", "data")
    ]
    assert made["metadata"] == metadata("StatefulSet", labels=labels, name=f"{name}-trial")
    assert made["spec"] == {"hostname": name, "subdomain": "peers", "volumes": [*claims, own]}


@pytest.mark.parametrize("on_host", [False, True])
def test_pod_of_a_daemon_set_is_bound_to_the_node_of_the_replaced_pod(on_host: bool):
    (key, effect), *others = names.DAEMON_TAINTS
    first = {"key": key, "operator": "Exists", "effect": effect}
    own = {"key": "own", "operator": "Exists"}
    nodes = {"preferred": [1], REQUIRED: {"nodeSelectorTerms": [{}], "other": 1}}
    spec = {
        "hostNetwork": on_host,
        "tolerations": [{**first, "tolerationSeconds": 5}, own],
        "affinity": {"podAffinity": {"a": 1}, "nodeAffinity": nodes},
    }
    annotations = {resources.TEMPLATE_GENERATION: "3"}
    replaced = pod(labels={names.REVISION_HASH: "h"}, node="node-2")
    made = make_pod("DaemonSet", spec, replaced, annotations=annotations)
    labels = {names.TEMPLATE_GENERATION: "3", names.REVISION_HASH: "h"}
    others += [names.HOST_NETWORK_TAINT] * on_host
    taints = [{"key": each, "operator": "Exists", "effect": how} for each, how in others]
    field = {"key": "metadata.name", "operator": "In", "values": ["node-2"]}
    required = {"other": 1, "nodeSelectorTerms": [{"matchFields": [field]}]}
    assert made["metadata"] == metadata("DaemonSet", labels=labels)
    assert made["spec"]["tolerations"] == [first, own, *taints]
    assert made["spec"]["affinity"] == {
        "podAffinity": {"a": 1},
        "nodeAffinity": {"preferred": [1], REQUIRED: required},
    }


def test_pod_of_a_cron_job_is_that_of_its_next_job():
    of_job = {"template": {"metadata": METADATA, "spec": {"restartPolicy": "Never"}}}
    made = make_pod("CronJob", {}, jobTemplate={"spec": of_job})
    assert made == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata("Job", "batch/v1"),
        "spec": {"restartPolicy": "Never"},
    }
