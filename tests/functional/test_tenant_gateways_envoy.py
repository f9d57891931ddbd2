"""A tenant's imitation of the gateway, seen from outside by those whom the real Envoy answers."""

import contextlib

import pytest

from istio_integrator.kube import cluster
from tests import echo, gateway_client, waiting
from tests.functional import istiod_world
from tests.functional.ingress_world import COMPLETE, MODEL, gateway_workload

COOKIE = echo.COOKIE
TENANT = "team-imitates"
FILTER = cluster.kind("networking.istio.io/v1alpha3", "EnvoyFilter")


def lent():
    """A route that somebody else binds to the model's Gateway, as notebooks have."""
    destination = {"host": "web.shop.svc.cluster.local", "port": {"number": 80}}
    match = [{"uri": {"prefix": "/lent"}}]
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "lent", "namespace": "shop"},
        "spec": {
            "gateways": [f"{MODEL}/kubeflow-gateway"],
            "hosts": [gateway_client.HOST],
            "http": [{"match": match, "route": [{"destination": destination}]}],
        },
    }


def imitation():
    """The gateway's objects once more, in a profile."""
    marks = {"app.kubernetes.io/part-of": "kubeflow-profile"}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT, "labels": marks}}
    for obj in gateway_workload((("http2", 80, 80),)):
        yield {**obj, "metadata": {"name": "fake", "namespace": TENANT}}


@pytest.fixture
def served(place):
    """The model behind its guard, where the choice of the gateway is remembered."""
    place.auths, place.options = [COMPLETE], {"hosts": gateway_client.HOST}
    place.reconcile()
    place.api.create(lent())
    place.eventually(200, Cookie=COOKIE)
    place.eventually(302, "/lent/x")
    # No word of the operator's any more but the labels, which the tenant copies.
    place.options |= {"gateway_service": "", "gateway_selector": "istio=ingressgateway"}
    yield place
    place.options = {"hosts": gateway_client.HOST}
    place.api.delete(lent())
    (namespace, *_) = imitation()
    place.api.delete(namespace)


def test_nobody_is_let_in_unasked_while_a_tenant_imitates_the_gateway(served):
    ports = (("http2", 80, served.port), ("https", 443, served.https_port))
    workload, service = gateway_workload(ports)
    for obj in imitation():
        served.api.create(obj)
    with contextlib.ExitStack() as stack:
        hammers = [
            stack.enter_context(gateway_client.Hammer(served.visitor(), fresh=fresh, path=path))
            for path in ("/kfp/x", "/lent/x")
            for fresh in (False, True)
        ]

        def go_on():
            before = [hammer.count for hammer in hammers]
            assert waiting.eventually(
                lambda: all(
                    hammer.count >= count + 100
                    for hammer, count in zip(hammers, before, strict=True)
                )
            )

        for gone in ([workload], [service], [workload, service]):
            for obj in gone:
                served.api.delete(obj)
            assert any("waiting for" in said for said in served.reconcile())
            go_on()
            for obj in gone:
                served.api.create(obj)
            assert any(f"{TENANT}/fake" in said for said in served.reconcile())
            go_on()
    for hammer in hammers:
        # Without its Service istiod knows no port for the gateway to listen at.
        assert 302 in hammer.answers
        assert 200 not in hammer.answers, hammer.answers
    guards = served.api.list(FILTER)
    ours = [obj["metadata"]["namespace"] for obj in guards if MODEL in obj["metadata"]["name"]]
    assert ours == [istiod_world.GATEWAY_NAMESPACE]
    served.eventually(200, Cookie=COOKIE)
