"""Objects of tenants that imitate the gateway do not affect the ingress of a model."""

import pytest
from ops import testing

from tests.unit.charm import charm_world, ingress_world
from tests.unit.charm.ingress_world import (
    HOST,
    LABELS,
    OWN,
    OWN_LABELS,
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
PLACES = {"named": ({}, "istio-ingress", LABELS), "our own": (OWN, "kf", OWN_LABELS)}


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
        world.get_ready("mesh-2-gateway")
    world.run()
    assert world.status().name == "active"
    return world


def attack(world, marks):
    """Have a tenant's workload look like the gateway, its pod too, and Gateways with our hosts."""
    metadata = {"labels": dict(marks), "annotations": {"inject.istio.io/templates": "gateway"}}
    template = {"metadata": metadata, "spec": {"containers": [{"name": "istio-proxy"}]}}
    spec, status = {"replicas": 1, "template": template}, {"readyReplicas": 1}
    world.fake.put("Deployment", "fake", TENANT, spec=spec, status=status)
    ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
    world.fake.put("Service", "fake", TENANT, spec={"selector": dict(marks), "ports": ports})
    for number, host in enumerate((HOST, "*")):
        servers = [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": [host]}]
        spec = {"selector": dict(marks), "servers": servers}
        world.fake.put("Gateway", f"web-{number}", TENANT, spec=spec)
    if marks == OWN_LABELS:
        ingress_world.pod_of(world.fake, TENANT)
        world.fake.find("Pod", "gateway-0", TENANT)["metadata"]["labels"] |= marks


@pytest.mark.parametrize("place", PLACES)
def test_tenant_does_not_freeze_the_ingress(monkeypatch, place):
    options, namespace, labels = PLACES[place]
    world = served_at(options, monkeypatch)
    certificate = shown(world, namespace)["tls.crt"]
    attack(world, labels)

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
