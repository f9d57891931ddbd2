"""One application with ingress relations on a small API server, event after event."""

import base64
import copy
import dataclasses
import json

import yaml
from ops import testing

from integrator_contract import names
from tests import asked, signing, tls_pairs
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import APPLICATION as OURS
from tests.unit.charm.charm_world import add_units, context, reach, results, state, workload

LABELS = {"app": "istio-ingressgateway", "istio": "ingressgateway"}
HOST = "kf.example.com"
NAMED = {"gateway_service": "istio-ingress/istio-ingressgateway", "hosts": HOST}
"""The options of a model that another team's gateway serves."""
OWN = {"gateway_service": ""}
"""The option of a model that a gateway of its own serves."""
OWNER = "istio-integrator.charmhub.io/owner"
OWN_LABELS = {"istio": f"{OURS}-gateway", OWNER: f"kf.{OURS}"}
"""Of the pods of the model's own gateway."""
AUTH = {"service": "oidc", "port": 8080, "allowed-request-headers": ["cookie"]}
AUTH |= {"allowed-response-headers": ["kubeflow-userid"]}


def connect_without_gateway(fake, monkeypatch):
    """Connect the charm to a cluster with Istio."""
    reach(fake, monkeypatch)
    fake_cluster.install_istio(fake)


def connect(fake, monkeypatch):
    """Connect the charm to a cluster with Istio and a gateway."""
    connect_without_gateway(fake, monkeypatch)
    install_gateway(fake)


def install_gateway(fake, namespace="istio-ingress"):
    """Add another team's ingress gateway with a Ready pod."""
    if fake.find("Namespace", namespace) is None:
        fake.namespace(namespace)
    proxy = {"name": "istio-proxy", "args": ["proxy", "router"]}
    spec = {"template": {"metadata": {"labels": LABELS}, "spec": {"containers": [proxy]}}}
    named = "istio-ingressgateway", namespace
    fake.put("Deployment", *named, spec=spec, status={"readyReplicas": 1})
    pod_of(fake, namespace)
    ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
    fake.put("Service", *named, spec={"selector": LABELS, "ports": ports})


