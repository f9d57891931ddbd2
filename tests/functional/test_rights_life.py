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

from integrator_contract import names
from integrator_contract.reasons import Reason
from integrator_contract.seen import Seen
from istio_integrator.ingress import certificate, ingress
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import manifests
from istio_integrator.relations import endpoints, kubeflow
from tests import rights, workload_access
from tests.functional import (
    charm_parts,
    ingress_world,
    istiod_world,
    limits_world,
)
from tests.functional.limits_world import APP, World
from tests.kubernetes_objects import namespace_of
from tests.unit.workload.fake_apiserver import until


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
    made = workload_access.of_context(config)
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
    api.create(namespace_of(name))
    for obj in ingress_world.gateway_workload(ports, name, {"istio": name}):
        api.create(obj)
    yield name
    api.delete(namespace_of(name))


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
        given = {"mesh": charm_parts.ALIVE, "related": related, **named, **options}
        scope = charm_parts.context(held.app, held.model, **given)
        # Nothing runs, so that nothing serves what is removed.
        return ingress.Ingress(scope, look=lambda: Seen(of="", unseen=None))

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
    (resources.Deployment, "*", ""),
    (resources.DaemonSet, "*", ""),
    (observe.GatewayService, "*", ""),
    (observe.IstioGateway, "*", ""),
    (observe.EnvoyFilter, "*", ""),
    (resources.ConfigMap, "model", f"metadata.name={APP}-convergence"),
]


async def test_what_the_workload_watches_may_be_watched(api, namespace, untrusted):
    async with connected(untrusted) as connection:
        for kind, where, fields in WATCHED:
            place = namespace if where == "model" else where
            changes = watch.Watch(connection, kind, namespace=place, fields=fields).changes()
            async with asyncio.timeout(20), contextlib.aclosing(changes):
                async for change in changes:
                    if change.kind == "synced":
                        break
