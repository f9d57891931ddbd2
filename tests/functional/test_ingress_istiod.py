"""A shared gateway under fire: a real istiod configures a real Envoy from what we apply."""

import contextlib
import datetime
import itertools
import json
import time
import urllib.request
from http import client

import httpx2
import pytest

import cluster as charm_cluster
import component
import config
import errors
import ingress
import manifests
import mesh
import relations
from tests import echo, envoy_dump, oidc, tricks, visitors, waiting
from tests.functional import istiod_world as world

MODEL = "ai-hammered"
COOKIE = echo.COOKIE
AUTH = relations.AuthRequest(
    service="oidc",
    port=80,
    allowed_request_headers=("cookie",),
    allowed_response_headers=("kubeflow-userid",),
)


# The same service as in AUTH. What it is shown beside tells who asked.
ASKING = {
    "service": f"oidc.{MODEL}.svc.cluster.local",
    "port": 80,
    "includeRequestHeadersInCheck": ["cookie", "x-shown"],
    "headersToUpstreamOnAllow": ["kubeflow-userid"],
}
PROVIDER = {"name": "oidc", "envoyExtAuthzHttp": ASKING}
OTHER_PROVIDER = {"name": "ldap", "envoyExtAuthzHttp": ASKING}


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

    def __init__(self, api, ports, application, asked):
        self.api = api
        self.port, self.admin = ports
        self.application = application
        self.asked = asked
        self.providers = ()
        self.requests = []
        self.auths = []
        self.options = {"hosts": visitors.HOST}
        self.later = datetime.timedelta(hours=1)

    def part(self):
        found = mesh.Mesh(
            namespace="istio-system",
            revision="default",
            is_default=True,
            extension_providers=self.providers,
        )
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
        application = stack.enter_context(echo.serving(echo.Application))
        authorization = stack.enter_context(echo.serving(echo.Authorization))
        dex = stack.enter_context(echo.serving(oidc.Provider))
        authservice = stack.enter_context(echo.serving(oidc.Service))
        oidc.Service.provider = f"http://127.0.0.1:{dex.server_port}"
        port, admin = world.free_ports(2)
        objects = [
            *map(namespace, (world.GATEWAY_NAMESPACE, "shop", MODEL)),
            *gateway_workload(port),
            *service("shop", "web", application.server_port),
            *service(MODEL, "kfp", application.server_port),
            *service(MODEL, "dashboard", application.server_port),
            *service(MODEL, "oidc", authorization.server_port),
            *service(MODEL, "dex", dex.server_port),
            *service(MODEL, "authservice", authservice.server_port),
            *tenant(),
        ]
        with contextlib.suppress(errors.ConflictError):
            # Other tests on this control plane have an istiod, too.
            api.create(namespace("istio-system"))
        for obj in objects:
            api.create(obj)
        settings = {"extensionProviders": [PROVIDER, OTHER_PROVIDER]}
        xds = stack.enter_context(world.istiod(folder, kubeconfig, settings))
        stack.enter_context(world.gateway(folder, xds, admin))
        found = Place(api, (port, admin), application.asked, authorization.asked)
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


@pytest.fixture(params=["filter", "provider"])
def asking(request, place):
    """The place with one of the two ways of asking."""
    place.providers = (PROVIDER,) if request.param == "provider" else ()
    place.options = {"hosts": visitors.HOST}
    place.auths = [COMPLETE]
    yield place
    place.providers = ()


def request(number, name, prefix, rewrite):
    message = relations.IngressRequest(service=name, port=80, prefix=prefix, rewrite=rewrite)
    return relations.Received(number, name, message)


COMPLETE = relations.Received(9, "oidc", AUTH)


REQUESTS = 10_000


