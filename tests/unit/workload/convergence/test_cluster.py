"""What convergence reads of the model, how often, and how it takes an injector's answer."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import structlog
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.decide.convergence import facts, memory
from sidecar_lifecycle.decide.convergence.plan import EvictionPlan
from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.kube import errors, fence
from sidecar_lifecycle.shell.settings import Live

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.workload import pods
from tests.unit.workload.convergence.plan_world import a_round, held
from tests.unit.workload.converging import MODEL, SETTINGS, owned
from tests.unit.workload.fake_apiserver import FakeApiserver

PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}


def subject(model: FakeApiserver) -> hands.Cluster:
    return hands.Cluster(model.client, Live(SETTINGS))


async def look(model: FakeApiserver, remembered: memory.Memory) -> EvictionPlan:
    stored = resources.ConfigMap(data={memory.STATE: memory.encode(remembered)})
    return (await hands.look(subject(model), [], stored, {}))[0]


def asked(model: FakeApiserver, end: str) -> int:
    return sum(path.endswith(end) for _, path in model.requests)


def pod_of(kind: str, name: str) -> types.Pod:
    return pods.pod(ownerReferences=owned(kind, name))


def replica_set(model: FakeApiserver, name: str, *owners: str) -> None:
    references = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": owner}
        for owner in owners
    ]
    metadata = {"name": name, "namespace": MODEL, "uid": f"uid-of-{name}"}
    model.put("replicasets", {"metadata": {**metadata, "ownerReferences": references}})


async def test_replica_sets_lead_from_pods_to_their_deployments(model: FakeApiserver):
    replica_set(model, "rs-owned", "web")
    replica_set(model, "rs-orphan")
    owners, desired = await subject(model).owners()
    assert {name for kind, name in owners if kind == "ReplicaSet"} == {"rs-owned", "rs-orphan"}
    assert [each.name for each in owners["ReplicaSet", "rs-owned"].owners] == ["web"]
    assert desired == {"StatefulSet/web": 1, "StatefulSet/istio-integrator": 1}


@cases(
    ("owner", "reason"),
    ours=(names.owner(MODEL, "istio-integrator"), ""),
    of_another_integrator=(names.owner(MODEL, "other"), "OwnedFurtherUp"),
    of_another_team=("", "OwnedFurtherUp"),
)
async def test_application_does_not_manage_the_gateway_workload_that_is_tied_to_it(
    model: FakeApiserver, owner: str, reason: str
):
    tied = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "app", "uid": "s"}
    labels = {names.OWNER: owner} if owner else {}
    metadata = {"name": "web", "namespace": MODEL, "uid": "uid-of-web", "labels": labels}
    model.put("statefulsets", {"metadata": {**metadata, "ownerReferences": [tied]}})

    owners, _ = await subject(model).owners()

    pod = pod_of("StatefulSet", "web")
    assert eligible.ownership(pod, False, owners.find).reason == reason


def elsewhere(namespace: str, name: str, *, proxy: bool = False, **extra: Any) -> dict[str, Any]:
    pod = pods.pod_json(pods.running(), namespace=namespace, name=name, policy="Always", **extra)
    if not proxy:
        pod["spec"]["containers"] = pod["spec"]["containers"][:1]
    return pod


async def test_pods_without_their_sidecar_are_found_in_the_namespaces_that_are_looked_after(
    model: FakeApiserver,
):
    member = {"istio-injection": "enabled"}
    model.namespace("team", labels={**PROFILE, **member})
    model.namespace("apart", labels=PROFILE)
    model.namespace("another", labels=member)
    for number, namespace in enumerate((MODEL, "team", "apart", "another")):
        model.put("pods", elsewhere(namespace, "bare", uid=f"bare-{number}"))
        model.put("pods", elsewhere(namespace, "good", uid=f"good-{number}", proxy=True))
    over = elsewhere("team", "over", uid="over")
    over["spec"]["restartPolicy"] = "Never"
    model.put("pods", over)
    model.set_state("team", "over", "main", pods.ended())

    found = await subject(model).elsewhere()

    assert [(each.namespace, each.name) for each in found] == [("team", "bare")]


async def test_identities_of_the_injector_are_read(model: FakeApiserver):
    webhook = {"name": "istiod", "uid": "uid-of-injector", "labels": {"app": "sidecar-injector"}}
    model.put("mutatingwebhookconfigurations", {"metadata": webhook})
    assert await subject(model).injectors() == ("uid-of-injector",)


async def test_only_a_right_that_lacks_is_done_without(model: FakeApiserver):
    model.failures = [("/mutatingwebhookconfigurations", 403, {})]
    assert await subject(model).injectors() == ()
    model.failures = [("/mutatingwebhookconfigurations", 404, {})]
    with pytest.raises(errors.StatusError):
        await subject(model).injectors()


async def test_replica_set_that_can_not_be_read_is_named(model: FakeApiserver):
    metadata = {"name": "rs", "namespace": MODEL, "uid": "u", "ownerReferences": 1}
    model.put("replicasets", {"metadata": metadata})

    with structlog.testing.capture_logs() as said:
        found, _ = await subject(model).owners()
    assert ("ReplicaSet", "rs") not in found
    assert [(each["kind"], each["name"]) for each in said] == [("ReplicaSet", "rs")]


@cases(
    ("remembered", "reads"),
    nothing=(memory.Memory(), 0),
    round=(memory.Memory(rounds={"StatefulSet/web": a_round()}), 1),
    hold=(held(), 1),
    request=(memory.Memory(request=memory.Request(id="r", at=0.0, uids=())), 1),
)
async def test_workloads_are_read_while_something_is_remembered_of_them(
    model: FakeApiserver, remembered: memory.Memory, reads: int
):
    await look(model, remembered)
    assert asked(model, "/statefulsets") == reads


async def test_namespace_that_istiod_does_not_serve_is_told_by_its_root_certificate(
    model: FakeApiserver,
):
    assert await subject(model).is_served()
    model.delete("configmaps", MODEL, "istio-ca-root-cert")
    model.put("configmaps", {"metadata": {"name": "other", "namespace": MODEL}})
    assert not await subject(model).is_served()


async def test_pod_whose_workload_can_not_be_dealt_with_is_named(model: FakeApiserver):
    told: list[types.Object] = []
    reader = hands.Cluster(model.client, Live(SETTINGS), lambda: 0.0)
    reader.fence = fence.Fence(lambda item, _: told.append(item))
    metadata = {"name": "web", "namespace": MODEL, "uid": "uid-of-web"}
    model.put("statefulsets", {"metadata": metadata, "spec": {"template": 1}})
    replica = facts.Replica(name="web-0", uid="uid-1", created=0.0, workload="StatefulSet/web")

    assert (await reader.ask(replica, SETTINGS.scope({}))).reason == "ReplacementRefused"
    assert [(each.metadata.namespace, each.metadata.name) for each in told] == [(MODEL, "web-0")]


SINCE = 1_000_000.0
KYVERNO = 'admission webhook "validate.kyverno.svc" denied the request: no latest tags'


def failed_create(
    model: FakeApiserver, kind: str, name: str, message: str, at: float = SINCE
) -> None:
    when = datetime.datetime.fromtimestamp(at, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "metadata": {"name": f"{name}-{at}", "namespace": MODEL},
        "involvedObject": {"kind": kind, "name": name},
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": when,
    }
    model.put("events", event)


USED = "requested: pods=1, used: pods=5, limited: pods=5"
FAILED = 'create Pod web-0 in StatefulSet web failed error: pods "web-0" is forbidden'


@cases(
    ("kind", "name", "message", "said"),
    deployment=(
        *("ReplicaSet", "web-5d8f7c9b4", f"Error creating: {KYVERNO}"),
        'webhook "validate.kyverno.svc" refuses: no latest tags',
    ),
    statefulset=(
        *("StatefulSet", "web", f"{FAILED}: exceeded quota: small, {USED}"),
        f"ResourceQuota small refuses: {USED}",
    ),
    words=("DaemonSet", "web", "Error creating: no such thing", "no such thing"),
)
async def test_pods_that_are_refused_are_told_with_the_author_of_the_refusal(
    model: FakeApiserver, kind: str, name: str, message: str, said: str
):
    workload = f"{kind.replace('ReplicaSet', 'Deployment')}/web"
    failed_create(model, kind, name, message)
    failed_create(model, kind, "another", message)
    failed_create(model, kind, name, "Error creating: of another time", SINCE - 60)

    assert await subject(model).refused({workload: SINCE}) == {workload: said}


async def test_refused_pods_are_looked_for_while_a_replacement_is_missing(model: FakeApiserver):
    for desired, reads in ((0, 0), (1, 1)):
        web = {"metadata": {"name": "web", "namespace": MODEL, "uid": "uid-of-web"}}
        model.put("statefulsets", {**web, "spec": {"replicas": desired}})
        remembered = memory.Memory(rounds={"StatefulSet/web": a_round(since=SINCE)})
        failed_create(model, "StatefulSet", "web", KYVERNO)
        plan = await look(model, remembered)
        assert asked(model, "/events") == reads
        assert bool(plan.refused) is bool(reads)

    model.failures = [("/events", 403, {})]
    assert (await look(model, remembered)).refused == {}
