"""The world of tenants with a real istiod and a real Envoy as the shared gateway workload."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

from istio_integrator.config import config
from istio_integrator.ingress.gateways import own
from istio_integrator.kube import manifests
from testbed import loopback
from tests import echo, gateway_client
from tests.functional import istiod_world, tenant_world
from tests.functional import tenant_parts as parts
from tests.functional.ingress_world import gateway, lead, server, service, virtual_service
from tests.waiting import eventually

COOKIE = echo.COOKIE
CLAIM = "admin"
"""A user that the authorization service never names."""
CLAIMED = {"kubeflow-userid": CLAIM}
SETTLED = 299
"""The status of a route that says that the gateway has got what was written before it."""


class Served(tenant_world.World):
    """A world whose gateway can be asked."""

    edge = istiod_world.GATEWAY_NAMESPACE

    def furnish(self, ports=(8080, 8443)):
        """Have applications behind the Services, and routes of somebody else."""
        super().furnish(ports)
        self.port, self.ports = ports[0], ports
        servers = {"kfp": self.application, "oidc": self.authorization}
        self.backed = {
            name: list(service(self.model, name, server.server_port))
            for name, server in servers.items()
        }
        for obj in (
            *service(self.third, "web", self.application.server_port),
            *self.backed["kfp"],
            *self.backed["oidc"],
            *self.neighbourhood(),
        ):
            self.api.create(obj)

    def rest(self):
        """Have everything as it is when nobody attacks."""
        self.charm.hook()
        self.reconciler.start(self.charm.settings)
        self.evil.asked.clear()

    def neighbourhood(self):
        """What somebody else has on the gateway: a notebook behind the model's, and a shop."""
        yield self.route("notebook", self.third, [f"{self.model}/kubeflow-gateway"], "/notebook/")
        yield gateway(self.third, "web", server(80, [gateway_client.TENANT]))
        yield self.route("web", self.third, [f"{self.third}/web"], "/", gateway_client.TENANT)

    def route(self, name, namespace, gateways, prefix, host="*", *, to=None):
        """A VirtualService, by default to the application of its own namespace."""
        destination = lead(to or f"web.{namespace}.svc.cluster.local")
        matched = {"match": [{"uri": {"prefix": prefix}}], "route": destination}
        return virtual_service(namespace, name, gateways, [host], matched)

    guarded = ("/kfp/x", tenant_world.NOTEBOOK)
    """Paths of our host that nobody may reach without being asked who they are."""

    def assert_guarded(self):
        """Assert that each request is asked about, and served by whom it is for."""
        self.assert_nobody_passes_unasked()
        visitor = gateway_client.Client(port=self.port)
        try:
            for path in self.guarded:
                known = visitor.get(path, Cookie=COOKIE, **CLAIMED)
                assert known.status == 200, (path, known)
                assert known.echo["port"] == self.application.server_port, (path, known)
                assert known.echo["headers"].get("kubeflow-userid") == echo.USER, (path, known)
            shop = visitor.get(host=gateway_client.TENANT)
            assert shop.echo["port"] == self.application.server_port
        finally:
            visitor.close()
        assert self.evil.asked == []

    def assert_nobody_passes_unasked(self):
        """Assert that no application hears of a stranger, nor anybody of the name they claim."""
        self.wait_until_pushed()
        self.application.asked.clear()
        visitor = gateway_client.Client(port=self.port)
        try:
            for path in self.guarded:
                stranger = visitor.get(path, **CLAIMED)
                assert stranger.status != 200, (path, stranger)
        finally:
            visitor.close()
        assert self.application.asked == []
        assert CLAIM not in json.dumps(self.authorization.asked)

    def is_asked(self):
        """Tell whether the authorization service itself decides."""
        visitor = gateway_client.Client(port=self.port)
        try:
            return visitor.get("/kfp/x", gateway_client.HOST).status == 302
        finally:
            visitor.close()

    def assert_closed(self):
        """Assert that nothing of the model is served, to nobody.

        Of a host that a tenant has taken, that may be the tenant's own redirect to HTTPS.
        """
        visitor = gateway_client.Client(port=self.port)

        def answers():
            return {
                visitor.get(path, **headers).status
                for path in self.guarded
                for headers in ({}, {"Cookie": COOKIE})
            }

        try:
            assert eventually(lambda: answers() <= {301, 403, 404}, 10), answers()
            self.application.asked.clear()
            assert 200 not in answers()
            assert self.application.asked == []
        finally:
            visitor.close()

    def has_sent(self, request, port):
        """Tell whether somebody listened to a request, and wait for what becomes of it."""
        with socket.create_connection(("127.0.0.1", port), timeout=15) as connection:
            connection.sendall(request.encode())
            # An answer, or the end of a connection that is refused.
            with contextlib.suppress(ConnectionResetError):
                connection.recv(65536)
        return True

    @contextlib.contextmanager
    def without(self, name, *kinds):
        """Have an application of the model without its Service, or without pods behind it."""
        gone = [each for each in self.backed[name] if each["kind"] in kinds]
        for obj in gone:
            self.api.delete(obj)
        try:
            yield
        finally:
            for obj in gone:
                self.api.create(obj)

    @contextlib.contextmanager
    def unrelated(self, endpoint):
        """Have nobody on an endpoint while the block runs, then the same as before."""
        related = self.charm.related
        self.charm.related = [each for each in related if each.endpoint != endpoint]
        try:
            yield
        finally:
            self.charm.related = related
            self.charm.hook()

    def wait_until_pushed(self):
        """Wait until the gateway has got what was written by now."""
        path = f"/{parts.unique('pushed')}"
        host = gateway_client.TENANT
        told = self.route("pushed", self.third, [f"{self.third}/web"], path, host)
        rule = told["spec"]["http"][0]
        del rule["route"]
        rule["directResponse"] = {"status": SETTLED}
        visitor = gateway_client.Client(port=self.port)
        self.api.create(told)
        try:
            assert eventually(
                lambda: visitor.get(path, host, Cookie=COOKIE).status == SETTLED, 20
            ), visitor.get(path, host, Cookie=COOKIE)
        finally:
            visitor.close()
            self.api.delete(told)

    @contextlib.contextmanager
    def only_own_ports(self):
        """Hold the gateway to its ports, as the charm holds a gateway workload of its own."""
        context = {
            "name": "ports",
            "account": "ports",
            "model": self.edge,
            "pod_labels": istiod_world.LABELS,
            "inject_labels": {},
            "options": config.Config(),
        }
        rendered = manifests.render(own.FOLDER, context)
        (policy,) = (each for each in rendered if each["kind"] == "AuthorizationPolicy")
        (service,) = (each for each in rendered if each["kind"] == "Service")
        open_ports = {
            str(port["targetPort"]): str(ours)
            for port in service["spec"]["ports"]
            for name, ours in zip(("http2", "https"), self.ports, strict=True)
            if port["name"] == name
        }
        operation = policy["spec"]["rules"][0]["to"][0]["operation"]
        operation["notPorts"] = [open_ports[port] for port in operation["notPorts"]]
        policy["metadata"]["namespace"] = self.edge
        self.api.create(policy)
        try:
            yield
        finally:
            self.api.delete(policy)

    def evil_service(self, name, server=None):
        """A Service of the tenant's, whose endpoint is a server, by default the tenant's own."""
        yield parts.service(name, self.profile)
        subset = {
            "addresses": [{"ip": istiod_world.own_address()}],
            "ports": [{"name": "http", "port": (server or self.evil).server_port}],
        }
        yield parts.made("v1", "Endpoints", name, self.profile, subsets=[subset])


@contextlib.contextmanager
def serving(control_plane, client, folder) -> Iterator[Served]:
    """Have a world with a gateway while the block runs."""
    world = Served(control_plane, client, folder)
    with tenant_world.connected(world), contextlib.ExitStack() as stack:
        world.application = stack.enter_context(echo.serving(echo.Application))
        world.authorization = stack.enter_context(echo.serving(echo.Authorization))
        world.evil = stack.enter_context(echo.serving(echo.Application))
        port, secure, admin = loopback.free_ports(3)
        world.admin = world.charm.admin = admin
        xds = stack.enter_context(istiod_world.istiod(folder, control_plane.kubeconfig))
        stack.callback(world.clean)
        world.furnish((port, secure))
        token = istiod_world.gateway_token(client)
        stack.enter_context(istiod_world.gateway(folder, xds, admin, token))
        world.charm.relate("ingress", "kfp", service="kfp", port=80, prefix="/kfp")
        world.charm.relate("ingress-auth", "oidc", **tenant_world.AUTH)
        world.charm.relate("gateway-info", "kserve-controller")
        world.settle()
        world.assert_guarded()
        yield world
