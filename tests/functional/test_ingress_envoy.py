"""What our filters do in a real Envoy, which gets them as istiod merges them."""

import contextlib
import dataclasses
import json

import httpx2
import pytest

from istio_integrator.ingress import authorization, gateway, guards
from istio_integrator.kube import manifests
from testbed import loopback
from tests import echo, gateway_client
from tests.functional import istiod_world as world

HOST = gateway_client.HOST
TENANT = gateway_client.TENANT
OWNER = "kubeflow.istio-integrator"
TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gw",
    http_port=80,
    https_port=443,
)
SERVICE = authorization.Service(
    host="oidc.kubeflow.svc.cluster.local",
    port=8080,
    request_headers=("cookie", "x-auth-token"),
    response_headers=("kubeflow-userid",),
)
TYPES = "type.googleapis.com/envoy.extensions"


def patched(envoy_filter):
    """Do with a route configuration of HTTP what istiod does with the patches for it."""
    filters, routes = [], {}
    for patch in envoy_filter["spec"]["configPatches"]:
        if patch["applyTo"] == "HTTP_FILTER":
            filters.append(patch["patch"]["value"])
        elif patch["applyTo"] == "ROUTE_CONFIGURATION":
            routes.update(patch["patch"]["value"])
    return filters, routes


def cluster(name, port):
    endpoint = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}
    return {
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}],
        },
    }


def configuration(guard, hosts, ports, application, authorization):
    """Configure a gateway that serves our host and a tenant's."""
    context = guards.context(
        guard,
        dataclasses.replace(TARGET, hosts=tuple(hosts)),
        owner=OWNER,
        model="kubeflow",
        domain="cluster.local",
    )
    (envoy_filter,) = manifests.render(guards.FOLDER, context)
    filters, routes = patched(envoy_filter)
    route = {"match": {"prefix": "/"}, "route": {"cluster": "application"}}
    # As istiod names it where a port is also the target of another.
    ours = {"name": f"{HOST}:8080", "domains": [HOST], "routes": [route]}
    theirs = {"name": f"{TENANT}:80", "domains": [TENANT], "routes": [route]}
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"},
    }
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "normalize_path": True,
        "http_protocol_options": {"accept_http_10": True},
        "http_filters": [*filters, router],
        "route_config": {
            "name": "http.80",
            "virtual_hosts": [ours, theirs],
            "ignore_port_in_host_matching": True,
            **routes,
        },
    }
    name = "envoy.filters.network.http_connection_manager"
    chain = {"filters": [{"name": name, "typed_config": manager}]}
    listener = {
        "name": "gateway",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": ports[0]}},
        "filter_chains": [chain],
    }
    return {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": ports[1]}}},
        "static_resources": {
            "listeners": [listener],
            "clusters": [
                cluster("application", application),
                cluster(SERVICE.cluster, authorization),
            ],
        },
    }


class Gateway(gateway_client.Client):
    """A running Envoy between two servers of ours."""

    def __init__(self, port, application, authorization):
        super().__init__(port=port)
        self.port = port
        self.application = application.asked
        self.authorization = authorization.asked


@contextlib.contextmanager
def running(tmp_path, guard, hosts=(HOST,)):
    with contextlib.ExitStack() as stack:
        application = stack.enter_context(echo.serving(echo.Application))
        authorization = stack.enter_context(echo.serving(echo.Authorization))
        ports = loopback.free_ports(2)
        servers = (application.server_port, authorization.server_port)
        path = tmp_path / "envoy.json"
        path.write_text(json.dumps(configuration(guard, hosts, ports, *servers)))
        argv = [world.ENVOY, "-c", path, "--concurrency", "1", "--use-dynamic-base-id"]
        log = tmp_path / "envoy.log"
        world.wait_for_port(ports[0], stack.enter_context(world.process(argv, log)), log)
        yield stack.enter_context(
            contextlib.closing(Gateway(ports[0], application, authorization))
        )


ASKING = authorization.Guard(service=SERVICE)
CLOSED = authorization.Guard()
COOKIE = echo.COOKIE


@pytest.fixture(scope="module", params=[(HOST,), ()], ids=["shared", "alone"])
def asking(request, tmp_path_factory):
    with running(tmp_path_factory.mktemp("envoy"), ASKING, request.param) as found:
        found.shared = bool(request.param)
        yield found


def test_stranger_is_sent_where_the_service_says(asking):
    answer = asking.get("/pipeline")
    assert (answer.status, answer.headers["location"]) == (302, echo.LOGIN)
    assert answer.headers["set-cookie"] == "state=1"


def test_known_user_reaches_the_application_with_their_name(asking):
    answer = asking.get("/pipeline?a=b", Cookie=COOKIE)
    assert answer.status == 200
    assert answer.echo["path"] == "/pipeline?a=b"
    assert answer.echo["headers"]["kubeflow-userid"] == echo.USER
    assert "x-other" not in answer.echo["headers"]