@pytest.mark.long
def test_nothing_of_ours_is_served_unasked_and_the_neighbour_never_notices(place):
    ours = {"path": "/kfp/x", "kubeflow-userid": "admin"}
    with contextlib.ExitStack() as stack:

        def hammer(**given):
            return stack.enter_context(visitors.Hammer(place.visitor(), **given))

        neighbours = [hammer(host=visitors.TENANT), hammer(host=visitors.TENANT, fresh=True)]
        strangers = [hammer(**ours), hammer(fresh=True, **ours)]

        def go_on(requests=100):
            """Let everybody ask on."""
            before = [hammer.count for hammer in (*neighbours, *strangers)]
            assert waiting.eventually(
                lambda: all(
                    hammer.count >= count + requests
                    for hammer, count in zip((*neighbours, *strangers), before, strict=True)
                )
            )

        def change(**given):
            vars(place).update(given)
            place.reconcile()
            go_on()

        while sum(stranger.count for stranger in strangers) < REQUESTS:
            # Closed, because nobody is related; then complete.
            change(auths=[])
            place.providers = ()
            change(auths=[COMPLETE])
            place.eventually(200, Cookie=COOKIE)
            # istiod's filters instead of ours, and back.
            change(providers=(PROVIDER,))
            place.eventually(200, Cookie=COOKIE)
            change(providers=())
            # Another service, then back, then gone.
            elsewhere = AUTH.model_copy(update={"port": 81})
            change(auths=[relations.Received(9, "oidc", elsewhere)])
            change(auths=[COMPLETE], providers=(PROVIDER,))
            place.eventually(200, Cookie=COOKIE)
            change(auths=[])
            # By another name for a while, and by both.
            for hosts in (
                "other.example.com",
                f"{visitors.HOST},other.example.com",
                visitors.HOST,
            ):
                change(options={"hosts": hosts}, auths=[COMPLETE])
            # A route comes and goes.
            routes = place.requests
            change(requests=[*routes, request(4, "kfp", "/more", None)])
            change(requests=routes)
            # The application is removed, and deployed again.
            place.eventually(200, Cookie=COOKIE)
            place.part().remove()
            go_on()
    place.providers = ()
    print("strangers", [stranger.answers for stranger in strangers])
    print("neighbours", [neighbour.answers for neighbour in neighbours])
    for neighbour in neighbours:
        assert set(neighbour.answers) == {200}
    for stranger in strangers:
        assert 200 not in stranger.answers, stranger.answers
        assert stranger.answers.get(302, 0) > 0, stranger.answers


