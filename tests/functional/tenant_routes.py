"""What somebody with Istio's kinds may write to lead requests elsewhere, as tables of attacks."""

from __future__ import annotations

import pytest

from tests import gateway_client
from tests.functional import ingress_world, istiod_world
from tests.functional import tenant_attacks as attacks
from tests.functional import tenant_parts as parts
from tests.functional.tenant_world import EVIL


def entry(world, host, **more):
    """A ServiceEntry whose endpoint is the tenant's own server."""
    ports = {"http": world.evil.server_port}
    spec = {
        "hosts": [host],
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "location": "MESH_INTERNAL",
        "resolution": "STATIC",
        "exportTo": ["*"],
        "endpoints": [{"address": istiod_world.own_address(), "ports": ports}],
        **more,
    }
    name = parts.unique("entry")
    return parts.made(attacks.NETWORKING, "ServiceEntry", name, world.profile, spec)


def entry_for(name, **more):
    """Claim the host of a Service of the model."""

    def attack(world):
        yield entry(world, f"{name}.{world.model}.svc.cluster.local", **more)

    return attack


def _address_of_authorization(world):
    found = world.control_plane.kubectl(
        *("get", "service", "oidc", "-n", world.model, "-o", "jsonpath={.spec.clusterIP}")
    )
    yield entry(world, "else.example.com", addresses=[found.stdout.strip()])


def _everything(world):
    yield entry(world, "*.cluster.local")


def _destination(name, policy):
    def attack(world):
        host = f"{name}.{world.model}.svc.cluster.local"
        spec = {"host": host, "exportTo": ["*"], "trafficPolicy": policy}
        metadata = {"name": parts.unique("rule"), "namespace": world.profile}
        yield parts.made(
            attacks.NETWORKING, "DestinationRule", metadata["name"], world.profile, spec
        )

    return attack


_TLS = {"tls": {"mode": "SIMPLE", "sni": EVIL}}
_LIMITS = {
    "connectionPool": {"tcp": {"maxConnections": 1}, "http": {"maxRequestsPerConnection": 1}},
    "outlierDetection": {"consecutive5xxErrors": 1, "baseEjectionTime": "1h"},
}


def _mesh_route(name):
    def attack(world):
        yield from world.evil_service(parts.unique("web"))
        host = f"{name}.{world.model}.svc.cluster.local"
        yield world.route(parts.unique("mesh"), world.profile, ["mesh"], "/", host)

    return attack


def _filters(world):
    lua = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
    code = 'function envoy_on_request(handle) handle:respond({[":status"] = "200"}, "x") end'
    value = {
        "name": "evil",
        "typed_config": {"@type": lua, "default_source_code": {"inline_string": code}},
    }
    patch = {
        "applyTo": "HTTP_FILTER",
        "match": {"context": "GATEWAY"},
        "patch": {"operation": "INSERT_FIRST", "value": value},
    }
    for name, more in {
        "all": {},
        "selected": {"workloadSelector": {"labels": istiod_world.LABELS}},
    }.items():
        spec = {"configPatches": [patch], "priority": -10, **more}
        kind = ("networking.istio.io/v1alpha3", "EnvoyFilter")
        yield parts.made(*kind, name, world.profile, spec)


def _permission(world):
    spec = {"selector": {"matchLabels": istiod_world.LABELS}, "action": "ALLOW", "rules": [{}]}
    group = "security.istio.io/v1"
    yield parts.made(group, "AuthorizationPolicy", "attack", world.profile, spec)


def _route_at_our_path(world):
    yield from world.evil_service("web-of-route")
    gateways = [f"{world.model}/kubeflow-gateway"]
    to = f"web-of-route.{world.profile}.svc.cluster.local"
    for number, host in enumerate((gateway_client.HOST, "*")):
        name = f"ours-{number}"
        yield world.route(name, world.profile, gateways, "/kfp/", host, to=to)


