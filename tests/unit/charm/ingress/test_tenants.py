"""What people with a namespace of their own do to the ingress of a model that is not theirs."""

import json

import pytest
from ops import testing

from istio_integrator.relations import certificates
from tests.unit.charm import charm_world, ingress_world
from tests.unit.charm.ingress_world import LABELS, World, auth, authority, route, shown, sign

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
    if world.config.get("gateway_workload"):
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


def serving(world):
    """What our guard, our Gateway, its certificate and our routes are now."""
    gateway, guard = world.gateway(), world.guard()
    return (
        gateway["metadata"]["creationTimestamp"],
        gateway["spec"],
        guard["metadata"]["creationTimestamp"],
        guard["spec"],
        shown(world),
        world.routes(),
    )


def is_up(world):
    told = next(one for one in world.related if one.endpoint == "gateway-info")
    return told.local_app_data["gateway_up"] == "true"


@pytest.mark.parametrize(
    "away",
    [
        [("Deployment", "istio-ingressgateway")],
        [("Service", "istio-ingressgateway")],
        [("Deployment", "istio-ingressgateway"), ("Service", "istio-ingressgateway")],
    ],
    ids=["workload", "service", "both"],
)
def test_gateway_that_is_away_takes_neither_guard_nor_key_to_a_tenants_imitation(world, away):
    serve(world)
    before = serving(world)
    imitate(world, ready=1)
    ingress_world.pod_of(world.fake, TENANT)
    gone = [world.fake.find(*one, "istio-ingress") for one in away]
    for one in away:
        world.fake.delete(*one, "istio-ingress")
    for _ in range(2):
        assert world.status().name == "waiting"
        assert not is_up(world)
        assert (of_ours(world), serving(world)) == ([], before)
    for obj in gone:
        world.fake.add(obj)
    status = world.status()
    assert status.name == "active"
    assert f"{TENANT}/fake" in status.message
    assert is_up(world)
    assert (of_ours(world), serving(world)) == ([], before)


OWN = {
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
PLACES = {
    "found": {},
    "named service": {"gateway_service": "istio-ingress/istio-ingressgateway"},
    "named labels": {"gateway_selector": "istio=ingressgateway"},
    "named gateway": {"gateway": "istio-ingress/shared"},
    "our own": {"gateway_workload": True},
}


@pytest.fixture(scope="module")
def all_served():
    """Return models that have been served for a while, one for each place."""
    with pytest.MonkeyPatch.context() as patch:
        return {place: served_at(place, patch) for place in PLACES}


def served_at(place, patch):
    world = begin(charm_world.model(), patch)
    world.config |= PLACES[place]
    if place == "named gateway":
        # Of the platform, with its labels alone.
        claim(world, host="shared.example.com")
        shared = world.fake.find("Gateway", "claim", TENANT)
        world.fake.delete("Gateway", "claim", TENANT)
        shared["metadata"] = {"name": "shared", "namespace": "istio-ingress"}
        world.fake.add(shared)
        world.run()
        world.guard()["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    return serve(world)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("place", PLACES)
def test_tenant_does_not_freeze_the_ingress(all_served, monkeypatch, attack, place):
    world = all_served[place].copy(monkeypatch)
    namespace = "kubeflow" if place == "our own" else "istio-ingress"
    certificate = shown(world, namespace)["tls.crt"]
    ATTACKS[attack](world, OWN if place == "our own" else LABELS)

    # New routes come, certificates are renewed, and what is up is called so.
    world.related.insert(0, route("katib-ui"))
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "RENEW_AT", -1)
        world.run()
    sign(world)
    status = world.status()
    assert len(world.routes()) == 2
    assert shown(world, namespace)["tls.crt"] != certificate
    assert is_up(world)
    assert of_ours(world) == []
    if attack in ("our host", "all hosts") and place != "our own":
        assert attack == "all hosts" or f"{TENANT}/claim" in status.message
    else:
        assert status.name == "active"

    # Without anybody to ask, nothing is served.
    world.related = [one for one in world.related if one.endpoint != "ingress-auth"]
    world.run()
    assert world.routes() == []
    assert "istio-integrator-closed" in json.dumps(world.guard(namespace))


def test_gateway_that_is_away_keeps_neither_renewal_nor_closing_from_their_work(
    world, monkeypatch
):
    serve(world)
    certificate = shown(world)["tls.crt"]
    for kind in ("Deployment", "Service"):
        world.fake.delete(kind, "istio-ingressgateway", "istio-ingress")
    world.related.insert(0, route("katib-ui"))
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "RENEW_AT", -1)
        world.run()
    sign(world)
    assert world.status().name == "waiting"
    assert len(world.routes()) == 2
    assert shown(world)["tls.crt"] != certificate
    world.related = [one for one in world.related if one.endpoint != "ingress-auth"]
    world.run()
    assert world.routes() == []
    assert "istio-integrator-closed" in json.dumps(world.guard())


def test_key_is_never_given_to_a_tenant_whose_gateway_is_the_only_one(world):
    for kind in ("Deployment", "Service"):
        world.fake.delete(kind, "istio-ingressgateway", "istio-ingress")
    imitate(world, ready=1)
    ingress_world.pod_of(world.fake, TENANT)
    for _ in range(2):
        status = world.status()
        assert status.name == "waiting"
        assert f"{TENANT}/fake" in status.message
        assert of_ours(world) == []
