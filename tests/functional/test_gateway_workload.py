"""A gateway of our own, as the real istiod completes its pods, where pods must be restricted."""

import contextlib
import uuid

import pytest
import yaml

from integrator_contract import names
from tests.api import ApiError
from tests.functional import ingress_world, istiod_world, loopback_istiod, model_world
from tests.kubernetes_objects import made, namespace_of
from tests.waiting import eventually


@pytest.fixture(scope="module")
def api(client, admin, kubeconfig, tmp_path_factory):
    """The API server, with an istiod that it asks."""
    istiod_world.install_definitions(client)
    folder = tmp_path_factory.mktemp("istiod")
    with loopback_istiod.installed(admin, kubeconfig, folder, *loopback_istiod.CLASSIC):
        yield admin


@pytest.fixture
def model(api):
    """A member of the mesh whose pods must be restricted."""
    name = f"edge-{uuid.uuid4().hex[:6]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted", names.INJECTION: "enabled"}
    created = api.create(namespace_of(name, **labels))
    with contextlib.suppress(ApiError):
        api.create(made("v1", "ServiceAccount", "default", name))
    yield name
    api.delete(created)


@pytest.fixture
def place(client, api, model):
    """The charm in the model, which has to serve it by a gateway of its own."""
    found = ingress_world.unserved(client, api, model)
    found.options = {"gateway_service": ""}
    yield found
    found.remove()


def ours(place):
    """Return the Deployment that the charm applies."""
    place.hook()
    return find(place, "Deployment")


def documented(place):
    """Apply the manifest of docs/how-to/kserve.md and return its Deployment."""
    for obj in yaml.safe_load_all(model_world.MANIFEST.read_text()):
        if obj["kind"] in ("ServiceAccount", "Deployment"):
            obj["metadata"]["namespace"] = place.model
            created = place.api.create(obj)
    return created


@pytest.mark.parametrize("written", [ours, documented])
def test_pod_of_our_gateway_is_completed_by_istiod_and_accepted_where_pods_are_restricted(
    place, written
):
    deployment = written(place)
    template = deployment["spec"]["template"]
    created, *_ = pods_of(place, deployment)
    (proxy,) = created["spec"]["containers"]
    assert proxy["image"] == "registry.example/proxyv2:1.31.1"
    assert "router" in proxy["args"]
    assert proxy["imagePullPolicy"] == "IfNotPresent"
    assert proxy["resources"] == template["spec"]["containers"][0]["resources"]
    assert template["metadata"]["labels"].items() <= created["metadata"]["labels"].items()
    security = proxy["securityContext"]
    assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert created["spec"].get("initContainers") is None
    assert created["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def find(place, kind):
    return place.api.get(kind, ingress_world.OWN, place.model)


def pods_of(place, deployment):
    """Wait for the pods of a Deployment, which stay Pending without a node."""
    marks = deployment["spec"]["selector"]["matchLabels"].items()
    labels = ",".join("=".join(pair) for pair in marks)
    number = deployment["spec"]["replicas"]
    assert eventually(lambda: len(place.api.list("Pod", place.model, labels)) == number)
    return place.api.list("Pod", place.model, labels)


def test_service_keeps_its_addresses_and_ports_as_far_as_its_type_has_them(place):
    def service(**options):
        place.options = {"gateway_service": "", **options}
        place.hook()
        return find(place, "Service")

    def node_ports(found):
        return [port.get("nodePort") for port in found["spec"]["ports"]]

    first = service()
    ports = node_ports(first)
    assert first["spec"]["type"] == "LoadBalancer"
    assert all(ports)
    for name, kept in (("NodePort", ports), ("LoadBalancer", ports), ("ClusterIP", [None] * 3)):
        found = service(gateway_service_type=name)
        assert found["spec"]["type"] == name
        assert node_ports(found) == kept
    last = service(gateway_service_type="NodePort")
    assert all(node_ports(last))
    assert last["spec"]["clusterIP"] == first["spec"]["clusterIP"]
    assert last["metadata"]["uid"] == first["metadata"]["uid"]


def test_second_event_writes_nothing_however_amounts_are_written(place, monkeypatch):
    place.options |= {"gateway_cpu": "02000m", "gateway_memory": "4096Mi"}
    place.hook()
    place.hook()
    written = []

    def note(request):
        if request.method != "GET" and "dryRun" not in request.url.params:
            written.append(f"{request.method} {request.url.path}")

    monkeypatch.setattr(place.client._client._client, "event_hooks", {"request": [note]})
    place.hook()
    assert written == []


def test_istioctl_analyze_has_nothing_to_say(place, tmp_path):
    place.hook()
    pods = pods_of(place, find(place, "Deployment"))
    objects = [place.api.get("Namespace", place.model), *pods, *place.owned()]
    done = istiod_world.istioctl(tmp_path, objects, "analyze", "--use-kube=false", "-A")
    assert "No validation issues found" in done.stdout + done.stderr, done.stdout + done.stderr
