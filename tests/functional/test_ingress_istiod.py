"""A shared gateway under fire: a real istiod configures a real Envoy from what we apply."""

import contextlib
import datetime
import time

import pytest

import component
import config
import errors
import ingress
import manifests
import mesh
import relations
from tests import echo, visitors
from tests.functional import istiod_world as world

MODEL = "ai-hammered"
COOKIE = echo.COOKIE
AUTH = relations.AuthRequest(
    service="oidc",
    port=80,
    allowed_request_headers=("cookie",),
    allowed_response_headers=("kubeflow-userid",),
)


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def service(space, name, port):
    """A Service whose endpoint is on this machine."""
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": space},
        "spec": {"ports": [{"name": "http", "port": 80}]},
    }
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": space,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [world.own_address()], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


def gateway_workload(port):
    """What makes Envoy the gateway workload: its Service's port is the one that Envoy opens."""
    metadata = {"name": "gateway", "namespace": world.GATEWAY_NAMESPACE}
    container = {"name": "istio-proxy", "image": "proxy", "args": ["proxy", "router"]}
    template = {"metadata": {"labels": world.LABELS}, "spec": {"containers": [container]}}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": world.LABELS},
            "template": template,
        },
    }
    ports = [{"name": "http2", "port": 80, "targetPort": port}]
    spec = {"selector": world.LABELS, "ports": ports}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def tenant():
    yield from ()
    servers = [
        {"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": [visitors.TENANT]}
    ]
    metadata = {"name": "web", "namespace": "shop"}
    yield {
        "apiVersion": "networking.istio.io/v1",
        "kind": "Gateway",
        "metadata": metadata,
        "spec": {"selector": world.LABELS, "servers": servers},
    }
    destination = {"host": "web.shop.svc.cluster.local", "port": {"number": 80}}
    yield {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": metadata,
        "spec": {
            "gateways": ["shop/web"],
            "hosts": [visitors.TENANT],
            "http": [{"route": [{"destination": destination}]}],
        },
    }


class Place:
    """The charm's part, as relations and options make it."""

    def __init__(self, api, port):
        self.api = api
        self.port = port
        self.requests = []
        self.auths = []
        self.options = {"hosts": visitors.HOST}
        self.later = datetime.timedelta(hours=1)

    def part(self):
        found = mesh.Mesh(namespace="istio-system", revision="default", is_default=True)
        scope = component.Scope(
            cluster=self.api,
            manifests=manifests.Manifests(self.api, model=MODEL, application="istio-integrator"),
            config=config.Config.model_validate(
                {"gateway_service": f"{world.GATEWAY_NAMESPACE}/gateway", **self.options}
            ),
            mesh=found,
            model=MODEL,
            application="istio-integrator",
            unit="istio-integrator/0",
            leader=True,
        )
        now = datetime.datetime.now(datetime.UTC) + self.later
        return ingress.Ingress(scope, self, now=lambda: now)

    def reconcile(self):
        tried = self.part()
        tried.reconcile()
        return [status.message for status in tried.statuses()]

    # What ingress.Ingress asks of relations.
    def ingress(self):
        return self.requests

    def ingress_auth(self):
        return self.auths

    def is_related(self, *endpoints):
        said = {"ingress": self.requests, "ingress-auth": self.auths}
        return any(said.get(endpoint) for endpoint in endpoints)

    def publish_gateway(self, **_):
        pass

    publish_pilot = publish_gateway

    def publish_mesh(self, _):
        pass

    def visitor(self):
        return visitors.Visitor(port=self.port)

    @staticmethod
    def _tried(visitor, path, headers):
        try:
            return visitor.get(path, **headers).status
        except OSError as error:
            return error

    def eventually(self, want, path="/kfp/x", **headers):
        visitor = self.visitor()
        deadline = time.monotonic() + 20
        try:
            while (got := self._tried(visitor, path, headers)) != want:
                assert time.monotonic() < deadline, got
                time.sleep(0.1)
        finally:
            visitor.close()


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    api = world.install_definitions(client)
    folder = tmp_path_factory.mktemp("istiod")
    with contextlib.ExitStack() as stack:
        application = stack.enter_context(echo.serving(echo.Application)).server_port
        authorization = stack.enter_context(echo.serving(echo.Authorization)).server_port
        port, admin = world.free_ports(2)
        objects = [
            *map(namespace, (world.GATEWAY_NAMESPACE, "shop", MODEL)),
            *gateway_workload(port),
            *service("shop", "web", application),
            *service(MODEL, "kfp", application),
            *service(MODEL, "dashboard", application),
            *service(MODEL, "oidc", authorization),
            *tenant(),
        ]
        with contextlib.suppress(errors.ConflictError):
            # Other tests on this control plane have an istiod, too.
            api.create(namespace("istio-system"))
        for obj in objects:
            api.create(obj)
        xds = stack.enter_context(world.istiod(folder, kubeconfig))
        stack.enter_context(world.gateway(folder, xds, admin))
        found = Place(api, port)
        visitor = found.visitor()
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError):
                if visitor.get(host=visitors.TENANT).status == 200:
                    break
            assert time.monotonic() < deadline, (folder / "envoy.log").read_text()[-3000:]
            time.sleep(0.2)
        visitor.close()
        found.requests = [
            request(1, "dashboard", "/", "/"),
            request(2, "kfp", "/kfp", None),
            request(3, "dashboard", "/kfp/nested", "/deep"),
        ]
        yield found
        for name in (world.GATEWAY_NAMESPACE, "shop", MODEL):
            api.delete(namespace(name))