LEADS = [
    pytest.param(entry_for("oidc"), id="ServiceEntry of the authorization service"),
    pytest.param(
        entry_for("oidc", resolution="DNS", location="MESH_EXTERNAL"),
        id="external ServiceEntry of the authorization service",
    ),
    pytest.param(entry_for("kfp"), id="ServiceEntry of an application"),
    pytest.param(_everything, id="ServiceEntry of all hosts"),
    pytest.param(_address_of_authorization, id="ServiceEntry of an address"),
    pytest.param(_destination("oidc", _TLS), id="DestinationRule of the authorization service"),
    pytest.param(_destination("kfp", _TLS), id="DestinationRule of an application"),
    pytest.param(_destination("kfp", _LIMITS), id="DestinationRule that limits"),
    pytest.param(_mesh_route("oidc"), id="route within the mesh to the authorization service"),
    pytest.param(_mesh_route("kfp"), id="route within the mesh to an application"),
    pytest.param(_filters, id="EnvoyFilters"),
    pytest.param(_permission, id="AuthorizationPolicy that allows all"),
    pytest.param(_route_at_our_path, id="route at a path of ours"),
]


def all_leads(world):
    """All of them."""
    for given in LEADS:
        yield from given.values[0](world)


def _application(world):
    return f"kfp.{world.model}.svc.cluster.local"


def _alias(*made):
    """A route on a Gateway of the tenant's to an application's address by another name."""

    def attack(world):
        name = f"alias.{world.profile}.svc.cluster.local"
        if "ServiceEntry" in made:
            name = "alias.example.com"
            ports = {"http": world.application.server_port}
            address = istiod_world.own_address()
            yield entry(world, name, endpoints=[{"address": address, "ports": ports}])
        else:
            yield from world.evil_service("alias", world.application)
        yield attacks.gateway(world, EVIL)
        yield world.route("steal", world.profile, ["attack"], "/steal/", EVIL, to=name)

    return attack


ALIASES = [
    pytest.param(_alias("ServiceEntry"), id="ServiceEntry"),
    pytest.param(_alias("Endpoints"), id="Endpoints"),
]
"""Names of the tenant's for what is the model's: nothing at the gateway tells them from others."""


def tcp(world, port):
    """A port of the gateway's that is led into the model as bytes."""
    server = {"port": {"number": port, "name": "tcp", "protocol": "TCP"}, "hosts": ["*"]}
    yield ingress_world.gateway(world.profile, "tcp", server)
    destination = {"host": _application(world), "port": {"number": 80}}
    route = {
        "hosts": ["*"],
        "gateways": ["tcp"],
        "tcp": [{"route": [{"destination": destination}]}],
    }
    yield parts.made(attacks.NETWORKING, "VirtualService", "tcp", world.profile, route)


def _gateway(*hosts, **tls):
    def attack(world):
        yield attacks.gateway(world, *hosts, **tls)

    return attack


def _gateway_and_route(*hosts):
    """A Gateway of the tenant's with its own server behind it."""

    def attack(world):
        yield attacks.gateway(world, *hosts)
        yield from world.evil_service("web")
        for number, host in enumerate(hosts):
            yield world.route(f"web-{number}", world.profile, ["attack"], "/own/", host)

    return attack


GATEWAYS = [
    pytest.param(_gateway(), id="Gateway without hosts"),
    pytest.param(_gateway("*"), id="Gateway of every host"),
    pytest.param(_gateway("*", httpsRedirect=True), id="Gateway that redirects all"),
    pytest.param(_gateway(f"*/{gateway_client.HOST}"), id="Gateway of our host"),
    pytest.param(_gateway(gateway_client.HOST.upper()), id="Gateway of our host in capitals"),
    pytest.param(_gateway("*.example.com"), id="Gateway of a wildcard"),
    pytest.param(attacks.many_hosts, id="Gateway of 4,000 hosts"),
]
TAKERS = [
    pytest.param(_gateway(gateway_client.HOST, httpsRedirect=True), id="Gateway that redirects"),
    pytest.param(
        _gateway_and_route(gateway_client.HOST, "*"), id="Gateway with routes of its own"
    ),
]
"""What Istio lets everybody who may write Gateways take from a workload that they share: names."""
