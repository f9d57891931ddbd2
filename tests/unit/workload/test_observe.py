"""The charm is told when what it rests on changed by another's hand, and not otherwise."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from integrator_contract import names
from integrator_contract.service import Gateway
from tests.unit.cases import cases, row
from tests.unit.workload import service_world
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.service_world import MODEL, Service

MESH, SPACE = "istio-system", "istio-ingress"
OWNER = names.name_owner(MODEL, service_world.APPLICATION)
Object = dict[str, Any]


@contextlib.asynccontextmanager
async def observing(
    *present: tuple[str, Object], gateway: str | None = None, joined: bool = True, last: str = ""
) -> AsyncIterator[tuple[FakeApiserver, Service]]:
    """Observe the mesh, and the model's gateway if there is one.

    The objects of the kind `last` are listed after all others.
    """
    cluster = FakeApiserver()
    if last:
        cluster.failures.append((last, 500, {}))
    async with cluster:
        cluster.namespace(MODEL)
        for plural, item in present:
            cluster.put(plural, item)
        home, _, name = (gateway or "").partition("/")
        selector = {"istio": "gateway", "app": "edge"} if name == "gateway" else {}
        named = Gateway(namespace=home, name=name, selector=selector, secrets=("kf-tls", COPY))
        observed = None if gateway is None else named
        async with service_world.running(cluster, gateway=observed, joined=joined) as service:
            await asyncio.sleep(5)
            assert service.told() == 0 or not joined
            yield cluster, service


async def is_told(
    plural: str, before: Object | None, after: Object | None, **options: Any
) -> bool:
    async with observing(*([(plural, before)] if before else []), **options) as (cluster, service):
        if after:
            cluster.put(plural, after)
        elif before:
            cluster.delete(plural, before["metadata"]["namespace"], before["metadata"]["name"])
        await asyncio.sleep(5)
        return service.told() > 0


def written(item: Object, applied: str = "a", **labels: str) -> Object:
    """Return an object of the model as the charm makes it, with the hash of what it applied."""
    metadata = {"annotations": {names.APPLIED_HASH: applied}, "uid": "ours", "namespace": MODEL}
    labels = {names.OWNER: OWNER, **labels}
    return {**item, "metadata": {**item["metadata"], **metadata, "labels": labels}}


def injector(name: str = "istio-sidecar-injector", **metadata: Any) -> Object:
    services = [None, {"namespace": MESH, "name": "istiod"}]
    return {
        "metadata": {"name": name, "uid": name, "generation": 1, **metadata},
        "webhooks": [{"name": "x", "clientConfig": {"service": each}} for each in services],
    }


def deployment(
    name: str, namespace: str, ready: int = 1, generation: int = 1, **labels: str
) -> Object:
    meta = {"name": name, "namespace": namespace, "generation": generation, "labels": labels}
    return {"metadata": meta, "spec": {"replicas": 2}, "status": {"readyReplicas": ready}}


FAILED = {"type": "ReplicaFailure"}


def webhook(generation: int = 1, applied: str = "a", ready: int = 1, **status: Any) -> Object:
    """Return the Deployment of our webhook, after so many changes of its specification."""
    made = deployment("x", MODEL, ready, generation)
    made["status"] |= status
    return written(made, applied, **{names.COMPONENT: "admission-webhook"})


REFUSED, ADMITTED = (
    webhook(ready=0, conditions=[{"type": kind, "status": "True"}, {**FAILED, "status": status}])
    for kind, status in (("Available", "True"), ("Progressing", "False"))
)
INJECTORS, WORKLOADS = "mutatingwebhookconfigurations", "deployments"
JOINED = {"istio-injection": "enabled"}


def model(ours: dict[str, str] | str = "", labels: Object | None = None) -> Object:
    """Return the model's namespace, with what the charm wrote down of the labels it set."""
    said = ours if isinstance(ours, str) else json.dumps({"owner": "a.b", "set": ours})
    annotations = {names.MEMBERSHIP: said} if said else {}
    return {"metadata": {"name": MODEL, "labels": labels or {}, "annotations": annotations}}


def profile(**labels: str) -> Object:
    """Return a profile's namespace."""
    marked = {names.PART_OF: names.PROFILE, **labels}
    return {"metadata": {"name": "kf-user", "labels": marked}}


