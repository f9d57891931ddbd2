"""An eviction never rolls out a template that the workload's owner holds back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sidecar_lifecycle.decide.convergence import memory, outcome, plan
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.convergence import cluster as hands

from tests.unit.workload import pods, scripted

MODEL = "kubeflow"
NOW = 1_800_000_000.0
ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}
GENERATION = "deprecated.daemonset.template.generation"


def stateful(spec: dict[str, Any], *, observed: int = 2, revision: str = "new") -> dict[str, Any]:
    return {
        "metadata": {"name": "x", "uid": "u", "generation": 2},
        "spec": {"replicas": 2, **spec},
        "status": {"observedGeneration": observed, "updateRevision": revision},
    }


def daemons(spec: dict[str, Any], generation: str | None = "2") -> dict[str, Any]:
    notes = {GENERATION: generation} if generation else {}
    return {
        "metadata": {"name": "x", "uid": "u", "annotations": notes},
        "spec": spec,
        "status": {"desiredNumberScheduled": 2},
    }


async def decide(kind: str, workload: dict[str, Any], labels: dict[str, str]) -> outcome.Plan:
    """Plan for two ready pods of a workload that lack their sidecar."""
    server = scripted.Scripted()
    server.present[f"{kind.lower()}s"] = [json.dumps(workload).encode()]
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": True}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for name in ("x-0", "x-1"):
        pod = pods.pod_json(
            name=name, uid=name, policy="Always", conditions=[ready], ownerReferences=[owner]
        )
        pod["metadata"] |= {"labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
        pod["spec"]["containers"] = pod["spec"]["containers"][:1]
        server.present["pods"].append(json.dumps(pod).encode())
    namespace = {"metadata": {"name": MODEL, "labels": {"istio-injection": "enabled"}}}
    server.answers[f"/namespaces/{MODEL}"] = json.dumps(namespace).encode()
    server.present["configmaps"] = [b'{"metadata":{"name":"istio-ca-root-cert"}}']
    settings = options.Settings(model=MODEL, application="app", unit="app/0")
    subject = hands.Cluster(server, options.Live(settings), lambda: NOW)  # type: ignore[arg-type]
    reading = await hands.read(subject, await subject.pods(), memory.Memory(), {})
    return plan.plan(
        reading.snapshot, memory.Memory(), mode="auto", limits=outcome.Limits(), now=NOW
    )


OLD, NEW = {"controller-revision-hash": "old"}, {"controller-revision-hash": "new"}
FIRST, SECOND = ({**NEW, "pod-template-generation": number} for number in "12")


@pytest.mark.parametrize(
    ("kind", "workload", "labels"),
    [
        pytest.param("StatefulSet", stateful(ON_DELETE), OLD, id="older-template"),
        pytest.param("StatefulSet", stateful(ON_DELETE, observed=1), NEW, id="not-yet-looked-at"),
        pytest.param("StatefulSet", stateful(ON_DELETE), {}, id="pod-that-does-not-say"),
        pytest.param("StatefulSet", stateful(ON_DELETE, revision=""), {}, id="nobody-says"),
        pytest.param("DaemonSet", daemons(ON_DELETE), FIRST, id="older-template-on-nodes"),
        pytest.param("DaemonSet", daemons(ON_DELETE, None), SECOND, id="not-known-on-nodes"),
    ],
)
async def test_pod_whose_newer_template_waits_for_its_deletion_is_reported_only(
    kind: str, workload: dict[str, Any], labels: dict[str, str]
):
    decided = await decide(kind, workload, labels)

    assert not decided.ask
    assert not decided.evict
    assert {row.reason for row in decided.rows} == {"TemplateWithheld"}
    assert decided.summary.reported == 2


PARTITION = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 5}}}


@pytest.mark.parametrize(
    ("kind", "workload", "labels"),
    [
        pytest.param("StatefulSet", stateful(ON_DELETE), NEW, id="template-of-today"),
        pytest.param("DaemonSet", daemons(ON_DELETE), SECOND, id="template-of-today-on-nodes"),
        pytest.param("StatefulSet", stateful({}), OLD, id="rolling-update"),
        # Kubernetes gives a pod below the partition the older template again.
        pytest.param("StatefulSet", stateful(PARTITION), OLD, id="below-a-partition"),
        pytest.param("DaemonSet", daemons({}), FIRST, id="rolling-update-on-nodes"),
    ],
)
async def test_pod_that_would_come_back_from_its_own_template_is_replaced(
    kind: str, workload: dict[str, Any], labels: dict[str, str]
):
    decided = await decide(kind, workload, labels)

    assert [replica.workload for replica in decided.ask] == [f"{kind}/x"]
