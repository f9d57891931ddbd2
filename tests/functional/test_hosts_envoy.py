"""Where a caller's sidecar sends a Host that it does not know, as a real istiod configures it."""

import json
import urllib.request

import pytest

from istio_integrator.situation import model
from testbed import loopback
from tests import waiting
from tests.functional import ingress_world, istiod_world, loopback_istiod, sidecar_world

MODEL = "forwarding"
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
    loopback_istiod.create_namespace(api)
    api.create(ingress_world.namespace(MODEL))
    ports = [{**declared, "port": number} for number, declared in DECLARED.items()]
    spec = {"selector": {"app.kubernetes.io/name": "mlmd"}, "ports": ports}
    yield api.create(ingress_world.made("v1", "Service", "mlmd", MODEL, spec))
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
    listening = loopback.free_ports(2)
    settings = dict(zip(("proxyListenPort", "proxyInboundListenPort"), listening, strict=True))
    about = {"token": istiod_world.gateway_token(client, MODEL), "interception": "REDIRECT"}
    with (
        istiod_world.istiod(tmp_path, kubeconfig, settings) as xds,
        sidecar_world.configured(tmp_path, xds, "envoy-0", MODEL, {}, **about) as admin,
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
