"""What convergence reads of the cluster, how often, and how it takes an injector's answer."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import structlog
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.decide.convergence import memory
from sidecar_lifecycle.decide.convergence.plan import Plan
from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.kube import errors
from sidecar_lifecycle.shell.settings import Live, Settings

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.workload import pods
from tests.unit.workload.convergence.plan_world import a_round, held
from tests.unit.workload.fake_apiserver import FakeApiserver

MODEL = "kubeflow"
SETTINGS = Settings(
    model=MODEL, application="istio-integrator", unit="istio-integrator/0", joined=True
)
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}


ROOT_CERTIFICATE = {"metadata": {"name": "istio-ca-root-cert", "namespace": MODEL}}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiserver]:
    fake = FakeApiserver()
    async with fake:
        fake.namespace(MODEL, labels={"istio-injection": "enabled"})
        spec = {"replicas": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}
        metadata = {"name": "web", "namespace": MODEL, "uid": "uid-of-web"}
        fake.put("statefulsets", {"metadata": metadata, "spec": spec})
        yield fake


def subject(cluster: FakeApiserver) -> hands.Cluster:
    return hands.Cluster(cluster.client, Live(SETTINGS))


async def look(cluster: FakeApiserver, remembered: memory.Memory) -> Plan:
    stored = resources.ConfigMap(data={memory.STATE: memory.encode(remembered)})
    return (await hands.look(subject(cluster), [], stored, {}))[0]


def asked(cluster: FakeApiserver, end: str) -> int:
    return sum(path.endswith(end) for _, path in cluster.requests)


def pod_of(kind: str, name: str) -> types.Pod:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}"}
    return msgspec.convert(
        pods.pod_json(ownerReferences=[{**owner, "controller": True}]), types.Pod
    )


def replica_set(cluster: FakeApiserver, name: str, *owners: str) -> None:
    references = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": owner}
        for owner in owners
    ]
    metadata = {"name": name, "namespace": MODEL, "uid": f"uid-of-{name}"}
    cluster.put("replicasets", {"metadata": {**metadata, "ownerReferences": references}})


async def test_replica_sets_lead_from_pods_to_their_deployments(cluster: FakeApiserver):
    replica_set(cluster, "rs-owned", "web")
    replica_set(cluster, "rs-orphan")
    owners, desired = await subject(cluster).owners()
    assert {*owners} == {
        ("StatefulSet", "web"),
        ("ReplicaSet", "rs-owned"),
        ("ReplicaSet", "rs-orphan"),
    }
    assert [each.name for each in owners["ReplicaSet", "rs-owned"].owners] == ["web"]
    assert desired == {"StatefulSet/web": 1}


@cases(
    ("owner", "reason"),
    ours=(names.owner(MODEL, "istio-integrator"), ""),
    of_another_integrator=(names.owner(MODEL, "other"), "OwnedFurtherUp"),
    of_another_team=("", "OwnedFurtherUp"),
)
async def test_application_does_not_manage_the_gateway_workload_that_is_tied_to_it(
    cluster: FakeApiserver, owner: str, reason: str
):
    tied = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "app", "uid": "s"}
    labels = {names.OWNER: owner} if owner else {}
    metadata = {"name": "web", "namespace": MODEL, "uid": "uid-of-web", "labels": labels}
    cluster.put("statefulsets", {"metadata": {**metadata, "ownerReferences": [tied]}})

    owners, _ = await subject(cluster).owners()

    pod = pod_of("StatefulSet", "web")
    assert eligible.ownership(pod, False, owners.find).reason == reason


def elsewhere(namespace: str, name: str, *, proxy: bool = False, **extra: Any) -> dict[str, Any]:
    pod = pods.pod_json(pods.running(), namespace=namespace, name=name, policy="Always", **extra)
    if not proxy:
        pod["spec"]["containers"] = pod["spec"]["containers"][:1]
    return pod


async def test_pods_without_their_sidecar_are_found_in_the_namespaces_that_are_looked_after(
    cluster: FakeApiserver,
):
    member = {"istio-injection": "enabled"}
    cluster.namespace("team", labels={**PROFILE, **member})
    cluster.namespace("apart", labels=PROFILE)
    cluster.namespace("another", labels=member)
    for number, namespace in enumerate((MODEL, "team", "apart", "another")):
        cluster.put("pods", elsewhere(namespace, "bare", uid=f"bare-{number}"))
        cluster.put("pods", elsewhere(namespace, "good", uid=f"good-{number}", proxy=True))
    over = elsewhere("team", "over", uid="over")
    over["spec"]["restartPolicy"] = "Never"
    cluster.put("pods", over)
    cluster.set_state("team", "over", "main", pods.ended())

    found = await subject(cluster).elsewhere()

    assert [(each.namespace, each.name) for each in found] == [("team", "bare")]


async def test_identities_of_the_injector_are_read(cluster: FakeApiserver):
    webhook = {"name": "istiod", "uid": "uid-of-injector", "labels": {"app": "sidecar-injector"}}
    cluster.put("mutatingwebhookconfigurations", {"metadata": webhook})
    assert await subject(cluster).injectors() == ("uid-of-injector",)


async def test_only_a_right_that_lacks_is_done_without(cluster: FakeApiserver):
    cluster.failures = [("/mutatingwebhookconfigurations", 403, {})]
    assert await subject(cluster).injectors() == ()
    cluster.failures = [("/mutatingwebhookconfigurations", 404, {})]
    with pytest.raises(errors.StatusError):
        await subject(cluster).injectors()


async def test_replica_set_that_can_not_be_read_is_named(cluster: FakeApiserver):
    metadata = {"name": "rs", "namespace": MODEL, "uid": "u", "ownerReferences": 1}
    cluster.put("replicasets", {"metadata": metadata})

    with structlog.testing.capture_logs() as said:
        found, _ = await subject(cluster).owners()
    assert ("ReplicaSet", "rs") not in found
    assert [(each["kind"], each["name"]) for each in said] == [("ReplicaSet", "rs")]


@pytest.mark.parametrize(
    ("remembered", "reads"),
    [
        pytest.param(memory.Memory(), 0, id="nothing"),
        pytest.param(memory.Memory(rounds={"StatefulSet/web": a_round()}), 1, id="round"),
        pytest.param(held(), 1, id="hold"),
        pytest.param(
            memory.Memory(request=memory.Request(id="r", at=0.0, uids=())), 1, id="request"
        ),
    ],
)
async def test_workloads_are_read_while_something_is_remembered_of_them(
    cluster: FakeApiserver, remembered: memory.Memory, reads: int
):
    await look(cluster, remembered)
    assert asked(cluster, "/statefulsets") == reads


async def test_namespace_that_istiod_does_not_serve_is_told_by_its_root_certificate(
    cluster: FakeApiserver,
):
    cluster.put("configmaps", {"metadata": {"name": "other", "namespace": MODEL}})
    assert not await subject(cluster).is_served()
    cluster.put("configmaps", ROOT_CERTIFICATE)
    assert await subject(cluster).is_served()


SINCE = 1_000_000.0
KYVERNO = 'admission webhook "validate.kyverno.svc" denied the request: no latest tags'


def failed_create(
    cluster: FakeApiserver, kind: str, name: str, message: str, at: float = SINCE
) -> None:
    when = datetime.datetime.fromtimestamp(at, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "metadata": {"name": f"{name}-{at}", "namespace": MODEL},
        "involvedObject": {"kind": kind, "name": name},
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": when,
    }
    cluster.put("events", event)


@pytest.mark.parametrize(
    ("kind", "name", "message", "said"),
    [
        pytest.param(
            "ReplicaSet",
            "web-5d8f7c9b4",
            f"Error creating: {KYVERNO}",
            'webhook "validate.kyverno.svc" refuses: no latest tags',
            id="deployment",
        ),
        pytest.param(
            "StatefulSet",
            "web",
            'create Pod web-0 in StatefulSet web failed error: pods "web-0" is forbidden: exceeded'
            " quota: small, requested: pods=1, used: pods=5, limited: pods=5",
            "ResourceQuota small refuses: requested: pods=1, used: pods=5, limited: pods=5",
            id="statefulset",
        ),
        pytest.param(
            "DaemonSet", "web", "Error creating: no such thing", "no such thing", id="words"
        ),
    ],
)
async def test_pods_that_are_refused_are_told_with_the_author_of_the_refusal(
    cluster: FakeApiserver, kind: str, name: str, message: str, said: str
):
    workload = f"{kind.replace('ReplicaSet', 'Deployment')}/web"
    failed_create(cluster, kind, name, message)
    failed_create(cluster, kind, "another", message)
    failed_create(cluster, kind, name, "Error creating: of another time", SINCE - 60)

    assert await subject(cluster).refused({workload: SINCE}) == {workload: said}


async def test_refused_pods_are_looked_for_while_a_replacement_is_missing(cluster: FakeApiserver):
    for desired, reads in ((0, 0), (1, 1)):
        web = {"metadata": {"name": "web", "namespace": MODEL, "uid": "uid-of-web"}}
        cluster.put("statefulsets", {**web, "spec": {"replicas": desired}})
        remembered = memory.Memory(rounds={"StatefulSet/web": a_round(since=SINCE)})
        failed_create(cluster, "StatefulSet", "web", KYVERNO)
        plan = await look(cluster, remembered)
        assert asked(cluster, "/events") == reads
        assert bool(plan.snapshot.refused) is bool(reads)

    cluster.failures = [("/events", 403, {})]
    assert (await look(cluster, remembered)).snapshot.refused == {}