def pod_of(
    fake,
    namespace="istio-ingress",
    *,
    of="ingress-5",
    name="gateway-0",
    args=("proxy", "router"),
    env=(),
    is_ending=False,
    **changes,
):
    """Add a gateway's pod, as the injector completes it; `of` is its ReplicaSet."""
    proxy = {"name": "istio-proxy", "args": [*args]}
    proxy["env"] = [{"name": "OTHER", "value": "x.y.svc"}, *env]
    ports = {"status-port": 15021, "http": 8080, "https": 8443}
    proxy["ports"] = [{"name": key, "containerPort": value} for key, value in ports.items()]
    logger = {"name": "logger", "args": ["router"]}
    found = {
        "labels": {**LABELS, "pod-template-hash": of.rpartition("-")[2]},
        "spec": {"serviceAccountName": "gateway", "containers": [logger, proxy]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    if of:
        owner = {"kind": "ReplicaSet", "name": of, "controller": True}
        found["ownerReferences"] = [{"kind": "Node", "name": "node"}, owner]
    if is_ending:
        found["deletionTimestamp"] = "2026-11-25T14:39:26Z"
    fake.put("Pod", name, namespace, **{**found, **changes})


def gateway_api_world(fake, monkeypatch):
    """Return a model with a route that the Gateway API is to serve, with one controller."""
    connect(fake, monkeypatch)
    for name, controller in (("a", "example.com/gateways"), ("mesh", names.GATEWAY_CONTROLLER)):
        fake.put("GatewayClass", name, "", spec={"controllerName": controller})
    controller = testing.Relation("gateway-metadata", remote_app_name="jupyter-controller")
    info = testing.Relation("gateway-info", remote_app_name="kserve-controller")
    found = World(fake, route(), auth(), controller, info, routing="gateway-api")
    found.base = {}
    return found


def program(fake, accepted="True", programmed="True", age=0, words="address pending"):
    """Have istiod say whether the Gateway is served; with an age, of an earlier generation."""
    obj = fake.find("Gateway", "kubeflow-gateway", "kf")
    generation = obj["metadata"].setdefault("generation", 2)
    said = {"observedGeneration": generation - age, "message": words}
    told = {"Accepted": accepted, "Programmed": programmed}
    conditions = [{**said, "type": key, "status": value} for key, value in told.items()]
    addresses = [{"type": "IPAddress", "value": "203.0.113.7"}]
    obj["status"] = {"conditions": conditions, "addresses": addresses}


def secret(fake, name, namespace, **labels):
    """Add a Secret of another owner, which a gateway may serve."""
    return fake.put("Secret", name, namespace, labels=labels, data=tls_pairs.pair())


def neighbour(fake, host="shop.example.com"):
    servers = [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": [host]}]
    fake.namespace("shop")
    spec = {"selector": {"istio": "ingressgateway"}, "servers": servers}
    return fake.put("Gateway", "web", "shop", spec=spec)


def sdi(endpoint, application, **data):
    bag = {"_supported_versions": "[v1]", "data": yaml.safe_dump(data)} if data else {}
    return testing.Relation(endpoint, remote_app_name=application, remote_app_data=bag)


def route(application="kfp-ui", **changes):
    data = {"service": application, "port": 3000, "prefix": f"/{application}", **changes}
    return sdi("ingress", application, **data)


def auth(**changes):
    return sdi("ingress-auth", "oidc-gatekeeper", **{**AUTH, **changes})


def authority():
    """Return the relation of an authority that has signed nothing yet."""
    return testing.Relation("certificates", remote_app_name="self-signed-certificates")


class World:
    """One application in the model `kf`, event after event."""

    def __init__(self, fake, *related, **config):
        self.fake = fake
        fake.put("Service", AUTH["service"])
        add_units(fake)
        self.ctx = context()
        self.related = [*related]
        self.secrets = set()
        self.files = None
        """The folder in which the workload's files stay from hook to hook."""
        self.config = config
        is_there = fake.find("Service", "istio-ingressgateway", "istio-ingress")
        self.base = NAMED if is_there else {}
        """Options that `config` may override."""

    def copy(self, monkeypatch):
        """Go on from here in a cluster of its own."""
        other = copy.copy(self)
        other.fake, other.related = copy.deepcopy(self.fake), [*self.related]
        reach(other.fake, monkeypatch)
        return other

    def run(self, event=None, units=1, *, leader=True):
        """Run a hook, and those that follow as long as the workload sees something else."""
        out = self.hook(event, units, leader=leader)
        if event or not leader:
            return out
        for _ in range(5):
            if not self.sees(out):
                return out
            out = self.hook()
        raise AssertionError("each hook changes what the next one sees")

    def sees(self, out):
        """Report to the charm what a hook wrote; tell whether the report has changed."""
        try:
            expected = results(self.ctx, out).expected
        except FileNotFoundError:
            return False
        return expected is not None and asked.SERVICE.sees(expected)

    def hook(self, event=None, units=1, *, leader=True):
        options = {**self.base, **self.config}
        container = workload(eligible=1, in_mesh=1, files=self.files)
        given = state(container, leader=leader, units=units, **options)
        given = dataclasses.replace(given, relations=set(self.related), secrets=self.secrets)
        out = self.ctx.run(event(self.ctx) if event else self.ctx.on.config_changed(), given)
        self.related = [out.get_relation(relation.id) for relation in self.related]
        self.secrets = out.secrets
        return out

    def status(self):
        return self.run().unit_status

    def remove(self):
        """Remove the last unit."""
        self.run(lambda ctx: ctx.on.remove(), units=0)

    def get_ready(self, name):
        """Make the pods of a Deployment Ready."""
        self.fake.find("Deployment", name, "kf")["status"] = {"readyReplicas": 2}
        self.run()

    def all(self, kind):
        """Return all objects of a kind that are ours."""
        return [
            obj
            for obj in self.fake.objects.values()
            if obj["kind"] == kind
            and obj["metadata"].get("labels", {}).get(OWNER) == OWN_LABELS[OWNER]
        ]

    def routes(self):
        """The names of what is served, one for each relation."""
        return sorted({entry["name"] for entry in self.http() if "route" in entry})

    def http(self):
        """The entries of all VirtualServices, in their order."""
        return [
            entry
            for obj in self.fake.objects.values()
            if obj["kind"] == "VirtualService"
            for entry in obj["spec"]["http"]
        ]

    def gateway(self):
        return self.fake.find("Gateway", "kubeflow-gateway", "kf")

    def guard(self, namespace="istio-ingress"):
        name = "istio-integrator.kf.mesh-2"
        return self.fake.find("EnvoyFilter", name, namespace)


def is_closed(guard):
    """Tell whether an EnvoyFilter lets no request reach a route."""
    filters = [
        each["patch"]["value"]["name"]
        for each in guard["spec"]["configPatches"]
        if each["applyTo"] == "HTTP_FILTER"
    ]
    return [name.rpartition(".")[2] for name in filters] == ["guard"]


def sign(world):
    """Let the authority, the last that is related, answer what was asked."""
    ours = world.related[-1]
    bag, _ = signing.answer(ours.local_app_data["certificate_signing_requests"])
    world.related[-1] = dataclasses.replace(ours, remote_app_data=bag)


def request(world):
    """The request that the authority, the last that is related, has to answer."""
    (asked,) = json.loads(world.related[-1].local_app_data["certificate_signing_requests"])
    return asked["certificate_signing_request"]


def renew(world):
    """Have Juju say that it is time for another certificate."""
    (kept,) = (each for each in world.secrets if "-certificate-" in each.label)
    world.run(lambda ctx: ctx.on.secret_expired(kept, revision=kept._tracked_revision))


def secrets(world):
    """Namespaces with a Secret other than those of the webhook and the record."""
    return sorted(
        obj["metadata"]["namespace"]
        for obj in world.fake.objects.values()
        if obj["kind"] == "Secret"
        and obj["metadata"]["name"] not in (f"{OURS}-admission-tls", f"{OURS}-record")
    )


def shown(world, namespace="istio-ingress"):
    """The certificate and its key, as the gateway reads them."""
    secret = world.fake.find("Secret", "istio-integrator.kf.mesh-2", namespace)
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