def node(*networks: str) -> Object:
    spec = {"podCIDRs": list(networks)} if networks else {}
    return {"metadata": {"name": "node-1"}, "spec": spec}


def beside(item: Object) -> Object:
    """Return an object in the namespace of the named gateway."""
    return {**item, "metadata": {**item["metadata"], "namespace": SPACE}}


DELETED_MODEL = {"metadata": {**model()["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@cases(
    ("plural", "before", "after", "want"),
    {"plural": "namespaces", "want": True},
    injector_comes=(INJECTORS, None, injector(), True),
    other_webhook=(INJECTORS, None, injector("other"), False),
    same_injector=(INJECTORS, injector(), injector(), False),
    injector_changed=(INJECTORS, injector(), injector(generation=2), True),
    injector_made_again=(INJECTORS, injector(), injector(uid="another"), True),
    injector_labelled=(INJECTORS, injector(), injector(labels={"istio.io/rev": "1"}), True),
    injector_annotated=(INJECTORS, injector(), injector(annotations={"a": "b"}), False),
    tag_comes=(INJECTORS, None, injector("istio-revision-tag-prod"), True),
    model_labelled=("namespaces", None, model(labels=JOINED), True),
    model_annotated=("namespaces", None, {"metadata": {"name": MODEL, "annotations": {}}}, False),
    model_is_deleted=("namespaces", model(), DELETED_MODEL, True),
    any_application=(WORKLOADS, None, deployment("x", MODEL), False),
    # What the charm writes itself is no news.
    webhook_ready=(WORKLOADS, None, webhook(), True),
    webhook_made=(WORKLOADS, None, webhook(ready=0), False),
    webhook_answers=(WORKLOADS, webhook(ready=0), webhook(), True),
    webhook_answers_no_more=(WORKLOADS, webhook(), webhook(ready=0), True),
    webhook_rolling=(WORKLOADS, webhook(ready=2), webhook(ready=3), False),
    webhook_refused=(WORKLOADS, webhook(ready=0), REFUSED, True),
    webhook_refused_as_before=(WORKLOADS, REFUSED, REFUSED, False),
    webhook_starts=(WORKLOADS, webhook(ready=0), ADMITTED, False),
    webhook_refused_no_more=(WORKLOADS, REFUSED, ADMITTED, True),
    webhook_written_by_the_charm=(WORKLOADS, webhook(), webhook(2, "b"), False),
    webhook_edited=(WORKLOADS, webhook(), webhook(2), True),
    webhook_deleted=(WORKLOADS, webhook(), None, True),
    webhook_elsewhere=(WORKLOADS, None, beside(webhook()), False),
    webhook_edited_early=(WORKLOADS, webhook(ready=0), webhook(2, ready=0), True),
    model_joined=("namespaces", model(), model(JOINED, JOINED), False),
    model_left=("namespaces", model(JOINED, JOINED), model({}), False),
    label_taken_away=("namespaces", model(JOINED, JOINED), model(JOINED), True),
    label_changed=row(before=model(JOINED, JOINED), after=model(JOINED, {names.INJECTION: "x"})),
    label_beside_ours=row(before=model(JOINED, JOINED), after=model(JOINED, {**JOINED, "a": "b"})),
    profile_comes=("namespaces", None, profile(), True),
    profile_labelled=("namespaces", profile(), profile(**JOINED), True),
    profile_of_a_revision=(*("namespaces", profile(), profile(**{names.REVISION: "1-31"}), True),),
    profile_served=("namespaces", profile(), profile(**{names.SERVED: "false"}), True),
    profile_claimed=("namespaces", profile(), profile(**{names.SERVED_BY: OWNER}), False),
    no_profile=("namespaces", None, {"metadata": {"name": "kf-user", "labels": JOINED}}, False),
    node_joins=("nodes", node(), node("10.1.7.0/24"), True),
    node_has_no_network=("nodes", None, node(), False),
    node_beats=("nodes", node("10.1.7.0/24"), {**node("10.1.7.0/24"), "status": {"a": 1}}, False),
    no_record=("namespaces", model(), model("no record", {"team": "a"}), True),
    record_of_no_shape=("namespaces", model(), model('{"set": [["a"]]}', {"team": "a"}), True),
)
async def test_charm_is_told_of_a_change_of_the_mesh_that_matters(
    plural: str, before: Object | None, after: Object | None, want: bool
):
    assert await is_told(plural, before, after) is want


def backend(service: str = "istiod", namespace: str = MESH, *, ready: bool | None) -> Object:
    labels = {"kubernetes.io/service-name": service, "app": "istiod"}
    metadata = {"name": f"{service}-1", "namespace": namespace, "labels": labels}
    known = {} if ready is None else {"ready": ready}
    endpoints = [{"conditions": each} for each in ({"ready": False}, known)]
    return {"metadata": metadata, "endpoints": endpoints}


async def test_istiod_behind_the_injector_is_observed_wherever_it_is_and_until_it_goes():
    istiod = deployment("istiod", MESH, 2, app="istiod")
    canary = injector("istio-revision-tag-canary")
    canary["webhooks"][1]["clientConfig"]["service"] = {"namespace": "edge", "name": "istiod-2"}
    present = [(INJECTORS, canary), (INJECTORS, injector())]
    present += [("endpointslices", backend(ready=True)), (WORKLOADS, istiod)]
    async with observing(*present) as (cluster, service):
        for number, change in enumerate(
            (
                ("endpointslices", {**backend(ready=True), "endpoints": None}),
                # A missing condition means ready.
                ("endpointslices", backend(ready=None)),
                ("endpointslices", backend("istiod-2", "edge", ready=True)),
                ("endpointslices", backend(ready=False)),
                (WORKLOADS, deployment("istiod", MESH, 1, app="istiod")),
            ),
            1,
        ):
            cluster.put(*change)
            await until(lambda number=number: service.told() == number, seconds=90)
        cluster.put("endpointslices", backend(ready=False))
        # Nobody named these.
        cluster.put("endpointslices", backend("another", ready=False))
        cluster.put("endpointslices", backend(namespace="tenant", ready=True))
        cluster.put(WORKLOADS, deployment("istiod", "tenant", app="istiod"))
        await asyncio.sleep(60)
        assert service.told() == 5
        cluster.put(WORKLOADS, deployment("istiod", MESH, 1, 2, app="istiod"))
        await until(lambda: service.told() == 6)
        cluster.delete(INJECTORS, "", "istio-sidecar-injector")
        cluster.delete(WORKLOADS, MESH, "istiod")
        await asyncio.sleep(20)
        service.noticed.clear()
        cluster.put(WORKLOADS, istiod)
        await asyncio.sleep(5)
        assert not service.told()


@cases(
    ("plural", "item"),
    endpoints=("endpointslices", backend(ready=True)),
    deployment=(WORKLOADS, deployment("istiod", MESH, app="istiod")),
)
async def test_istiod_that_is_listed_before_the_injector_is_observed(plural: str, item: Object):
    async with observing((INJECTORS, injector()), (plural, item), last=INJECTORS) as (
        cluster,
        service,
    ):
        cluster.delete(plural, MESH, item["metadata"]["name"])
        await until(service.told, seconds=10)


@cases("code", without_the_right=403, before_the_definition=404)
async def test_what_may_not_be_watched_is_asked_for_again(code: int):
    async with observing(("gateways", ours()), gateway=NAMED) as (cluster, service):
        changes = ((INJECTORS, injector()), ("gateways", ours(2)), ("/api/v1/pods", pod()))
        cluster.failures = [(path, code, {}) for path, _ in (*changes, changes[-1])]
        cluster.end_watches()
        await asyncio.sleep(5)
        assert not cluster.failures
        for number, (path, item) in enumerate(changes, 1):
            cluster.put(path.rpartition("/")[2], item)
            await until(lambda number=number: service.told() == number)


@cases(("ready", "want"), waits_for_it=(1, 1), not_ready=(0, 0))
async def test_charm_that_waits_is_told_of_a_webhook_that_was_ready_before(ready: int, want: int):
    async with observing((WORKLOADS, webhook(ready=ready)), joined=False) as (cluster, service):
        cluster.put(WORKLOADS, webhook(ready=ready))
        await asyncio.sleep(5)
        assert service.told() == want


# The model's gateway.

NAMED = f"{SPACE}/gateway"


def workload(*, ready: int = 1, namespace: str = SPACE) -> Object:
    metadata = {"name": "gateway", "namespace": namespace, "generation": 1}
    return {"metadata": metadata, "status": {"readyReplicas": ready}}


def pod(
    name: str = "gateway-0",
    of: str = "gateway-5",
    *,
    ready: bool = True,
    namespace: str = SPACE,
    label: str = "gateway",
    **metadata: Any,
) -> Object:
    """Return a pod of a ReplicaSet, or without one."""
    # Another controller added an owner that does not create pods.
    owners = [{"uid": f"of-{name}", "name": "x"}, {"uid": of, "name": of, "controller": True}]
    owners = owners if of else []
    known = {"name": name, "namespace": namespace, "labels": {"istio": label, "app": "edge"}}
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"metadata": {**known, "ownerReferences": owners, **metadata}, "status": status}


ENDED = {**pod("copy", of=""), "status": {"phase": "Succeeded"}}
FAILED_POD = {"phase": "Failed"}
GOING = "2026-01-01T00:00:00Z"


def service(
    port: int = 80, *, namespace: str = SPACE, name: str = "gateway", **selector: str
) -> Object:
    ports = [{"name": "http2", "port": port}]
    spec = {"selector": selector or {"istio": "gateway"}, "ports": ports}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def bare(generation: int = 1) -> Object:
    return {"metadata": {"name": "web", "namespace": "shop", "generation": generation}}


def ours(generation: int = 1, applied: str = "a", **labels: str) -> Object:
    return written(bare(generation), applied, **labels)


def guard(hosts: str, generation: int = 1, namespace: str = SPACE) -> Object:
    """Return the EnvoyFilter of another model's integrator."""
    metadata = {"name": "theirs", "namespace": namespace, "generation": generation}
    labels, annotations = {names.OWNER: "kf-2.mesh-2"}, {names.HOSTS: hosts}
    return {"metadata": {**metadata, "labels": labels, "annotations": annotations}}


def of_istiod(item: Object) -> Object:
    """Return an object as istiod makes it for our Gateway of the Gateway API."""
    labels = {"gateway.networking.k8s.io/gateway-name": "kubeflow-gateway"}
    return {**item, "metadata": {**item["metadata"], "namespace": MODEL, "labels": labels}}


COPY = "the-charm-s-copy"


def secret(name: str, text: str = "a", namespace: str = SPACE, applied: str = "") -> Object:
    marks = {names.APPLIED_HASH: applied} if applied else {}
    meta = {"name": name, "namespace": namespace, "annotations": marks}
    return {"metadata": meta, "data": {"tls.crt": "a", "tls.key": text}}


COPIED = secret(COPY, applied="a")


def checked(item: Object) -> Object:
    """Return a Secret that a controller annotated."""
    annotations = {**item["metadata"]["annotations"], "checked": "again"}
    return {**item, "metadata": {**item["metadata"], "annotations": annotations}}


@cases(
    ("named", "plural", "before", "after", "want"),
    {"named": NAMED, "plural": "envoyfilters", "want": False},
    comes=(NAMED, "pods", None, pod(), True),
    comes_and_is_not_ready=(NAMED, "pods", None, pod(ready=False), True),
    ready=(NAMED, "pods", pod(ready=False), pod(), True),
    ready_no_more=(NAMED, "pods", pod(), pod(ready=False), True),
    scaled=(NAMED, "pods", pod(), pod("gateway-1"), False),
    scaled_and_not_ready=(NAMED, "pods", pod(), pod("gateway-1", ready=False), False),
    next_revision=(NAMED, "pods", pod(), pod("gateway-1", "gateway-6"), True),
    begins_to_go=(NAMED, "pods", pod(), pod(deletionTimestamp=GOING), True),
    deleted=(NAMED, "pods", pod(), None, True),
    bare_pod=(NAMED, "pods", pod(), pod("copy", of=""), True),
    bare_pod_that_has_ended=(NAMED, "pods", pod(), ENDED, False),
    bare_pod_that_has_failed=(NAMED, "pods", pod(), {**ENDED, "status": FAILED_POD}, False),
    relabelled=(NAMED, "pods", pod(), pod(label="other"), True),
    of_another_gateway=(NAMED, "pods", None, pod(label="other"), False),
    of_another_application=(NAMED, "pods", None, pod(labels={"istio": "gateway"}), False),
    bare_pod_elsewhere=(NAMED, "pods", pod(of=""), pod(of="", namespace="tenant"), True),
    of_a_stateful_set_elsewhere=(NAMED, "pods", pod(), pod("x-0", "x", namespace="tenant"), True),
    deployment_that_says_it_is_a_gateway=(NAMED, WORKLOADS, None, workload(), False),
    without_a_selector=(f"{SPACE}/bare", WORKLOADS, None, workload(namespace=MODEL), False),
    gateway_of_another_team=(NAMED, "gateways", None, bare(), False),
    gateway_made=(NAMED, "gateways", None, ours(), False),
    gateway_written_by_the_charm=(NAMED, "gateways", ours(), ours(2, "b"), False),
    gateway_edited=(NAMED, "gateways", ours(), ours(2), True),
    gateway_deleted=(NAMED, "gateways", ours(), None, True),
    gateway_elsewhere=(NAMED, "gateways", None, beside(ours()), False),
    gateway_of_another_application=row(
        plural="gateways", before=None, after=ours(**{names.OWNER: "another.one"})
    ),
    service_comes=(NAMED, "services", None, service(), True),
    service_has_another_port=(NAMED, "services", service(), service(8080), True),
    service_is_touched=(NAMED, "services", service(), service(), False),
    service_leads_elsewhere=(NAMED, "services", service(), service(app="other"), True),
    service_has_another_name=(NAMED, "services", None, service(name="other"), False),
    service_elsewhere=(NAMED, "services", None, service(namespace="shop"), False),
    guard_of_another_model=(NAMED, "envoyfilters", None, guard("a.example.com"), True),
    hosts_of_another_model=row(before=guard("a.example"), after=guard("b.example"), want=True),
    routes_of_another_model=row(before=guard("a.example.com"), after=guard("a.example.com", 2)),
    guard_of_another_gateway=row(before=None, after=guard("a.example.com", namespace="shop")),
    filter_of_another_team=row(before=None, after={"metadata": {"name": "x", "namespace": SPACE}}),
    guard_made_beside_the_gateway=row(before=None, after=beside(ours())),
    guard_edited_beside_the_gateway=row(before=beside(ours()), after=beside(ours(2)), want=True),
    certificate_made=row(plural="secrets", before=None, after=secret("kf-tls"), want=True),
    certificate_renewed=(NAMED, "secrets", secret("kf-tls"), secret("kf-tls", "b"), True),
    certificate_annotated=(NAMED, "secrets", secret("kf-tls"), checked(secret("kf-tls")), False),
    secret_of_another_name=(NAMED, "secrets", None, secret("shop-tls"), False),
    secret_elsewhere=(NAMED, "secrets", None, secret("kf-tls", namespace="shop"), False),
    copy_made=(NAMED, "secrets", None, COPIED, False),
    copy_renewed=(NAMED, "secrets", COPIED, secret(COPY, "b", applied="b"), False),
    copy_overwritten=(NAMED, "secrets", COPIED, secret(COPY, "b", applied="a"), True),
    # Without a named gateway, what the charm or istiod makes in the model is looked at.
    guard_made=("", "envoyfilters", None, ours(), False),
    guard_written_by_the_charm=("", "envoyfilters", ours(), ours(2, "b"), False),
    guard_edited=("", "envoyfilters", ours(), ours(2), True),
    own_workload_made=("", WORKLOADS, None, written(workload(ready=0)), False),
    own_workload_ready=("", WORKLOADS, written(workload(ready=0)), written(workload()), True),
    own_workload_scaled=("", WORKLOADS, written(workload()), written(workload(ready=2)), False),
    own_service_written=row(
        named="", plural="services", before=written(service()), after=written(service(8080), "b")
    ),
    own_service_edited=("", "services", written(service()), written(service(8080)), True),
    istiods_service=("", "services", None, of_istiod(service()), True),
    istiods_service_edited=("", "services", of_istiod(service()), of_istiod(service(8080)), True),
    other_service=("", "services", None, service(namespace=MODEL), False),
    istiods_workload=("", WORKLOADS, None, of_istiod(workload()), True),
    gateway_of_another_namespace=("", WORKLOADS, None, beside(of_istiod(workload())), False),
    other_workload=("", WORKLOADS, None, workload(namespace=MODEL), False),
)
async def test_charm_is_told_of_a_gateways_change_that_matters(
    named: str, plural: str, before: Object | None, after: Object | None, want: bool
):
    assert await is_told(plural, before, after, gateway=named) is want