def test_session_that_the_service_renews_reaches_the_browser_beside_the_applications_own(asking):
    address = f"http://127.0.0.1:{asking.port}/x"
    headers = {"Host": HOST, "Cookie": COOKIE}
    answer = httpx2.get(address, params={"cookie": "own=1"}, headers=headers)
    assert sorted(answer.headers.get_list("set-cookie")) == ["own=1", echo.RENEWED]
    assert "set-cookie" not in answer.json()["headers"]


def test_service_sees_what_it_asked_for_and_no_more(asking):
    asking.authorization.clear()
    asking.get("/x", Cookie=COOKIE, **{"X-Auth-Token": "t", "X-Secret": "s"})
    (asked,) = asking.authorization
    headers = asked["headers"]
    assert asked["path"] == "/x"
    assert headers["host"] == HOST
    assert (headers["cookie"], headers["x-auth-token"]) == (COOKIE, "t")
    assert "x-secret" not in headers


@pytest.mark.parametrize(
    "claim",
    [
        "kubeflow-userid: admin",
        "Kubeflow-UserID: admin",
        # To WSGI and CGI applications it is the same name.
        "kubeflow_userid: admin",
        "KUBEFLOW_USERID: admin",
        "kubeflow-userid: admin\r\nkubeflow-userid: admin",
        "kubeflow_userid: admin\r\nKubeflow-Userid: admin",
        "kubeflow-userid:\tadmin",
        "Connection: kubeflow-userid\r\nkubeflow-userid: admin",
    ],
)
@pytest.mark.parametrize("path", ["/x", "/public/x"])
def test_name_that_a_client_claims_reaches_nobody(asking, claim, path):
    asking.application.clear()
    asking.authorization.clear()
    request_text = f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nCookie: {COOKIE}\r\n{claim}\r\n\r\n"
    answer = gateway_client.raw("127.0.0.1", request_text, asking.port)
    assert answer.startswith(b"HTTP/1.1 200 ")
    (asked,) = asking.application
    assert "admin" not in json.dumps([asked, asking.authorization])
    assert asked["headers"].get("kubeflow-userid") == (echo.USER if path == "/x" else None)


@pytest.mark.parametrize(
    "request_text",
    [
        f"GET /pipeline HTTP/1.0\r\nHost: {HOST}\r\n\r\n",
        f"GET /pipeline HTTP/1.1\r\nHost: {HOST.upper()}\r\n\r\n",
        f"GET http://{HOST}/pipeline HTTP/1.1\r\nHost: {TENANT}\r\n\r\n",
        f"GET /public/../pipeline HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
        f"GET //pipeline HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
        f"POST /pipeline HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        f"GET /public/%2e%2e/pipeline HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
        f"GET /public\\..\\pipeline HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
        f"GET /pipeline;/public HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
        f"GET /pipeline?/public HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
        f"GET /PUBLIC/x HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
        f"OPTIONS /pipeline HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
        f"OPTIONS * HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
        f"CONNECT {HOST}:80 HTTP/1.1\r\nHost: {HOST}\r\n\r\n",
    ],
)
def test_no_way_of_asking_passes_the_service(asking, request_text):
    asking.application.clear()
    answer = gateway_client.raw("127.0.0.1", request_text, asking.port)
    assert answer.startswith(b"HTTP/1.")
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert asking.application == []


def test_http_2_without_tls_passes_the_service_too(asking):
    asking.application.clear()
    with httpx2.Client(http1=False, http2=True) as client:
        url = f"http://127.0.0.1:{asking.port}/pipeline"
        stranger = client.get(url, headers={"Host": HOST})
        assert asking.application == []
        known = client.get(url, headers={"Host": HOST, "Cookie": COOKIE})
    assert (stranger.http_version, stranger.status_code) == ("HTTP/2", 302)
    assert known.status_code == 200


def test_tenant_is_nobody_asked_about_on_a_shared_gateway(asking):
    asking.authorization.clear()
    answer = asking.get("/", host=TENANT, **{"kubeflow-userid": "theirs"})
    if asking.shared:
        assert answer.status == 200
        assert "theirs" in answer.text
        assert asking.authorization == []
    else:
        # Without hosts of our own there is no tenant; everything on the gateway is guarded.
        assert answer.status == 302


@pytest.mark.parametrize("hosts", [(HOST,), ()], ids=["shared", "alone"])
def test_closed_guard_refuses_everybody(tmp_path, hosts):
    with running(tmp_path, CLOSED, hosts) as found:
        for headers in ({}, {"Cookie": COOKIE}, {"Authorization": "Bearer x"}):
            assert found.get("/pipeline", **headers).status == 403
        assert found.application == []
        assert found.authorization == []
        if hosts:
            assert found.get("/", host=TENANT).status == 200


def test_service_that_is_away_refuses_everybody(tmp_path):
    service = authorization.Service(host="gone.kubeflow.svc.cluster.local", port=1)
    with running(tmp_path, authorization.Guard(service=service)) as found:
        assert found.get("/pipeline", Cookie=COOKIE).status == 403
        assert found.application == []
