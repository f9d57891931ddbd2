"""Objects that convergence reads, as the listener reports them to the charm."""

import datetime

from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.decide.convergence import facts, memory

from integrator_contract import names, service
from tests.unit.api_server import Refused
from tests.unit.cases import cases
from tests.unit.workload import pods, service_world
from tests.unit.workload.convergence.plan_world import PROVEN, a_hold, a_round
from tests.unit.workload.converging import (
    MODEL,
    SETTINGS,
    injected,
    owned,
    remember,
    without_sidecar,
    workload,
)
from tests.unit.workload.test_local_listener import listed
from tests.unit.workload.test_local_listener import served as serving

PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
MEMBER = {"istio-injection": "enabled"}
SET = "StatefulSet/web"


def asked(model, end):
    return sum(path.endswith(end) for _, path in model.requests)


@cases(
    ("owner", "reason"),
    ours=(names.name_owner(MODEL, "mesh-2"), ""),
    of_another_integrator=(names.name_owner(MODEL, "other"), "OwnedFurtherUp"),
    of_another_team=("", "OwnedFurtherUp"),
)
async def test_application_does_not_manage_the_gateway_workload_that_is_tied_to_it(
    model, owner, reason
):
    tied = [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "app", "uid": "s"}]
    labels = {names.OWNER: owner} if owner else {}
    workload(model, "deployments", "web", ownerReferences=tied, labels=labels)
    # A ReplicaSet has the labels of the Deployment's pods.
    replicas = {"ownerReferences": owned("Deployment", "web"), "labels": labels}
    workload(model, "replicasets", "web-1", **replicas)
    pod = without_sidecar()
    pod["metadata"]["ownerReferences"] = owned("ReplicaSet", "web-1")
    model.put("pods", pod)
    (found,) = (await listed(model))["pods"]
    assert (found["workload"], found["fixable"]) == ("Deployment/web", not reason)
    assert not reason or found["reason"] == reason


OFF = {names.RESTART_PODS: "disabled"}


@cases(
    ("of_namespace", "of_workload", "strategy", "why"),
    namespace=(OFF, {}, "RollingUpdate", "switched off on its namespace"),
    workload=({}, OFF, "RollingUpdate", f"switched off on {SET}"),
    strategy=({}, {}, "OnDelete", f"{SET} may have a newer template"),
)
async def test_pods_stay_where_restarts_are_switched_off(
    model, of_namespace, of_workload, strategy, why
):
    model.namespace(MODEL, labels=MEMBER, annotations=of_namespace)
    workload(model, "statefulsets", "web", annotations=of_workload)
    model.get("statefulsets", MODEL, "web")["spec"]["updateStrategy"] = {"type": strategy}
    (found,) = (await listed(model))["pods"]
    assert (found["workload"], found["fixable"]) == (SET, False)
    assert found["message"].startswith(why)


REPORTED = "outside of the model pods are only reported"


def elsewhere(namespace, name, *, proxy=False, **extra):
    pod = pods.pod_json(pods.running(), namespace=namespace, name=name, policy="Always", **extra)
    if not proxy:
        pod["spec"]["containers"] = pod["spec"]["containers"][:1]
    return pod


