"""Tenants who would lead a model's ingress astray, with real rights on a real API server."""

import contextlib
import dataclasses
import datetime
import functools
import json

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from integrator_contract import names
from istio_integrator.kube import cluster, errors, manifests
from istio_integrator.relations import certificates, endpoints
from tests import waiting
from tests.functional import istiod_world
from tests.functional.ingress_world import Related
from tests.functional.test_ingress_objects import authorize, part, request

HOST = "kf.example.com"
GATEWAY = cluster.kind("networking.istio.io/v1", "Gateway")
FILTER = cluster.kind("networking.istio.io/v1alpha3", "EnvoyFilter")
OWNED = (cluster.SECRET, cluster.CONFIG_MAP, FILTER, GATEWAY, cluster.SERVICE, cluster.DEPLOYMENT)


class Certified(Related):
    """Relations with an authority that signs at once."""

    def __init__(self):
        super().__init__()
        self.requests = [request(1)]
        self.bag = {}

    def is_related(self, *endpoints):
        return certificates.ENDPOINT in endpoints or super().is_related(*endpoints)

    def own(self, _):
        return self.bag

    def write(self, endpoint, bag):
        if endpoint == certificates.ENDPOINT:
            self.bag = dict(bag)
        super().write(endpoint, bag)

    def bags(self, endpoint):
        if endpoint != certificates.ENDPOINT:
            return super().bags(endpoint)
        asked = certificates.own_request(self.bag)
        answer = {"certificate_signing_request": asked, "certificate": signed(asked)}
        content = {certificates.CERTIFICATES: json.dumps([answer])}
        return [endpoints.Bag(7, "authority", content)]


@functools.cache
def signed(asked):
    """The certificate for a request, by an authority that nobody knows."""
    loaded = x509.load_pem_x509_csr(asked.encode())
    since = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(loaded.subject)
        .issuer_name(loaded.subject)
        .public_key(loaded.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(since + datetime.timedelta(days=1))
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )


@dataclasses.dataclass
class World:
    """A model, the platform's gateway, and a tenant who is admin of a profile."""

    api: cluster.Cluster
    control_plane: object
    model: str
    related: Certified = dataclasses.field(default_factory=Certified)
    options: dict = dataclasses.field(default_factory=dict)

    @property
    def platform(self):
        return f"{self.model}-gw"

    @property
    def tenant(self):
        return f"{self.model}-tenant"

    @property
    def labels(self):
        return {"app": "gateway", "istio": self.platform}

    def namespace(self, name, **labels):
        metadata = {"name": name, "labels": labels}
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        with contextlib.suppress(errors.ConflictError):
            account = {"name": "default", "namespace": name}
            self.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})

    def grant(self):
        """Make the tenant what Kubeflow makes the owner of a profile, with Istio's kinds."""
        rule = {"apiGroups": ["networking.istio.io"], "resources": ["*"], "verbs": ["*"]}
        subject = {"kind": "User", "name": self.tenant, "apiGroup": "rbac.authorization.k8s.io"}
        version = {"apiVersion": "rbac.authorization.k8s.io/v1"}

        def bound(kind, name):
            reference = {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}
            metadata = {"name": name, "namespace": self.tenant}
            binding = {**version, "kind": "RoleBinding", "metadata": metadata}
            return {**binding, "roleRef": reference, "subjects": [subject]}

        metadata = {"name": "istio", "namespace": self.tenant}
        role = {**version, "kind": "Role", "metadata": metadata, "rules": [rule]}
        for obj in (role, bound("ClusterRole", "admin"), bound("Role", "istio")):
            self.api.create(obj)

    def apply(self, *objects, who=None):
        """Make objects, as somebody."""
        text = yaml.safe_dump_all(objects)
        argv = (f"--as={who}",) if who else ()
        self.control_plane.kubectl("apply", *argv, "-f", "-", text=text)

    def gateway(self, namespace, name="gateway", *, who=None, labels=None, replicas=1):
        """A gateway workload with its Service; where it has replicas, they are ready."""
        labels = labels or self.labels
        container = {"name": "istio-proxy", "image": "none", "args": ["proxy", "router"]}
        annotations = {"inject.istio.io/templates": "gateway"}
        template = {"metadata": {"labels": labels, "annotations": annotations}}
        template["spec"] = {"containers": [container]}
        metadata = {"name": name, "namespace": namespace}
        selector = {"matchLabels": labels}
        spec = {"replicas": replicas, "selector": selector, "template": template}
        ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
        self.apply(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": {"selector": labels, "ports": ports},
            },
            who=who,
        )
        if replicas:
            self.run_pods(namespace, name, labels)

    def run_pods(self, namespace, name, labels):
        """Say of the pods of a Deployment what their kubelet would."""
        listed = waiting.eventually(lambda: self.api.list(cluster.POD, namespace, labels))
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        patch = json.dumps({"status": status})
        for pod in listed or self.api.list(cluster.POD, namespace, labels):
            argv = ("patch", "pod", pod["metadata"]["name"], "--subresource=status")
            self.control_plane.kubectl("-n", namespace, *argv, "--type=merge", "-p", patch)
        place = (cluster.DEPLOYMENT, name, namespace)
        assert waiting.eventually(
            lambda: self.api.get(*place).get("status", {}).get("readyReplicas")
        )

    def claim(self, *, labels=None):
        """The tenant's Gateway of our host on a gateway workload."""
        port = {"number": 80, "name": "http", "protocol": "HTTP"}
        spec = {"selector": labels or self.labels, "servers": [{"port": port, "hosts": [HOST]}]}
        kind = {"apiVersion": "networking.istio.io/v1", "kind": "Gateway"}
        metadata = {"name": "claim", "namespace": self.tenant}
        self.apply({**kind, "metadata": metadata, "spec": spec}, who=self.tenant)

    def reconcile(self):
        tried = part(self.api, self.model, self.platform, self.related, hosts=HOST, **self.options)
        tried.reconcile()
        return list(tried.statuses())

    def homes(self, kind):
        """Namespaces in which something of ours of a kind is."""
        owner = manifests.Manifests(
            self.api, model=self.model, application="istio-integrator"
        ).owner
        found = self.api.list(kind, labels={names.OWNER: owner})
        return sorted(obj["metadata"]["namespace"] for obj in found)

    def of_ours_at_the_tenants(self):
        return [
            cluster.reference(obj)
            for kind in OWNED
            for obj in self.api.list(kind, self.tenant)
            if names.OWNER in cluster.at(obj, "metadata", "labels")
        ]

    def standing(self):
        """The guard, our Gateway and the certificate, each as which object and version."""
        secrets = self.api.list(cluster.SECRET, labels={names.COMPONENT: "gateway-tls"})
        objects = [
            *self.api.list(FILTER, self.platform),
            *self.api.list(GATEWAY, self.model),
            *(obj for obj in secrets if obj["metadata"]["namespace"] == self.platform),
        ]
        versions = [(obj["kind"], obj["metadata"]["resourceVersion"]) for obj in objects]
        assert [kind for kind, _ in versions] == ["EnvoyFilter", "Gateway", "Secret"]
        return versions

    def routes(self):
        """Count the relations that are served."""
        found = self.api.list(cluster.VIRTUAL_SERVICE, self.model)
        return len({entry["name"] for obj in found for entry in obj["spec"]["http"]})


@pytest.fixture
def world(client, control_plane, namespace):
    made = World(istiod_world.install_definitions(client), control_plane, namespace)
    authorize(made.api, made.related, namespace)
    made.namespace(made.platform)
    made.namespace(made.tenant, **{"app.kubernetes.io/part-of": "kubeflow-profile"})
    made.grant()
    made.gateway(made.platform)
    yield made
    for name in (made.platform, made.tenant):
        metadata = {"name": name}
        made.api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def no_pods(world, namespace):
    """Wait until no pod of a namespace has the gateway's labels."""
    assert waiting.eventually(lambda: not world.api.list(cluster.POD, namespace, world.labels))


