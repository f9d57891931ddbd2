"""Another gateway workload with the labels of the named one, in a real Envoy."""

import contextlib

import pytest

from istio_integrator.kube import cluster
from testbed import loopback
from tests import echo, gateway_client, waiting
from tests.functional import istiod_world
from tests.functional.ingress_world import COMPLETE, MODEL, lead, namespace, virtual_service

COOKIE = echo.COOKIE
CLAIMED = {"kubeflow-userid": "admin"}
SECOND = "second-edge"


def service(port):
    """The Service of the second gateway, with the port that its Envoy opens."""
    ports = [{"name": "http2", "port": 80, "targetPort": port}]
    metadata = {"name": "gateway", "namespace": SECOND}
    spec = {"selector": istiod_world.LABELS, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def pod():
    """A pod of it, as the API server knows it."""
    metadata = {"name": "gateway", "namespace": SECOND, "labels": istiod_world.LABELS}
    proxy = {"name": "istio-proxy", "image": "none", "args": ["proxy", "router"]}
    spec = {"automountServiceAccountToken": False, "containers": [proxy]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def second(place, client, tmp_path):
    """The port of a second gateway, in a namespace that the model's guard is not in."""
    port, admin = loopback.free_ports(2)
    with contextlib.ExitStack() as stack:
        stack.enter_context(place.there(namespace(SECOND), service(port)))
        token = istiod_world.gateway_token(client, SECOND)
        running = istiod_world.gateway(tmp_path, place.xds, admin, token, namespace=SECOND)
        stack.enter_context(running)
        yield port


@pytest.fixture
def served(place):
    """The model behind its guard, with the route of a notebook on its Gateway."""
    place.auths, place.options = [COMPLETE], {"hosts": gateway_client.HOST}
    place.reconcile()
    route = {"match": [{"uri": {"prefix": "/lent"}}], "route": lead("web.shop.svc.cluster.local")}
    ours = [f"{MODEL}/kubeflow-gateway"]
    lent = virtual_service("shop", "lent", ours, [gateway_client.HOST], route)
    with place.there(lent):
        place.eventually(200, Cookie=COOKIE)
        place.eventually(302, "/lent/x")
        yield place
    place.part().remove()


def test_nothing_is_served_anywhere_while_another_gateway_has_the_same_labels(served, second):
    def asked(path):
        with contextlib.closing(gateway_client.Client(port=second)) as stranger:
            try:
                return stranger.get(path, gateway_client.HOST, **CLAIMED).status
            except OSError:
                return 0

    with served.there(pod()):
        said = served.reconcile()
        assert any(
            f"also selects pods elsewhere: {SECOND}/gateway" in message for message in said
        ), said
        for path in ("/kfp/x", "/lent/x"):
            served.eventually(404, path, Cookie=COOKIE)
            assert waiting.eventually(lambda path=path: asked(path) in (0, 404))
        assert served.api.list(cluster.VIRTUAL_SERVICE, MODEL) == []
    assert waiting.eventually(lambda: not served.api.list(cluster.POD, SECOND))
    served.reconcile()
    served.eventually(200, Cookie=COOKIE)
