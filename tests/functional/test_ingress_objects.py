"""What we apply for an ingress, on a real API server with Istio's own definitions."""

import time

import lightkube
import pytest

from integrator_contract import names as known
from istio_integrator.ingress import ingress
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import manifests
from istio_integrator.relations import kubeflow
from tests.functional import charm_parts, istiod_world

LABELS = {"app": "gateway", "istio": "ingressgateway"}
AUTH = kubeflow.AuthRequest(
    service="oidc-gatekeeper",
    port=8080,
    allowed_request_headers=("cookie", "x-auth-token"),
    allowed_response_headers=("kubeflow-userid",),
)


@pytest.fixture(scope="module")
def api(client: lightkube.Client) -> charm_cluster.Cluster:
    """An API server that serves Istio's kinds."""
    return istiod_world.install_definitions(client)


def authorize(api, related, model, relation=9):
    """Relate an authorization service that there is."""
    metadata = {"name": AUTH.service, "namespace": model}
    ports = [{"name": "http", "port": AUTH.port}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    api.create({**service, "spec": {"ports": ports}})
    related.auths = [kubeflow.Received(relation, "oidc-gatekeeper", AUTH)]


@pytest.fixture
def gateway_namespace(api, namespace):
    """A gateway workload in a namespace of its own."""
    name = f"{namespace}-gw"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    metadata = {"name": "gateway", "namespace": name}
    labels = {**LABELS, "istio": name}
    container = {"name": "istio-proxy", "image": "proxy", "args": ["proxy", "router"]}
    api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )
    ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": ports},
        }
    )
    yield name
    api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


class Writes:
    """Counts what is written, and requests that only read."""

    def __init__(self, api, monkeypatch):
        self.names = []
        self.reads = 0
        for verb in ("get", "list"):
            monkeypatch.setattr(api, verb, self._read(getattr(api, verb)))
        for verb in ("apply", "create", "merge_patch", "delete"):
            monkeypatch.setattr(api, verb, self._counted(verb, getattr(api, verb)))

    def _read(self, act):
        def read(*given, **named):
            self.reads += 1
            return act(*given, **named)

        return read

    def _counted(self, verb, act):
        def counted(obj, *given, **named):
            if not named.get("dry_run"):
                self.names.append(f"{verb} {obj['kind']} {obj['metadata']['name']}")
            return act(obj, *given, **named)

        return counted


def part(api, model, gateway_namespace, related, **options):
    named = {"gateway_service": f"{gateway_namespace}/gateway", "hosts": "kf.example.com"}
    options = {**named, **options}
    scope = charm_parts.context(api, model, mesh=charm_parts.ALIVE, **options)
    return ingress.Ingress(scope, related)


def request(number, **changes):
    values = {"service": f"app-{number}", "port": 80, "prefix": f"/app-{number}/", **changes}
    return kubeflow.Received(number, f"app-{number}", kubeflow.IngressRequest(**values))


def names(api, model):
    kinds = [
        charm_cluster.kind("networking.istio.io/v1", "Gateway"),
        charm_cluster.kind("networking.istio.io/v1", "VirtualService"),
        charm_cluster.kind("networking.istio.io/v1alpha3", "EnvoyFilter"),
    ]
    own = manifests.Manifests(api, model=model, application="istio-integrator").owner
    return {kind.name: len(api.list(kind, labels={known.OWNER: own})) for kind in kinds}


def entries(api, model):
    kind = charm_cluster.VIRTUAL_SERVICE
    return sum("route" in entry for obj in api.list(kind, model) for entry in obj["spec"]["http"])


RECORD = "apply Secret istio-integrator-record"
ROUTES = "apply VirtualService istio-integrator-routes"


def test_two_hundred_relations_take_no_more_requests_than_one_and_are_written_once(
    api, namespace, gateway_namespace, monkeypatch
):
    related = charm_parts.Related()
    related.requests = [request(0)]
    authorize(api, related, namespace, relation=999)
    part(api, namespace, gateway_namespace, related).reconcile()
    writes = Writes(api, monkeypatch)
    part(api, namespace, gateway_namespace, related).reconcile()
    for_one, writes.reads = writes.reads, 0
    assert writes.names == []

    related.requests = [request(number) for number in range(200)]
    part(api, namespace, gateway_namespace, related).reconcile()
    assert entries(api, namespace) == 200
    assert writes.names == [RECORD, ROUTES]

    writes.names, writes.reads = [], 0
    part(api, namespace, gateway_namespace, related).reconcile()
    assert (writes.names, writes.reads) == ([], for_one)

    related.requests[7] = request(7, port=81)
    del related.requests[100]
    part(api, namespace, gateway_namespace, related).reconcile()
    # Access narrows, so all values are new.
    guard = f"apply EnvoyFilter istio-integrator.{namespace}.istio-integrator"
    assert writes.names == [RECORD, guard, ROUTES]
    assert entries(api, namespace) == 199


def test_deleted_model_takes_the_guard_in_another_namespace_along(api, gateway_namespace):
    model = f"{gateway_namespace}-model"
    created = api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": model}})
    related = charm_parts.Related()
    related.requests = [request(1)]
    part(api, model, gateway_namespace, related).reconcile()
    assert names(api, model)["EnvoyFilter"] == 1
    api.delete(created)
    deadline = time.monotonic() + 30
    while names(api, model)["EnvoyFilter"] and time.monotonic() < deadline:
        time.sleep(0.2)
    assert names(api, model) == {"Gateway": 0, "VirtualService": 0, "EnvoyFilter": 0}