async def test_pods_without_their_sidecar_are_found_in_the_namespaces_that_are_looked_after(model):
    bare = without_sidecar()
    bare["metadata"]["ownerReferences"] = []
    model.put("pods", bare)
    served, tagged = {**PROFILE, **MEMBER}, {**PROFILE, names.REVISION: "1-30"}
    spaces = {"team": served, "apart": PROFILE, "another": MEMBER, "istio-system": served}
    spaces |= {"of-a-revision": tagged, "of-another": {**tagged, names.REVISION: "1-31"}}
    spaces["theirs"] = {**served, names.SERVED_BY: names.name_owner(MODEL, "other")}
    for number, (namespace, labels) in enumerate(spaces.items()):
        model.namespace(namespace, labels=labels)
        model.put("pods", elsewhere(namespace, "bare", uid=f"bare-{number}"))
        model.put("pods", elsewhere(namespace, "good", uid=f"good-{number}", proxy=True))
    over = elsewhere("team", "over", uid="over")
    over["spec"]["restartPolicy"] = "Never"
    model.put("pods", over)
    model.set_state("team", "over", "main", pods.ended())

    spare = elsewhere("team", "a-bare", uid="a-bare")
    model.put("pods", spare)

    async with serving(model, mesh_namespace="istio-system", mesh_revision="1-30") as service:
        found, stale = [await service.get(f"/uninjected{each}") for each in ("", "?stale=")]
    enabled, revision = "istio-injection=enabled", "istio.io/rev=1-30"
    assert found["pods"][0]["reason"] == "BarePod"
    assert found["pods"][1:] == [
        {"namespace": namespace, "name": name, "workload": "", "fixable": False}
        | {"reason": "OtherNamespace", "message": f"its namespace says {why}; {REPORTED}"}
        for namespace, name, why in (
            ("team", "bare", enabled),
            ("team", "a-bare", enabled),
            ("of-a-revision", "bare", revision),
        )
    ]
    assert found["summary"]["reported"] == 4
    assert stale["pods"] == []
    # An application that serves only its model needs no right to list namespaces.
    model.denied = lambda method, path: path == "/api/v1/namespaces"
    only = await listed(model, served_namespaces=frozenset({"model"}))
    assert [each["namespace"] for each in only["pods"]] == [MODEL]


async def test_hold_counts_while_the_injector_is_the_same(model):
    def webhook(name, **labels):
        metadata = {"name": name, "uid": f"uid-of-{name}", "labels": labels}
        model.put("mutatingwebhookconfigurations", {"metadata": metadata})

    for name in ("tag", "injector"):
        webhook(name, app="sidecar-injector")
    values = service.select_fields(service.Eligibility, SETTINGS)
    scope = eligible.Scope(namespace_labels=MEMBER, **values)
    word = facts.compute_fingerprint(scope, ("uid-of-injector", "uid-of-tag"))
    remember(model, memory.Memory(holds={SET: a_hold(fingerprint=word, revision="")}))
    for change, holds in (
        (lambda: None, True),
        (lambda: webhook("of-another-team", app="policies"), True),
        (lambda: model.delete("mutatingwebhookconfigurations", "", "tag"), False),
    ):
        change()
        (pod,) = (await listed(model))["pods"]
        assert (pod["reason"] == "StillNoSidecar") is holds

    def fail(method, path):
        if path.endswith("/mutatingwebhookconfigurations"):
            raise Refused(code=500)

    model.before_answer = fail
    async with serving(model) as unit, unit.asked.get("/uninjected") as answer:
        assert answer.status == 502


@cases(
    ("pod", "values", "state", "message"),
    replacement_starts=(
        *(injected(without_sidecar("uid-2")), {}, pods.running()),
        "the replacement web-0 is not Ready after 10 minutes: main: running and not Ready",
    ),
    evicted_pod_has_ended=(
        *(without_sidecar(), {"deletionTimestamp": "2026-01-01T00:02:00Z"}, pods.ended()),
        "the evicted pod web-0 is still terminating",
    ),
)
async def test_round_goes_on_until_the_next_pod_is_ready(model, pod, values, state, message):
    pod["metadata"] |= values
    pod["status"]["conditions"][0]["status"] = "False"
    pod["spec"]["restartPolicy"] = "Never" if values else "Always"
    model.put("pods", pod)
    model.set_state(MODEL, "web-0", "main", state)
    since = service_world.now() - 700
    rounds = {SET: a_round(uid="uid-1", known=("uid-1",), since=since)}
    remember(model, memory.Memory(rounds=rounds, proven=PROVEN))
    (trouble,) = (await listed(model, proxy_version="", proxy_revision=""))["summary"]["troubles"]
    assert trouble["message"] == message