def test_each_request_is_asked_about_once(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    by_provider = bool(asking.providers)
    visitor = asking.visitor()

    def shown():
        asking.asked.clear()
        answer = visitor.get("/kfp/x", Cookie=COOKIE, **{"X-Shown": "to istiod's filter only"})
        assert answer.status == 200
        assert answer.echo["headers"]["kubeflow-userid"] == echo.USER
        (asked,) = asking.asked
        return "x-shown" in asked["headers"]

    assert waiting.eventually(lambda: shown() is by_provider)
    visitor.close()


def test_name_that_a_client_claims_reaches_nobody(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    for claim, path in itertools.product(tricks.CLAIMS, ("/kfp/x", "/public/x")):
        asking.asked.clear()
        asking.application.clear()
        head = tricks.head(path, more=(f"Cookie: {COOKIE}", claim))
        answer = visitors.raw("127.0.0.1", head, asking.port)
        assert answer.startswith(b"HTTP/1.1 200 "), claim
        (served,) = asking.application
        user = echo.USER if path == "/kfp/x" else None
        assert served["headers"].get("kubeflow-userid") == user, claim
        assert "admin" not in json.dumps([served, asking.asked]), claim


def test_no_way_to_write_a_request_leads_past_the_service(asking):
    asking.requests = [*asking.requests, request(4, "dex", "/dex", "/dex")]
    asking.requests.append(request(5, "kfp", tricks.TARGET, None))
    try:
        asking.reconcile()
        asking.eventually(200, tricks.TARGET, Cookie=COOKIE)
        asking.eventually(404, "/dex/none")
        asking.application.clear()
        heads = [tricks.head(path) for path in tricks.PATHS]
        for head in (*heads, *(param.values[0] for param in tricks.HEADS)):
            answer = visitors.raw("127.0.0.1", head, asking.port)
            assert answer.startswith(b"HTTP/1."), head
            assert int(answer.split()[1]) not in (101, 200), (head, answer)
        assert asking.application == []
    finally:
        asking.requests = asking.requests[:-2]


def test_visitor_logs_in_is_known_to_the_page_and_logs_out(place):
    routes, place.options = place.requests, {"hosts": visitors.HOST}
    place.auths = [
        relations.Received(9, "authservice", AUTH.model_copy(update={"service": "authservice"}))
    ]
    place.requests = [
        *routes,
        request(4, "dex", "/dex", "/dex"),
        request(5, "authservice", "/authservice", "/"),
    ]
    place.reconcile()
    stranger = place.visitor()
    assert waiting.eventually(lambda: "/dex/auth?" in str(stranger.get("/").headers))
    assert waiting.eventually(lambda: stranger.get("/dex/none").status == 404)
    stranger.close()

    def client():
        base, headers = f"http://127.0.0.1:{place.port}", {"Host": visitors.HOST}
        return httpx2.Client(base_url=base, headers=headers, follow_redirects=True)

    try:
        oidc.log_in_and_out(client, "/kfp/runs")
    finally:
        place.requests = routes


def test_policy_alone_would_take_a_client_at_its_word(place):
    """Why the EnvoyFilter stays beside the policy: Istio takes no header away."""
    place.providers, place.options, place.auths = (PROVIDER,), {"hosts": visitors.HOST}, [COMPLETE]
    place.reconcile()
    place.eventually(200, Cookie=COOKIE)
    visitor = place.visitor()
    kind = charm_cluster.kind("networking.istio.io/v1alpha3", "EnvoyFilter")
    (ours,) = place.api.list(kind, namespace=world.GATEWAY_NAMESPACE)
    place.api.delete(ours)

    def taken_at_its_word():
        headers = {"Kubeflow-UserID": "admin"}
        return "admin" in visitor.get("/public/x", **headers).text

    assert waiting.eventually(taken_at_its_word)
    place.reconcile()
    assert waiting.eventually(lambda: not taken_at_its_word())
    visitor.close()


def test_neighbour_whose_policy_asks_somebody_else_is_not_refused_for_ours(place):
    place.providers, place.options, place.auths = (PROVIDER,), {"hosts": visitors.HOST}, [COMPLETE]
    place.reconcile()
    place.eventually(200, Cookie=COOKIE)
    theirs = {
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "theirs", "namespace": world.GATEWAY_NAMESPACE},
        "spec": {
            "selector": {"matchLabels": world.LABELS},
            "action": "CUSTOM",
            "provider": {"name": "ldap"},
            "rules": [{"to": [{"operation": {"hosts": [visitors.TENANT]}}]}],
        },
    }
    place.api.create(theirs)
    visitor = place.visitor()
    try:
        # istiod takes one provider for a workload, and refuses what two of them guard.
        known = {"host": visitors.TENANT, "Cookie": COOKIE}
        assert waiting.eventually(lambda: visitor.get(**known).status == 403)
        place.reconcile()
        assert waiting.eventually(lambda: visitor.get(**known).status == 200)
        assert visitor.get(host=visitors.TENANT).status == 302
        assert visitor.get("/kfp/x").status == 302
        assert visitor.get("/kfp/x", Cookie=COOKIE).status == 200
    finally:
        visitor.close()
        place.api.delete(theirs)
        place.providers = ()


def test_connection_from_before_the_guard_is_not_served_past_it(place):
    place.part().remove()
    place.later = datetime.timedelta()
    place.options = {"hosts": visitors.HOST, "strict_ingress_auth": False}
    place.auths = []
    place.reconcile()
    place.eventually(200)
    early = place.visitor()
    assert early.get("/kfp/x").status == 200
    try:
        place.auths = [COMPLETE]
        assert any("earlier connections" in message for message in place.reconcile())
        assert waiting.eventually(lambda: early.get("/kfp/x").status != 200)
        late = place.visitor()
        assert late.get("/kfp/x", Cookie=COOKIE).status != 200
        # A minute later it is somebody else's turn to ask, on new connections.
        place.later = datetime.timedelta(hours=1)
        place.reconcile()
        place.eventually(200, Cookie=COOKIE)
        place.eventually(302)
        late.close()
    finally:
        early.close()
        place.later = datetime.timedelta(hours=1)
        place.options = {"hosts": visitors.HOST}


def test_routes_lead_where_they_should_whatever_their_age(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    visitor = asking.visitor()
    for path, want in (
        ("/", "/"),
        ("/kfp/x", "/kfp/x"),
        ("/kfp/nested/y", "/deep/y"),
        ("/kfp/nes", "/kfp/nes"),
        ("/other?a=b", "/other?a=b"),
    ):
        answer = visitor.get(path, Cookie=COOKIE)
        assert (answer.status, answer.echo["path"]) == (200, want)
    visitor.close()


def test_gateway_holds_each_route_in_the_order_of_precedence_and_without_a_timeout(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    with urllib.request.urlopen(f"http://127.0.0.1:{asking.admin}/{envoy_dump.ROUTES}") as answer:
        routes = envoy_dump.virtual_hosts(json.load(answer))[f"{visitors.HOST}:80"]
    clusters = {
        path: envoy_dump.cluster_for(routes, path)
        for path in ("/", "/other", "/kfp", "/kfp/x", "/kfp/nested", "/kfp/nested/x")
    }
    assert {path: cluster.split("||")[1].split(".")[0] for path, cluster in clusters.items()} == {
        "/": "dashboard",
        "/other": "dashboard",
        "/kfp": "kfp",
        "/kfp/x": "kfp",
        "/kfp/nested": "dashboard",
        "/kfp/nested/x": "dashboard",
    }
    # Nothing ends a request that takes long.
    assert {route["route"]["timeout"] for route in routes} == {"0s"}


@pytest.mark.long
def test_request_of_more_than_a_minute_is_answered(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    visitor = visitors.Visitor(port=asking.port, timeout=90)

    def slow():
        began = time.monotonic()
        status = visitor.get("/kfp/x?seconds=65", Cookie=COOKIE).status
        return status, time.monotonic() - began

    try:
        status, took = slow()
    except client.RemoteDisconnected:
        # A connection from before a change of the filters ends after 45 s, Istio's drainDuration.
        status, took = slow()
    assert status == 200
    assert took > 65
    visitor.close()


def test_websocket_passes_once_somebody_has_been_asked_about_it(asking):
    asking.reconcile()
    asking.eventually(200, Cookie=COOKIE)
    where = ("127.0.0.1", "/kfp/socket", "hello")
    assert visitors.talk(*where, port=asking.port, Cookie=COOKIE) == "hello"
    assert " 302 " in visitors.talk(*where, port=asking.port)


def test_route_of_somebody_else_on_our_gateway_is_guarded(asking):
    asking.reconcile()
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
    asking.api.create(notebook)
    visitor = asking.visitor()
    deadline = time.monotonic() + 20
    while "its-own" not in visitor.get("/notebook/x", Cookie=COOKIE).text:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert visitor.get("/notebook/x").status == 302
    # Closed, it is closed as well.
    asking.auths = []
    asking.reconcile()
    asking.eventually(403, "/notebook/x", Cookie=COOKIE)
    visitor.close()
    asking.api.delete(notebook)


@pytest.mark.long
def test_gateway_of_our_own_guards_hosts_that_others_bind_to_it(asking):
    asking.part().remove()
    for obj in tenant():
        asking.api.delete(obj)
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
    asking.api.create(sneaky)
    visitor = asking.visitor()
    try:
        for hosts in ("", "*.example.com"):
            asking.options = {"hosts": hosts}
            asking.reconcile()
            asking.eventually(200, Cookie=COOKIE)
            # A policy's host may have one wildcard, so with a port it is our filter that asks.
            for host in ("sneaky.example.com", "sneaky.example.com:8080"):
                known = {"host": host, "Cookie": COOKIE}
                assert waiting.eventually(lambda known=known: visitor.get(**known).status == 200)
                assert visitor.get(host=host).status == 302
        # Somebody comes to the gateway that was ours alone: the operator has to say something,
        # and until then they are served as if we were not there, and our model as before.
        for obj in tenant():
            asking.api.create(obj)
        assert any("shared gateway" in message for message in asking.reconcile())
        assert waiting.eventually(lambda: visitor.get(host=visitors.TENANT).status == 200)
        assert visitor.get(host="sneaky.example.com").status == 302
        assert visitor.get("/kfp/x").status == 302
        assert visitor.get("/kfp/x", Cookie=COOKIE).status == 200
    finally:
        visitor.close()
        asking.api.delete(sneaky)
        asking.part().remove()
        for obj in tenant():
            asking.api.apply(obj)
