"""What the application does in its life, with the shipped roles and held by the policy."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import lightkube
import pytest
from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell.kube import client as kube
from sidecar_lifecycle.shell.kube import events, watch
from sidecar_lifecycle.shell.observers import observe
from sidecar_lifecycle.shell.shutdown import sources

from integrator_contract import names, namespaces
from integrator_contract.reasons import Reason
from istio_integrator.ingress import certificate, ingress
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import manifests
from istio_integrator.relations import endpoints, kubeflow
from tests import rights, waiting, workload_access
from tests.functional import (
    charm_parts,
    convergence_world,
    ingress_world,
    istiod_world,
    limits_world,
)
from tests.functional.limits_world import APP, World
from tests.unit.workload.fake_apiserver import running_task, until


@pytest.fixture(scope="module")
def api(client: lightkube.Client) -> charm_cluster.Cluster:
    """An API server that serves Istio's kinds, as the administrator."""
    return istiod_world.install_definitions(client)


@pytest.fixture
def held(control_plane, api, namespace, untrusted) -> Iterator[World]:
    """An application without trust that the policy holds."""
    with lightkube.Client(config=untrusted) as client:
        world = World(namespace, api, charm_cluster.Cluster(client))
        with limits_world.limited(control_plane, world):
            yield world


@contextlib.asynccontextmanager
async def connected(config) -> AsyncIterator[kube.Client]:
    """The workload's connection, until the last of its sockets is closed."""
    sockets = asyncio.get_running_loop()._selector.get_map()
    before = len(sockets)
    made = kube.Client(workload_access.of_context(config))
    try:
        yield made
    finally:
        await made.close()
        await until(lambda: len(sockets) <= before)


@pytest.fixture
async def connection(held, untrusted) -> AsyncIterator[kube.Client]:
    """The workload's connection, with the same token."""
    async with connected(untrusted) as made:
        yield made


@pytest.fixture
def gateway_namespace(api, namespace):
    """A gateway workload in a namespace of its own."""
    name = f"{namespace}-gw"
    ports = [("http2", 80, 8080), ("https", 443, 8443)]
    api.create(ingress_world.namespace(name))
    for obj in ingress_world.gateway_workload(ports, name, {"istio": name}):
        api.create(obj)
    yield name
    api.delete(ingress_world.namespace(name))


def test_gateway_routes_certificate_and_annotations_come_and_go(
    api, control_plane, held, gateway_namespace
):
    elsewhere = rights.gateway_namespace(held.model, gateway_namespace, "gateway")
    control_plane.kubectl("apply", "-f", "-", text=elsewhere)
    related = charm_parts.Related()
    related.requests = [ingress_world.request(n, f"app-{n}", f"/{n}", None) for n in (1, 2)]
    related.auths = [ingress_world.COMPLETE]
    api.create(next(ingress_world.service(held.model, "oidc", 80)))
    backends = [{"service": "store", "port": 80}]
    calls = {"name": "calls", "listener": {"port": 80, "protocol": "GRPC"}, "backends": backends}
    config = {"config": json.dumps({"model": held.model, "grpc_routes": [calls]})}
    related.newer = [(kubeflow.INGRESS_ROUTE, endpoints.Bag(3, "store", config))]

    def part(**options):
        named = {"gateway_service": f"{gateway_namespace}/gateway", "hosts": "kf.example.com"}
        given = {**named, **options}
        scope = charm_parts.context(held.app, held.model, mesh=charm_parts.ALIVE, **given)
        return ingress.Ingress(scope, related)

    own = manifests.Manifests(held.app, model=held.model, application=APP)
    everything = manifests.Manifests(held.api, model=held.model, application=APP)
    part(gateway_service="").reconcile()
    kinds = {each["kind"] for each in everything.owned()}
    routed = {"DestinationRule", "VirtualService"}
    assert {"Deployment", "Role", "RoleBinding", "ServiceAccount", *routed} <= kinds
    assert "PodDisruptionBudget" in kinds
    part(gateway_service="", gateway_replicas=1, gateway_service_type="NodePort").reconcile()
    assert "PodDisruptionBudget" not in {each["kind"] for each in everything.owned()}
    part(gateway_service="", gateway_replicas=3, gateway_cpu="1").reconcile()
    assert "PodDisruptionBudget" in {each["kind"] for each in everything.owned()}
    related.requests.pop()
    shared = part(gateway_service_annotations="{example.com/name: kf}")
    shared.reconcile()
    service = held.api.get(charm_cluster.SERVICE, "gateway", gateway_namespace)
    assert service["metadata"]["annotations"]["example.com/name"] == "kf"
    shared._record.certificate_in = gateway_namespace
    name = own.secrets[certificate.SECRET_FOLDER]
    data = {"tls.crt": "", "tls.key": ""}
    shown = {"name": name, "namespace": gateway_namespace, "data": data}
    own.apply(certificate.SECRET_FOLDER, shown)
    assert held.api.get(charm_cluster.SECRET, name, gateway_namespace)
    shared.remove()
    assert everything.owned() == []
    assert held.api.get(charm_cluster.SECRET, name, gateway_namespace) is None
    service = held.api.get(charm_cluster.SERVICE, "gateway", gateway_namespace)
    assert "example.com/name" not in service["metadata"].get("annotations", {})


