"""What people with a namespace of their own do to the ingress of a model that is not theirs."""

import pytest
from ops import testing

from tests.unit.charm import charm_world, ingress_world
from tests.unit.charm.ingress_world import (
    LABELS,
    OWN,
    World,
    auth,
    authority,
    is_closed,
    renew,
    route,
    shown,
    sign,
)

HOST = "kf.example.com"
TENANT = "team-a"


@pytest.fixture
def world(fake, monkeypatch):
    """A model that is served with a certificate, and a tenant's namespace."""
    return begin(fake, monkeypatch)


def begin(fake, monkeypatch):
    ingress_world.connect(fake, monkeypatch)
    fake.namespace(TENANT)
    marks = fake.labels(TENANT)
    marks["app.kubernetes.io/part-of"] = "kubeflow-profile"
    made = World(fake)
    made.config = {"hosts": HOST, "https_redirect": True}
    info = testing.Relation("gateway-info", remote_app_name="kserve-controller")
    made.related = [route(), auth(), info, authority()]
    return made


def serve(world):
    """Have the model served for a while."""
    world.run()
    sign(world)
    if world.config.get("gateway_service") == "":
        deployment = world.fake.find("Deployment", "istio-integrator-gateway", "kubeflow")
        deployment["status"] = {"readyReplicas": 2}
    world.run()
    assert world.status().name == "active"
    for obj in world.fake.objects.values():
        obj["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    return world


def imitate(world, marks=LABELS, *, is_template=True, ready=0, namespace=TENANT):
    """Have a tenant's Deployment look like the gateway, with a Service before it."""
    annotations = {"inject.istio.io/templates": "gateway"} if is_template else {}
    metadata = {"name": "fake", "namespace": namespace}
    template = {"metadata": {"labels": dict(marks), "annotations": annotations}}
    template["spec"] = {"containers": [{"name": "istio-proxy", "image": "auto"}]}
    spec = {"replicas": ready, "template": template}
    status = {"readyReplicas": ready} if ready else {}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    world.fake.add({**deployment, "spec": spec, "status": status})
    ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": dict(metadata)}
    world.fake.add({**service, "spec": {"selector": dict(marks), "ports": ports}})


def claim(world, marks=LABELS, host=HOST):
    """Have a tenant's Gateway of our host on the gateway workload."""
    servers = [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": [host]}]
    world.fake.add(
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "claim", "namespace": TENANT},
            "spec": {"selector": dict(marks), "servers": servers},
        }
    )


def of_ours(world, namespace=TENANT):
    """Everything in a namespace that bears our labels."""
    return [
        f"{obj['kind']} {obj['metadata']['name']}"
        for obj in world.fake.objects.values()
        if obj["metadata"].get("namespace") == namespace
        and "istio-integrator.charmhub.io/owner" in obj["metadata"].get("labels", {})
    ]


def is_up(world):
    told = next(one for one in world.related if one.endpoint == "gateway-info")
    return told.local_app_data["gateway_up"] == "true"


OWN_LABELS = {
    "istio": "istio-integrator-gateway",
    "istio-integrator.charmhub.io/owner": "kubeflow.istio-integrator",
}
ATTACKS = {
    "another gateway": lambda world, _: imitate(world, {"istio": "other"}, ready=1),
    "the gateway's labels": lambda world, marks: imitate(world, marks, is_template=False),
    "both": lambda world, marks: imitate(world, marks, ready=1),
    "our host": claim,
    "all hosts": lambda world, marks: claim(world, marks, host="*"),
}
PLACES = {"named": {}, "our own": OWN}


@pytest.fixture(scope="module")
def all_served():
    """Return models that have been served for a while, one for each place."""
    with pytest.MonkeyPatch.context() as patch:
        return {place: served_at(place, patch) for place in PLACES}


def served_at(place, patch):
    world = begin(charm_world.model(), patch)
    world.config |= PLACES[place]
    return serve(world)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("place", PLACES)
def test_tenant_does_not_freeze_the_ingress(all_served, monkeypatch, attack, place):
    world = all_served[place].copy(monkeypatch)
    namespace = "kubeflow" if place == "our own" else "istio-ingress"
    certificate = shown(world, namespace)["tls.crt"]
    ATTACKS[attack](world, OWN_LABELS if place == "our own" else LABELS)

    # New routes come, certificates are renewed, and what is up is called so.
    world.related.insert(0, route("katib-ui"))
    renew(world)
    world.run()
    sign(world)
    status = world.status()
    assert len(world.routes()) == 2
    assert shown(world, namespace)["tls.crt"] != certificate
    assert is_up(world)
    assert of_ours(world) == []
    assert status.name == "active"

    # Without anybody to ask, nothing is served.
    world.related = [one for one in world.related if one.endpoint != "ingress-auth"]
    world.run()
    assert is_closed(world.guard(namespace))


def test_pod_with_the_labels_of_our_own_gateway_serves_none_of_its_routes(fake, monkeypatch):
    """The guard is where the gateway is, and so a copy of its labels must not matter."""
    world = begin(fake, monkeypatch)
    world.config |= OWN
    serve(world)
    ingress_world.pod_of(world.fake, TENANT)
    assert world.status().name == "active"
    assert world.gateway()["spec"]["selector"] == OWN_LABELS
    assert len(world.routes()) == 1
