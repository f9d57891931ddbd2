"""The Gateway API beside a real istiod, and what a node would do for one of its Gateways."""

import contextlib

import httpx2
import lightkube
import yaml
from lightkube.models.authentication_v1 import TokenRequestSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources import core_v1

from istio_integrator.kube import cluster as charm_cluster
from testbed import programs
from tests import waiting
from tests.functional import istiod_world as world
from tests.functional import loopback_istiod

GROUP = "gateway.networking.k8s.io"
GATEWAYS = lightkube.generic_resource.create_namespaced_resource(
    GROUP, "v1", "Gateway", "gateways"
)
CLASSES = lightkube.generic_resource.create_global_resource(
    GROUP, "v1", "GatewayClass", "gatewayclasses"
)
DEFINITIONS = lightkube.generic_resource.create_global_resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)


def definitions():
    """The definitions of the pinned Gateway API, its standard channel."""
    folder = programs.ensure(["gateway-api"])["gateway-api"] / "share" / "definitions"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = [
        document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.load_all(path.read_text(), Loader=loader)
    ]
    return [one for one in found if one and one["kind"] == "CustomResourceDefinition"]


def install_definitions(client):
    """Have the API server serve the Gateway API."""
    for document in definitions():
        client.apply(DEFINITIONS(document), field_manager="test", force=True)
    assert waiting.eventually(lambda: _is_served(client))


def _is_served(client):
    try:
        return isinstance(list(client.list(GATEWAYS, namespace="default")), list)
    except (lightkube.ApiError, httpx2.HTTPStatusError):
        return False


@contextlib.contextmanager
def istiod(folder, kubeconfig, settings=None, environment=None):
    """istiod that serves the Gateway API and deploys gateways; its plain xDS port comes back."""
    loopback_istiod.write_files(folder, loopback_istiod.render())
    own = {
        "PILOT_ENABLE_GATEWAY_API": "true",
        # What a gateway's pod is made of is the injector's template.
        "INJECT_ENABLED": "true",
        "INJECTION_WEBHOOK_CONFIG_NAME": "",
        **(environment or {}),
    }
    with world.istiod(folder, kubeconfig, settings, own) as xds:
        yield xds


def conditions(client, name, namespace):
    """What istiod says of a Gateway."""
    found = client.get(GATEWAYS, name, namespace=namespace)
    said = charm_cluster.at(found, "status").get("conditions", ())
    return {one["type"]: (one["status"], one["reason"]) for one in said}


def run_workload(client, name, namespace, ports):
    """Do for a managed Gateway what a node and a load balancer do; its proxy's token comes back.

    Args:
        client: Of the API server.
        name: Of the Deployment and its Service.
        namespace: Theirs.
        ports: Where Envoy listens, by the number of the Service's port.
    """
    service = waiting.eventually(lambda: _get(client, core_v1.Service, name, namespace))
    assert service, f"istiod made no Service {namespace}/{name}"
    listed = [
        {"name": one.name, "port": one.port, "targetPort": ports.get(one.port, one.port)}
        for one in service.spec.ports
    ]
    # istiod says nothing about the target ports, which a test without rights can't listen at.
    client.patch(
        core_v1.Service,
        name,
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"ports": listed},
        },
        namespace=namespace,
        patch_type=lightkube.types.PatchType.APPLY,
        field_manager="test",
        force=True,
    )
    status = {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}
    client.patch(core_v1.ServiceStatus, name, {"status": status}, namespace=namespace)
    api = charm_cluster.Cluster(client)
    api.apply(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [world.own_address()], "conditions": {"ready": True}}],
            "ports": [
                {"name": one["name"], "port": one["targetPort"], "protocol": "TCP"}
                for one in listed
            ],
        }
    )
    spec = TokenRequestSpec(audiences=["istio-ca"])
    wanted = core_v1.ServiceAccountToken(metadata=ObjectMeta(), spec=spec)
    return client.create(wanted, name, namespace=namespace).status.token


def _get(client, kind, name, namespace):
    try:
        return client.get(kind, name, namespace=namespace)
    except lightkube.ApiError:
        return None
