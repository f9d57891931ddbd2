"""The Gateway API beside a real istiod, and what a node would do for one of its Gateways."""

import contextlib

import httpx2
import lightkube
import yaml
from lightkube.models.authentication_v1 import TokenRequestSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources import core_v1

from integrator_contract import names
from istio_integrator.ingress import gateway
from istio_integrator.ingress.gateways import managed
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors
from istio_integrator.relations import endpoints, kubeflow
from testbed import loopback, programs
from tests import echo, waiting
from tests.functional import ingress_world, loopback_istiod
from tests.functional import istiod_world as world

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


def run_workload(client, name, namespace, ports, needed=frozenset({80})):
    """Do for a managed Gateway what a node and a load balancer do; its proxy's token comes back.

    Args:
        client: Of the API server.
        name: Of the Deployment and its Service.
        namespace: Theirs.
        ports: Where Envoy listens, by the number of the Service's port.
        needed: Of these, which the Service has to have by now.
    """

    def made():
        found = _get(client, core_v1.Service, name, namespace)
        return found if found and needed <= {one.port for one in found.spec.ports} else None

    service = waiting.eventually(made)
    assert service, f"istiod made no Service {namespace}/{name} with {needed}"
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


class Place(ingress_world.Place):
    """The charm's part with routes of the Gateway API."""

    def __init__(self, *given):
        super().__init__(*given)
        self.options["routing"] = "gateway-api"
        self.metadata = None
        self.controllers = []

    def run(self, client, *needed):
        """Have the workload serve the ports that its Service has."""
        ports = {80: self.port, 443: self.https_port}
        name = managed.deployment("istio")
        return run_workload(client, name, ingress_world.MODEL, ports, frozenset(needed))

    def bags(self, endpoint):
        """What the others wrote; controllers say nothing."""
        if endpoint == kubeflow.GATEWAY_METADATA:
            return [endpoints.Bag(7, name, {}) for name in self.controllers]
        return super().bags(endpoint)

    def write(self, endpoint, bag):
        """Keep what the others are told of the Gateway of the Gateway API, too."""
        super().write(endpoint, bag)
        if endpoint == kubeflow.GATEWAY_METADATA:
            self.metadata = bag[kubeflow.METADATA]


@contextlib.contextmanager
def furnished(client, kubeconfig, folder, more=(), namespaces=("shop",)):
    """Run istiod, with applications of the model and a service to ask; nothing serves yet.

    Args:
        client: Of the API server.
        kubeconfig: Of the same.
        folder: For files.
        more: Ports of further Services in the model, by name.
        namespaces: Those of others; the first one has an application.
    """
    api = world.install_definitions(client)
    install_definitions(client)
    with contextlib.ExitStack() as stack:
        application = stack.enter_context(echo.serving(echo.Application))
        authorization = stack.enter_context(echo.serving(echo.Authorization))
        with contextlib.suppress(errors.ConflictError):
            api.create(ingress_world.namespace("istio-system"))
        xds = stack.enter_context(istiod(folder, kubeconfig))
        ports = loopback.free_ports(3)
        model = ingress_world.MODEL
        there = [
            *map(ingress_world.namespace, (model, *namespaces)),
            *ingress_world.service(model, "kfp", application.server_port),
            *ingress_world.service(model, "dashboard", application.server_port),
            *ingress_world.service(namespaces[0], "web", application.server_port),
            *ingress_world.service(model, "oidc", authorization.server_port),
        ]
        for name, served in dict(more).items():
            there += ingress_world.service(model, name, served)
        for obj in there:
            api.create(obj)
        stack.callback(_leave, api, (model, *namespaces))
        assert waiting.eventually(lambda: api.get(charm_cluster.GATEWAY_CLASS, "istio"))
        found = Place(api, ports, application.asked, authorization.asked)
        found.requests = [
            ingress_world.request(1, "dashboard", "/", "/"),
            ingress_world.request(2, "kfp", "/kfp", None),
            ingress_world.request(3, "dashboard", "/kfp/nested/", "/"),
        ]
        found.auths = [ingress_world.COMPLETE]
        found.folder, found.xds = folder, xds
        yield found


@contextlib.contextmanager
def serving(client, kubeconfig, folder, more=()):
    """Run what istiod deploys for our Gateway, too."""
    with furnished(client, kubeconfig, folder, more) as found:
        found.before = found.reconcile()
        token = found.run(client, 80)
        labels = {names.GATEWAY_NAME: gateway.NAME}
        with world.gateway(
            folder, found.xds, found.admin, token, namespace=ingress_world.MODEL, labels=labels
        ):
            yield found


OURS = {"name": gateway.NAME, "namespace": ingress_world.MODEL}


def route(name, *rules, kind="HTTPRoute", namespace="shop", parent=OURS, **more):
    """Somebody's route from a namespace of their own, on our Gateway unless said otherwise."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [parent], "rules": [*rules], **more},
    }


def certificate(folder):
    """The Secret in the model that its Gateway serves HTTPS with."""
    metadata = {"name": ingress_world.SECRET, "namespace": ingress_world.MODEL}
    return {**ingress_world.secret(folder), "metadata": metadata}


def _leave(api, names):
    for name in names:
        api.delete(ingress_world.namespace(name))
    assert waiting.eventually(
        lambda: not any(api.get(charm_cluster.NAMESPACE, name) for name in names)
    )