async def test_what_missed_its_sidecar_is_replaced(held, connection, kubeconfig):
    async with convergence_world.living(kubeconfig, held.model) as world:
        await world.workload("StatefulSet", "one")
        await world.workload("Deployment", "web")
        await world.join()

        async def converged():
            now = await world.injected()
            return sum(now.values()) == len(now) == 2

        async with world.converging(connection, restart_max_unavailable="1"):
            await world.until(converged)
        stored = await world.remembered()
    assert stored["metadata"]["name"] == f"{APP}-convergence"


async def test_leader_tells_of_pods_and_replaces_a_broken_one(held, connection):
    proxy = limits_world.pod(held.model, "broken")
    proxy["spec"]["containers"].append({"name": names.PROXY, "image": "none"})
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": held.model, "controller": True}
    found = held.api.get(charm_cluster.NAMESPACE, held.model)
    proxy["metadata"]["ownerReferences"] = [{**owner, "uid": found["metadata"]["uid"]}]
    held.api.create(proxy)
    where = kube.path(types.Pod, held.model, "broken")
    pod = types.decode_json(await connection.request("GET", where), types.Pod)
    reason = Reason.PROXY_LOST
    for _ in range(2):
        # Another unit says the same.
        recorder = events.Recorder(connection)
        recorder.record(pod, reason, "it is lost", "Warning")
        await recorder.drain(20)
    told = held.api.list(charm_cluster.kind("v1", "Event"), held.model)
    assert [each["reason"] for each in told].count(reason) == 1
    await connection.request("DELETE", where)


WATCHED = [
    (types.Namespace, "*", ""),
    (types.Pod, "*", ""),
    (types.MutatingWebhookConfiguration, "*", ""),
    (types.EndpointSlice, "*", ""),
    (observe.Deployment, "*", ""),
    (observe.DaemonSet, "*", ""),
    (observe.Service, "*", ""),
    (observe.Gateway, "*", ""),
    (observe.EnvoyFilter, "*", ""),
    (resources.ConfigMap, "model", f"metadata.name={APP}-convergence"),
]


@pytest.mark.parametrize("watched", WATCHED, ids=lambda each: each[0].__name__)
async def test_what_the_workload_watches_may_be_watched(api, namespace, untrusted, watched):
    kind, where, fields = watched
    place = namespace if where == "model" else where
    async with connected(untrusted) as connection, asyncio.timeout(20):
        changes = watch.watch(connection, kind, namespace=place, fields=fields)
        async with contextlib.aclosing(changes):
            async for change in changes:
                if change.kind == "synced":
                    break


def _named(kind: str, name: str, namespace: str) -> dict:
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}}


@pytest.fixture
def confined(control_plane, client, namespace, untrusted) -> Iterator[str]:
    """A labelled namespace in which, beside the model, pods may be seen; its role is bound there.

    As administrators do who take the ClusterRoleBinding of that role away.
    """
    role = f"{namespace}-{APP}-proxies"
    labelled = f"{namespace}-labelled"
    control_plane.kubectl("delete", "clusterrolebinding", role)
    control_plane.kubectl("create", "namespace", labelled)
    mark = "istio-integrator.charmhub.io/served=enabled"
    control_plane.kubectl("label", "namespace", labelled, mark)
    who = f"--serviceaccount={namespace}:{APP}"
    for each in (namespace, labelled):
        binding = ("create", "rolebinding", role, f"--clusterrole={role}", who)
        control_plane.kubectl("-n", each, *binding)

    def may(where: str) -> bool:
        asked = ("auth", "can-i", "list", "pods", where)
        account = f"--as=system:serviceaccount:{namespace}:{APP}"
        return control_plane.kubectl(*asked, account, check=False).stdout.strip() == "yes"

    places = [f"--namespace={each}" for each in (namespace, labelled)]
    assert waiting.eventually(lambda: not may("--all-namespaces") and all(map(may, places)))
    yield labelled
    control_plane.kubectl("delete", "namespace", labelled, "--wait=false")
    everywhere = ("create", "clusterrolebinding", role, f"--clusterrole={role}", who)
    control_plane.kubectl(*everywhere)


@pytest.mark.usefixtures("unreachable_node")
async def test_pods_are_watched_where_they_may_be_seen_when_not_everywhere(
    control_plane, held, confined, connection
):
    seen: set[str | None] = set()
    synced: set[str] = set()
    both = asyncio.Event()

    def note(change: watch.Change[types.Pod]) -> None:
        assert change.object is not None
        seen.add(change.object.metadata.namespace)

    def note_synced(namespace: str, _: set[str]) -> None:
        synced.add(namespace)
        if {held.model, confined} <= synced:
            both.set()

    served = sources.Namespaces(namespaces.Served(model=held.model))
    pods = sources.Pods(
        connection,
        served,
        on_change=note,
        on_synced=note_synced,
    )

    def changed(_: str) -> None:
        pods.namespaces_changed()

    for namespace in (held.model, confined, "default"):
        pod = limits_world.pod(namespace, "job", "default")
        pod["spec"] |= {"restartPolicy": "Never", "nodeName": "node-1"}
        pod["spec"]["containers"].append({"name": names.PROXY, "image": "none"})
        held.api.create(pod)
        status = json.dumps({"status": {"phase": "Running"}})
        run = ("-n", namespace, "patch", "pod", "job", "--subresource=status", "-p", status)
        control_plane.kubectl(*run)
    try:
        async with (
            running_task(served.follow(connection, changed)),
            running_task(pods.follow("*")),
            asyncio.timeout(30),
        ):
            await both.wait()
            assert pods.live
            assert seen == {held.model, confined}
    finally:
        with contextlib.suppress(Exception):
            control_plane.kubectl("-n", "default", "delete", "pod", "job", "--force")