@pytest.mark.parametrize("replicas", [0, 1])
def test_fake_gateway_of_a_tenant_takes_neither_guard_nor_private_key(world, replicas):
    world.reconcile()
    assert world.related.published["up"]
    before = world.standing()
    world.control_plane.kubectl("-n", world.platform, "delete", "deployment", "gateway")
    no_pods(world, world.platform)
    world.gateway(world.tenant, "fake", who=world.tenant, replicas=replicas)
    for _ in range(2):
        said = world.reconcile()
        assert ("blocked" if replicas else "waiting") in {status.name for status in said}
        assert any(f"{world.tenant}/fake" in status.message for status in said) == bool(replicas)
        assert not world.related.published["up"]
        assert world.of_ours_at_the_tenants() == []
    if replicas:
        assert (world.routes(), world.api.list(GATEWAY, world.model)) == (0, [])
    else:
        assert world.standing() == before
    world.control_plane.kubectl("-n", world.tenant, "delete", "deployment", "fake")
    no_pods(world, world.tenant)
    world.gateway(world.platform)
    assert {status.name for status in world.reconcile()} == {"active"}
    assert world.related.published["up"]
    assert (world.routes(), world.of_ours_at_the_tenants()) == (1, [])


OWN = "our own"


@pytest.mark.parametrize("place", ["named", OWN])
@pytest.mark.parametrize("attack", ["another gateway", "its labels", "our host"])
def test_tenant_does_not_keep_routes_certificates_or_the_closing_from_their_work(
    world, attack, place
):
    world.options = {"gateway_service": ""} if place == OWN else {}
    world.reconcile()
    labels = world.labels
    if place == OWN:
        name = "istio-integrator-gateway"
        made = world.api.get(cluster.DEPLOYMENT, name, world.model)
        labels = made["spec"]["selector"]["matchLabels"]
        with contextlib.suppress(errors.ConflictError):
            account = {"name": "default", "namespace": world.model}
            kind = {"apiVersion": "v1", "kind": "ServiceAccount"}
            world.api.create({**kind, "metadata": account})
        world.run_pods(world.model, name, labels)
        world.reconcile()
    assert world.related.published["up"]
    certificate = world.related.bag
    if attack == "our host":
        world.claim(labels=labels)
    else:
        imitated = {"istio": "anything"} if attack == "another gateway" else labels
        # Pods with the labels of a named gateway would end its service.
        replicas = int(place == OWN or attack == "another gateway")
        how = {"who": world.tenant, "labels": imitated, "replicas": replicas}
        world.gateway(world.tenant, "fake", **how)

    world.related.requests.append(request(2))
    world.related.bag = {}
    statuses = world.reconcile()
    assert world.routes() == 2
    assert world.related.bag != certificate
    assert world.related.published["up"]
    assert not [status.message for status in statuses if status.name == "blocked"]

    world.related.auths = []
    world.reconcile()
    assert world.routes() == 0
    home = world.model if place == OWN else world.platform
    (guard,) = world.api.list(FILTER, home)
    assert "istio-integrator-closed" in json.dumps(guard["spec"])
    assert world.of_ours_at_the_tenants() == []


def test_operator_moves_guard_and_key_and_nothing_stays_behind(world):
    world.reconcile()
    other = f"{world.model}-other"
    world.namespace(other)
    world.gateway(other, labels={"istio": other})
    world.reconcile()
    assert world.homes(FILTER) == [world.platform]
    world.options = {"gateway_service": f"{other}/gateway"}
    world.reconcile()
    assert world.homes(FILTER) == [other]
    assert world.homes(cluster.SECRET) == sorted([world.model, other])
    assert world.routes() == 1
    world.api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
