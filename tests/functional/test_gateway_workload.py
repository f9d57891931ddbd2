"""A gateway of our own, as the real istiod completes its pods, where pods must be restricted."""

import contextlib
import uuid

import pytest
import yaml

from integrator_contract import names
from istio_integrator.config import config
from istio_integrator.ingress.gateways import own
from istio_integrator.kube import cluster, errors, manifests
from tests.functional import charm_parts, istiod_world, loopback_istiod, model_world
from tests.kubernetes_objects import made, namespace_of, pod
from tests.waiting import eventually

OWN = "istio-integrator-gateway"


@pytest.fixture(scope="module")
def api(client, kubeconfig, tmp_path_factory):
    """The API server, with an istiod that it asks."""
    api = istiod_world.install_definitions(client)
    folder = tmp_path_factory.mktemp("istiod")
    with loopback_istiod.installed(api, kubeconfig, folder, *loopback_istiod.CLASSIC):
        yield api


@pytest.fixture
def model(api):
    """A member of the mesh whose pods must be restricted."""
    name = f"edge-{uuid.uuid4().hex[:6]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted", names.INJECTION: "enabled"}
    created = api.create(namespace_of(name, **labels))
    with contextlib.suppress(errors.ConflictError):
        api.create(made("v1", "ServiceAccount", "default", name))
    yield name
    api.delete(created)


def deployment(model):
    context = {
        "name": "gateway",
        "account": "gateway",
        "model": model,
        "pod_labels": {"istio": "gateway"},
        "inject_labels": {names.INJECT: "true"},
        "options": config.Config(),
    }
    rendered = manifests.render(own.FOLDER, context)
    return {obj["kind"]: obj for obj in rendered}


def documented(_):
    """What docs/how-to/kserve.md has people apply."""
    return {obj["kind"]: obj for obj in yaml.safe_load_all(model_world.MANIFEST.read_text())}


@pytest.mark.parametrize("written", [deployment, documented])
def test_pod_of_our_gateway_is_completed_by_istiod_and_accepted_where_pods_are_restricted(
    api, model, written
):
    objects = written(model)
    account = objects["ServiceAccount"]
    account["metadata"]["namespace"] = model
    api.create(account)
    workload = objects["Deployment"]
    workload["metadata"]["namespace"] = model
    # The API server's defaults are part of what istiod gets to see.
    template = api.create(workload)["spec"]["template"]
    created = api.create(pod("gateway-0", model, template["metadata"], **template["spec"]))
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


@pytest.fixture
def run(api, model):
    """Have the charm run its gateway, as each of a life's options say."""

    def part(**options):
        scope = charm_parts.context(api, model, mesh=charm_parts.ALIVE, **options)
        return own.OwnGateway(scope)

    yield part
    part()._situation.manifests.remove(own.FOLDER)


def find(api, model, kind):
    return api.get(kind, OWN, model)


def pods_of(api, model, number):
    """Wait for the pods of the Deployment, which nobody runs without a node."""
    marks = {names.OWNER: f"{model}.istio-integrator"}
    assert eventually(lambda: len(api.list(cluster.POD, model, marks)) == number)
    return api.list(cluster.POD, model, marks)


def test_service_keeps_its_addresses_and_ports_as_far_as_its_type_has_them(api, model, run):
    def service():
        return find(api, model, cluster.SERVICE)

    def node_ports():
        return [port.get("nodePort") for port in service()["spec"]["ports"]]

    run().apply()
    first, ports = service(), node_ports()
    assert first["spec"]["type"] == "LoadBalancer"
    assert all(ports)
    for name, kept in (("NodePort", ports), ("LoadBalancer", ports), ("ClusterIP", [None] * 3)):
        run(gateway_service_type=name).apply()
        assert service()["spec"]["type"] == name
        assert node_ports() == kept
    run(gateway_service_type="NodePort").apply()
    assert all(node_ports())
    assert service()["spec"]["clusterIP"] == first["spec"]["clusterIP"]
    assert service()["metadata"]["uid"] == first["metadata"]["uid"]


def test_second_event_writes_nothing_however_amounts_are_written(api, model, run, monkeypatch):
    part = run(gateway_cpu="02000m", gateway_memory="4096Mi")
    part.apply()
    written = charm_parts.written_by(api, monkeypatch)
    part.apply()
    assert written == []


def test_istioctl_analyze_has_nothing_to_say(api, model, run, tmp_path):
    run().apply()
    own = manifests.Manifests(api, model=model, application=charm_parts.APP)
    objects = [api.get(cluster.NAMESPACE, model), *pods_of(api, model, 2), *own.owned()]
    done = istiod_world.istioctl(tmp_path, objects, "analyze", "--use-kube=false", "-A")
    assert "No validation issues found" in done.stdout + done.stderr, done.stdout + done.stderr
