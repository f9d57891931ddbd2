"""What people with a namespace of their own do to the ingress of a model that is not theirs."""

import pytest
from ops import testing

from tests.unit.charm import charm_world, ingress_world
from tests.unit.charm.ingress_world import (
    HOST,
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

TENANT = "team-a"
OWN_LABELS = {
    "istio": "istio-integrator-gateway",
    "istio-integrator.charmhub.io/owner": "kubeflow.istio-integrator",
}
PLACES = {"named": ({}, "istio-ingress", LABELS), "our own": (OWN, "kubeflow", OWN_LABELS)}


def served_at(options, patch):
    """Have a model served for a while, with a certificate, beside a tenant's namespace."""
    fake = charm_world.model()
    ingress_world.connect(fake, patch)
    fake.namespace(TENANT, **{"app.kubernetes.io/part-of": "kubeflow-profile"})
    world = World(fake, hosts=HOST, https_redirect=True, **options)
    info = testing.Relation("gateway-info", remote_app_name="kserve-controller")
    world.related = [route(), auth(), info, authority()]
    world.run()
    sign(world)
    if options:
        world.get_ready("istio-integrator-gateway")
    world.run()
    assert world.status().name == "active"
    return world


@pytest.fixture(scope="module")
def all_served():
    """Return models that have been served for a while, one for each place."""
    with pytest.MonkeyPatch.context() as patch:
        return {place: served_at(options, patch) for place, (options, *_) in PLACES.items()}


def imitate(world, marks, *, is_template=True, ready=0):
    """Have a tenant's Deployment look like the gateway, with a Service before it."""
    annotations = {"inject.istio.io/templates": "gateway"} if is_template else {}
    metadata = {"name": "fake", "namespace": TENANT}
    template = {"metadata": {"labels": dict(marks), "annotations": annotations}}
    template["spec"] = {"containers": [{"name": "istio-proxy", "image": "auto"}]}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    deployment["spec"] = {"replicas": ready, "template": template}
    world.fake.add({**deployment, "status": {"readyReplicas": ready}})
    ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": dict(metadata)}
    world.fake.add({**service, "spec": {"selector": dict(marks), "ports": ports}})


def claim(world, marks, host=HOST):
    """Have a tenant's Gateway of our host on the gateway workload."""
    gateway = ingress_world.neighbour(world.fake, host)
    gateway["spec"]["selector"] = dict(marks)


def label(world, marks):
    """Have a pod of a tenant bear the labels of our own gateway, whose guard is where that is."""
    if marks == OWN_LABELS:
        ingress_world.pod_of(world.fake, TENANT)
        world.fake.find("Pod", "gateway-0", TENANT)["metadata"]["labels"] |= marks


ATTACKS = {
    "another gateway": lambda world, _: imitate(world, {"istio": "other"}, ready=1),
    "the gateway's labels": lambda world, marks: imitate(world, marks, is_template=False),
    "both": lambda world, marks: imitate(world, marks, ready=1),
    "our host": claim,
    "all hosts": lambda world, marks: claim(world, marks, host="*"),
    "a pod": label,
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("place", PLACES)
def test_tenant_does_not_freeze_the_ingress(all_served, monkeypatch, attack, place):
    world = all_served[place].copy(monkeypatch)
    _, namespace, labels = PLACES[place]
    certificate = shown(world, namespace)["tls.crt"]
    ATTACKS[attack](world, labels)

    # New routes come, certificates are renewed, and what is up is called so.
    world.related.insert(0, route("katib-ui"))
    renew(world)
    world.run()
    sign(world)
    assert world.status().name == "active"
    assert len(world.routes()) == 2
    assert world.gateway()["spec"]["selector"] == labels
    assert shown(world, namespace)["tls.crt"] != certificate
    (told,) = (one.local_app_data for one in world.related if one.endpoint == "gateway-info")
    assert told["gateway_up"] == "true"
    of_tenant = (obj["metadata"] for key, obj in world.fake.objects.items() if key[2] == TENANT)
    assert not [each for each in of_tenant if "managed-by" in str(each.get("labels"))]

    # Without anybody to ask, nothing is served.
    world.related = [one for one in world.related if one.endpoint != "ingress-auth"]
    world.run()
    assert is_closed(world.guard(namespace))