async def test_namespace_that_istiod_does_not_serve_is_told_by_its_root_certificate(model):
    model.delete("configmaps", MODEL, "istio-ca-root-cert")
    model.put("configmaps", {"metadata": {"name": "other", "namespace": MODEL}})
    (trouble,) = (await listed(model))["summary"]["troubles"]
    assert trouble["reason"] == "NotServed"


KYVERNO = 'admission webhook "validate.kyverno.svc" denied the request: no latest tags'
USED = "requested: pods=1, used: pods=5, limited: pods=5"
FAILED = 'create Pod web-0 in StatefulSet web failed error: pods "web-0" is forbidden'


def failed_create(model, kind, name, message, at, *, first=None, reason="FailedCreate"):
    when = datetime.datetime.fromtimestamp(at, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {"involvedObject": {"kind": kind, "name": name}, "reason": reason}
    event |= {"message": message, "lastTimestamp": when}
    metadata = {"name": f"{name}-{first or at}-{reason}", "namespace": MODEL}
    model.put("events", {**event, "metadata": metadata})


@cases(
    ("kind", "name", "message", "said"),
    deployment=(
        *("ReplicaSet", "web-2-5d8f7c9b4", f"Error creating: {KYVERNO}"),
        'webhook "validate.kyverno.svc" refuses: no latest tags',
    ),
    statefulset=(
        *("StatefulSet", "web-2", f"{FAILED}: exceeded quota: small, {USED}"),
        f"ResourceQuota small refuses: {USED}",
    ),
    words=("DaemonSet", "web-2", "Error creating: no web-2-x7k2p today", "no web-2 today"),
)
async def test_pods_that_are_refused_are_told_with_the_author_of_the_refusal(
    model, kind, name, message, said
):
    created = kind.replace("ReplicaSet", "Deployment")
    since = service_world.now()
    workload(model, f"{created.lower()}s", "web-2")
    model.get(f"{created.lower()}s", MODEL, "web-2")["status"]["desiredNumberScheduled"] = 1
    remember(model, memory.Memory(rounds={f"{created}/web-2": a_round(since=since)}))
    model.delete("pods", MODEL, "web-0")
    failed_create(model, kind, name, message, since + 2, first=since)
    failed_create(model, kind, name, "Error creating: in between", since + 1)
    failed_create(model, kind, "another", message, since)
    failed_create(model, kind, name, "Error creating: of another time", since - 60)
    failed_create(model, kind, name, "Back-off restarting", since, reason="BackOff")
    (trouble,) = (await listed(model))["summary"]["troubles"]
    assert trouble["message"].endswith(f"is refused: {said}")

    model.denied = lambda method, path: path.endswith("/events")
    assert "refused" not in str((await listed(model))["summary"]["troubles"])


@cases(
    ("policy", "refuses", "message"),
    in_order=("OrderedReady", False, "StatefulSet/web would recreate web-1 only after web-0"),
    parallel=("Parallel", False, "web-0 is not Ready, so StatefulSet/web waits"),
    refused=("OrderedReady", True, "is refused: ResourceQuota small refuses"),
)
async def test_pod_of_an_incomplete_workload_says_what_it_waits_for(
    model, policy, refuses, message
):
    workload(model, "statefulsets", "web")
    spec = model.get("statefulsets", MODEL, "web")["spec"]
    spec |= {"replicas": 2 + refuses, "podManagementPolicy": policy}
    for number in (0, 1):
        pod = without_sidecar(f"uid-{number}")
        pod["metadata"]["name"] = f"web-{number}"
        if not number:
            pod = injected(pod)
            pod["status"]["conditions"][0]["status"] = "False"
        model.put("pods", pod)
    # Nothing is being replaced, and the Event is old.
    failed_create(model, "StatefulSet", "web", f"{FAILED}: exceeded quota: small, {USED}", 1)
    request = memory.Request(id="1", at=service_world.now(), uids=("uid-1",), force=True)
    asked_for = memory.Memory(request=request, proven=PROVEN) if policy == "OrderedReady" else None
    remember(model, asked_for or memory.Memory(proven=PROVEN))
    (row,) = (await listed(model))["pods"]
    assert message in row["message"]
