"""Where a caller's sidecar sends a Host that it does not know, as a real istiod configures it."""

import json
import urllib.request

import pytest

from istio_integrator.kube import errors
from istio_integrator.situation import model
from testbed import loopback
from tests import waiting
from tests.functional import ingress_world, istiod_world

MODEL = "forwarding"
SELECTOR = {"app.kubernetes.io/name": "mlmd"}
DECLARED = {
    8081: {"name": "http"},
    8082: {"name": "http2-api"},
    8083: {"name": "grpc-api"},
    8084: {"name": "grpc-web"},
    8085: {"name": "main", "appProtocol": "http"},
    8086: {"name": "h2c", "appProtocol": "kubernetes.io/h2c"},
    8087: {"name": "ws", "appProtocol": "kubernetes.io/ws"},
    8088: {"name": "httpd"},
    8089: {"name": "api"},
    8090: {"name": "https"},
    8091: {"name": "tcp-grpc"},
    8092: {"name": "http-but-tcp", "appProtocol": "tcp"},
}
"""Ports of a Service, by the ways in which their protocol is declared or not."""


@pytest.fixture(scope="module")
def service(client):
    api = istiod_world.install_definitions(client)
    for name in (MODEL, "istio-system"):
        try:
            api.create(ingress_world.namespace(name))
        except errors.ConflictError:
            assert name != MODEL
    ports = [{**declared, "port": number} for number, declared in DECLARED.items()]
    metadata = {"name": "mlmd", "namespace": MODEL}
    spec = {"selector": SELECTOR, "ports": ports}
    yield api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    api.delete(ingress_world.namespace(MODEL))


def test_unknown_host_is_sent_past_the_mesh_at_the_ports_that_are_predicted(
    service, client, kubeconfig, tmp_path
):
    predicted = {
        port.port
        for one in model.read([service], model.Service)
        for port in one.ports
        if port.is_http
    }
    (admin, *listening) = loopback.free_ports(3)
    settings = dict(zip(("proxyListenPort", "proxyInboundListenPort"), listening, strict=True))
    token = istiod_world.gateway_token(client, MODEL)
    node = istiod_world.proxy("sidecar", "envoy-0", MODEL, {}, INTERCEPTION_MODE="REDIRECT")
    secrets = istiod_world.static_cluster("sds-grpc", admin)
    with (
        istiod_world.istiod(tmp_path, kubeconfig, settings) as xds,
        istiod_world.envoy_of(tmp_path, xds, admin, node, token, more=[secrets]),
    ):
        assert waiting.eventually(lambda: past_the_mesh(admin) == predicted, 30), (
            past_the_mesh(admin),
            predicted,
        )


def past_the_mesh(admin):
    """The ports at which an unknown Host is sent to the called address as it is."""
    url = f"http://127.0.0.1:{admin}/config_dump?resource=dynamic_route_configs"
    with urllib.request.urlopen(url, timeout=5) as answer:
        configs = [each["route_config"] for each in json.loads(answer.read()).get("configs", ())]
    return {
        int(each["name"])
        for each in configs
        for host in each.get("virtual_hosts", ())
        if "*" in host["domains"] and "PassthroughCluster" in json.dumps(host)
        if each["name"].isdecimal() and int(each["name"]) in DECLARED
    }