def request(number, name, prefix, rewrite):
    message = relations.IngressRequest(service=name, port=80, prefix=prefix, rewrite=rewrite)
    return relations.Received(number, name, message)


COMPLETE = relations.Received(9, "oidc", AUTH)


@pytest.mark.long
def test_nothing_of_ours_is_served_unasked_and_the_neighbour_never_notices(place):
    ours = {"path": "/kfp/x", "kubeflow-userid": "admin"}
    with contextlib.ExitStack() as stack:

        def hammer(**given):
            return stack.enter_context(visitors.Hammer(place.visitor(), **given))

        neighbours = [hammer(host=visitors.TENANT), hammer(host=visitors.TENANT, fresh=True)]
        strangers = [hammer(**ours), hammer(fresh=True, **ours)]
        for _ in range(3):
            # Closed, because nobody is related.
            place.reconcile()
            time.sleep(1)
            # Complete.
            place.auths = [COMPLETE]
            place.reconcile()
            place.eventually(200, Cookie=COOKIE)
            time.sleep(1)
            # Another service, then back, then gone.
            place.auths = [relations.Received(9, "oidc", AUTH.model_copy(update={"port": 81}))]
            place.reconcile()
            time.sleep(0.5)
            place.auths = [COMPLETE]
            place.reconcile()
            place.eventually(200, Cookie=COOKIE)
            place.auths = []
            place.reconcile()
            time.sleep(0.5)
            # By another name for a while, and by both.
            for hosts in (
                "other.example.com",
                f"{visitors.HOST},other.example.com",
                visitors.HOST,
            ):
                place.options = {"hosts": hosts}
                place.auths = [COMPLETE]
                place.reconcile()
                time.sleep(0.5)
            # The application is removed, and deployed again.
            place.auths = [COMPLETE]
            place.reconcile()
            place.eventually(200, Cookie=COOKIE)
            place.part().remove()
            time.sleep(1)
            place.auths = []
    for neighbour in neighbours:
        assert set(neighbour.answers) == {200}
    for stranger in strangers:
        assert 200 not in stranger.answers, stranger.answers
        assert stranger.answers.get(302, 0) > 0, stranger.answers


def test_routes_lead_where_they_should_whatever_their_age(place):
    place.auths = [COMPLETE]
    place.reconcile()
    place.eventually(200, Cookie=COOKIE)
    visitor = place.visitor()
    for path, want in (
        ("/", "/"),
        ("/kfp/x", "/kfp/x"),
        ("/kfp/nested/y", "/deep/y"),
        ("/kfp/nes", "/kfp/nes"),
        ("/other?a=b", "/other?a=b"),
    ):
        answer = visitor.get(path, Cookie=COOKIE)
        assert (answer.status, answer.echo["path"]) == (200, want)
    answer = visitor.get("/kfp/x", Cookie=COOKIE, **{"Kubeflow-UserID": "admin"})
    assert answer.echo["headers"]["kubeflow-userid"] == echo.USER
    visitor.close()


def test_route_of_somebody_else_on_our_gateway_is_guarded(place):
    place.auths = [COMPLETE]
    place.reconcile()
    destination = {"host": "web.shop.svc.cluster.local", "port": {"number": 80}}
    notebook = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "notebook", "namespace": "shop"},
        "spec": {
            "gateways": [f"{MODEL}/kubeflow-gateway"],
            "hosts": ["*"],
            "http": [
                {
                    "match": [{"uri": {"prefix": "/notebook/"}}],
                    "rewrite": {"uri": "/its-own/"},
                    "route": [{"destination": destination}],
                }
            ],
        },
    }
    place.api.create(notebook)
    visitor = place.visitor()
    deadline = time.monotonic() + 20
    while "its-own" not in visitor.get("/notebook/x", Cookie=COOKIE).text:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert visitor.get("/notebook/x").status == 302
    # Closed, it is closed as well.
    place.auths = []
    place.reconcile()
    place.eventually(403, "/notebook/x", Cookie=COOKIE)
    visitor.close()
    place.api.delete(notebook)


def test_gateway_of_our_own_guards_hosts_that_others_bind_to_it(place):
    place.part().remove()
    for obj in tenant():
        place.api.delete(obj)
    place.options = {}
    place.auths = [COMPLETE]
    place.reconcile()
    place.eventually(200, Cookie=COOKIE)
    sneaky = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "sneaky", "namespace": "shop"},
        "spec": {
            "gateways": [f"{MODEL}/kubeflow-gateway"],
            "hosts": ["sneaky.example.com"],
            "http": [{"route": [{"destination": {"host": "web.shop.svc.cluster.local"}}]}],
        },
    }
    place.api.create(sneaky)
    visitor = place.visitor()
    deadline = time.monotonic() + 20
    while visitor.get(host="sneaky.example.com", Cookie=COOKIE).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)
    assert visitor.get(host="sneaky.example.com").status == 302
    visitor.close()
    place.api.delete(sneaky)
    place.part().remove()
