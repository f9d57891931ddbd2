"""The routes of today's charms, with both renderers: who answers what, and what takes long.

Each charm of Kubeflow that has the interface asks as it does; WebSockets, gRPC and requests of an
hour are tried beside them.
"""

import concurrent.futures
import contextlib
import json
import time
import urllib.request

import pytest
from charmlibs.interfaces import istio_ingress_route as library

from tests import echo, gateway_client, http2, waiting
from tests.functional import renderers
from tests.functional.newer_routes import (
    ASKED,
    CHARMS,
    OPEN,
    STORE,
    bag,
    charms,
    matched,
    rewritten,
    wish,
)
from tests.functional.renderers import HOST, SCHEMES

WATCH = "/ml.Store/Watch"
CALLS = {WATCH: "store", "/ml.Store/Put": "store", "/ml.Store/Drop": "bin", "/ml.Bin/Get": "bin"}
"""Methods of gRPC, and the Service that answers each."""
NESTED = {
    "/kfp/at": ("jupyter-ui", "/kfp/at"),
    "/kfp/at?a=b": ("jupyter-ui", "/kfp/at?a=b"),
    "/kfp/at/": ("katib-ui", "/kfp/at/"),
    "/kfp/at/x": ("katib-ui", "/kfp/at/x"),
    "/all": ("kfp-ui", "/elsewhere"),
}
"""Paths within the prefix of another route, the charm that answers, and what it is asked for."""
COOKIE = {"Cookie": echo.COOKIE}
VICTIM = "victim@example.com"
CLAIM = {"kubeflow-userid": VICTIM, "kubeflow_groups": VICTIM}
KNOWN = [("cookie", echo.COOKIE), ("kubeflow-userid", VICTIM)]
GRPC = [("te", "trailers"), ("content-type", "application/grpc")]
GRPC_WEB = [("content-type", "application/grpc-web+proto"), ("x-grpc-web", "1")]
SILENT = 20.0
"""Seconds in which nothing is said: an hour, as far as a test has one."""


def calls(service, *methods):
    """A route of gRPC to a Service; without the name of a method it is of all of them."""
    return library.GRPCRoute(
        name=service,
        listener=library.Listener(port=80, protocol=library.ProtocolType.GRPC),
        backends=[library.BackendRef(service=service, port=8080)],
        matches=[
            library.GRPCRouteMatch(method=library.GRPCMethodMatch(service=called, method=method))
            for called, method in methods
        ],
    )


def nested():
    """Routes of an exact path and of a longer prefix, and one that replaces the whole path."""
    exact, full = library.HTTPPathMatchType.Exact, library.PathModifierType.ReplaceFullPath

    def lead(charm, match, **more):
        backends = [library.BackendRef(service=charm, port=CHARMS[charm].port)]
        return wish(charm, match, backends=backends, **more)

    return [
        lead("jupyter-ui", matched("/kfp/at", exact)),
        lead("katib-ui", matched("/kfp/at")),
        lead("kfp-ui", matched("/all", exact), filters=[rewritten("/elsewhere", full)]),
    ]


@pytest.fixture(scope="module", params=renderers.SERVING)
def place(request, client, kubeconfig, tmp_path_factory):
    """A model with Kubeflow's charms, one that is open to everybody, and two of gRPC."""
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(echo.serving(echo.Application)) for name in CHARMS}
        stores = {
            name: stack.enter_context(echo.serving(http2.Calls))
            for name in sorted(set(CALLS.values()))
        }
        services = [
            *((name, CHARMS[name].port, server.server_port) for name, server in servers.items()),
            *((name, 8080, server.server_port) for name, server in stores.items()),
        ]
        newer = [
            *charms(),
            bag(1, "web", wish("kfp", matched("/kfp/"))),
            bag(2, "open", wish("dashboard", matched("/open/")), endpoint=OPEN),
            bag(3, "store", grpc=[calls("store", ("ml.Store", None))]),
            bag(5, "nested", *nested()),
            bag(4, "bin", grpc=[calls("bin", ("ml.Store", "Drop"), ("ml.Bin", None))]),
        ]
        folder = tmp_path_factory.mktemp("istiod")
        found = stack.enter_context(
            renderers.serving(
                request.param, client, kubeconfig, folder, newer=newer, services=services
            )
        )
        found.names = {server.server_port: name for name, server in servers.items()}
        found.servers = {name: server.asked for name, server in servers.items()}
        found.stores = {name: server.asked for name, server in stores.items()}
        for tls in ("", HOST):
            assert waiting.eventually(lambda tls=tls: serves(found, tls), 240)
        yield found


def serves(place, tls):
    """Tell whether Envoy has all of the routes."""
    answered = all(
        reached(place, charm.path, tls, **COOKIE)[:2] == (200, name)
        for name, charm in CHARMS.items()
    )
    within = all(reached(place, path, tls, **COOKIE)[1] == NESTED[path][0] for path in NESTED)
    at_once = all(watched(place, tls, path).trailers for path in CALLS)
    return answered and within and at_once and place.asked_once("/open/x", tls=tls).status == 200


@pytest.fixture(autouse=True)
def forgotten(place):
    """Nothing asked yet."""
    for asked in (place.asked, *place.servers.values(), *place.stores.values()):
        asked.clear()


def reached(place, path, tls="", **headers):
    """The status; who answers, and what they were asked, where somebody does."""
    answer = place.asked_once(path, tls=tls, **headers)
    status = getattr(answer, "status", 0)
    if status != 200:
        return status, "", {}
    return status, place.names.get(answer.echo["port"], ""), answer.echo


@SCHEMES
@pytest.mark.parametrize("name", CHARMS)
def test_charm_is_reached_by_what_it_asks_for_and_by_whom_it_means(place, name, tls):
    charm = CHARMS[name]
    root = charm.prefix.rstrip("/")
    whole = charm.replaced or root or "/"
    for path, seen in ((charm.path, charm.seen), (root or "/", whole)):
        status, who, asked = reached(place, path, tls, **COOKIE, **CLAIM)
        assert (status, who, asked["path"]) == (200, name, seen)
        user = asked["headers"].get("kubeflow-userid")
        assert user == (echo.USER if charm.endpoint == ASKED else None)
        assert VICTIM not in json.dumps(asked)
    # What only begins alike is the dashboard's, to which everything belongs.
    assert reached(place, f"{root}x" if root else "/x", tls, **COOKIE)[1] == "kubeflow-dashboard"

    place.servers[name].clear()
    place.asked.clear()
    status, who, asked = reached(place, charm.path, tls, **CLAIM)
    if charm.endpoint == ASKED:
        assert status == 302
        assert (place.servers[name], len(place.asked)) == ([], 1)
        assert VICTIM not in json.dumps(place.asked)
    else:
        assert (status, who, asked["path"], place.asked) == (200, name, charm.seen, [])
        assert "kubeflow-userid" not in asked["headers"]
        assert VICTIM not in json.dumps(asked)


@SCHEMES
def test_exact_paths_and_longer_prefixes_come_first_and_whole_paths_are_replaced(place, tls):
    for path, (name, seen) in NESTED.items():
        status, who, asked = reached(place, path, tls, **COOKIE)
        assert (status, who, asked["path"]) == (200, name, seen)
    # What only begins alike is of the shorter prefix.
    assert place.asked_once("/kfp/attic", tls=tls, **COOKIE).echo["path"] == "/kfp/attic"
    assert reached(place, "/all/x", tls, **COOKIE)[1] == "kubeflow-dashboard"


@SCHEMES
def test_calls_of_a_browser_reach_the_store_of_metadata(place, tls):
    """Envoy's charm translates gRPC-Web, which is a POST of HTTP to those that it passes."""
    for more in ([], [("cookie", echo.COOKIE)]):
        fields = called(f"{STORE}GetExecutions", more=more, kind=GRPC_WEB)
        with http2.Client(place.https_port if tls else place.port, tls=tls) as client:
            number = client.begin(fields, ends=False)
            client.send(number, http2.message(b"x"), ends=True)
            assert client.until(number).status == (200 if more else 302)
        assert len(place.servers["envoy"]) == bool(more)
    (asked,) = place.servers["envoy"]
    assert asked["headers"]["content-type"] == "application/grpc-web+proto"
    assert asked["headers"]["kubeflow-userid"] == echo.USER


def test_charms_hear_where_they_are_reached(place):
    told = {"external_host": HOST, "tls_enabled": "True"}
    assert place.told[ASKED] == place.told[OPEN] == told


def called(path, more=(), kind=tuple(GRPC)):
    """The head of a call, as clients of gRPC write it."""
    pseudo = {":method": "POST", ":scheme": "http", ":authority": HOST, ":path": path}
    return [*pseudo.items(), *kind, *more]


def watched(place, tls="", path=WATCH, *, silent=0.0, texts=(b"one",), more=KNOWN):
    """Call, and say each text only when the one before it has come back."""
    port = place.https_port if tls else place.port
    with http2.Client(port, tls=tls, timeout=silent + 15) as client:
        number = client.begin(called(path, more), ends=False)
        said = b""
        for text in texts:
            time.sleep(silent)
            client.send(number, http2.message(text))
            said += http2.message(text)
            stream = client.until(number, lambda stream, said=said: stream.body == said)
            if stream.has_ended or stream.body != said:
                return stream
        client.end(number)
        return client.until(number)


@SCHEMES
@pytest.mark.parametrize("path", CALLS)
def test_call_reaches_the_service_of_its_method_and_says_who_calls(place, path, tls):
    stream = watched(place, tls, path)
    assert (stream.status, stream.trailers) == (200, {"grpc-status": "0"})
    assert stream.body == http2.message(b"one")
    assert [name for name, asked in place.stores.items() if asked] == [CALLS[path]]
    (asked,) = place.stores[CALLS[path]]
    assert asked["path"] == path
    assert asked["headers"]["kubeflow-userid"] == echo.USER
    assert asked["headers"]["te"] == "trailers"


@SCHEMES
@pytest.mark.parametrize("path", [WATCH, "/ml.Bin/Get"])
def test_grpc_streams_in_both_directions(place, path, tls):
    texts = (b"one", b"two", b"x" * 10_000, b"", b"end")
    stream = watched(place, tls, path, texts=texts)
    assert (stream.status, stream.trailers) == (200, {"grpc-status": "0"})
    assert stream.body == b"".join(map(http2.message, texts))
    assert len(place.stores[CALLS[path]]) == 1


@SCHEMES
@pytest.mark.parametrize("path", CALLS)
def test_stranger_calls_nobody(place, path, tls):
    stream = watched(place, tls, path, more=[("kubeflow-userid", VICTIM)])
    # That is how Envoy refuses a call of gRPC, and 2 is what it makes of a redirect.
    assert (stream.headers["grpc-status"], stream.body) == ("2", b"")
    assert not any(place.stores.values())
    assert len(place.asked) == 1


@pytest.mark.parametrize("path", ["/kfp/socket", "/open/socket"])
def test_websocket_passes_and_only_where_nobody_has_to_be_asked_for_strangers(place, path):
    where = ("127.0.0.1", path, "hello")
    assert gateway_client.talk(*where, port=place.port, **COOKIE) == "hello"
    stranger = gateway_client.talk(*where, port=place.port)
    assert stranger == "hello" if path.startswith("/open") else " 302 " in stranger


def dumped(place, what):
    with urllib.request.urlopen(f"http://127.0.0.1:{place.admin}/{what}") as answer:
        return json.load(answer)


def values(node, name):
    """Every value of that name, anywhere in what Envoy says that it has."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == name:
                yield value
            yield from values(value, name)
    elif isinstance(node, list):
        for each in node:
            yield from values(each, name)


def test_nothing_that_envoy_has_ends_a_request_that_takes_long(place):
    ours = [
        route["route"]
        for config in dumped(place, "config_dump?resource=dynamic_route_configs")["configs"]
        for host in config["route_config"].get("virtual_hosts", ())
        if host["name"].startswith(HOST)
        for route in host["routes"]
        if "route" in route
    ]
    # On two ports each.
    assert len(ours) >= 2 * (len(CHARMS) + len(CALLS))
    assert {route["timeout"] for route in ours} == {"0s"}
    for limit in ("idle_timeout", "max_stream_duration", "max_grpc_timeout"):
        assert set(values(ours, limit)) <= {"0s"}, limit
    listeners = dumped(place, "config_dump?resource=dynamic_listeners")
    # Envoy's own is five minutes, so it has to be said.
    assert set(values(listeners, "stream_idle_timeout")) == {"0s"}
    for limit in ("request_timeout", "max_stream_duration", "max_connection_duration"):
        assert set(values(listeners, limit)) <= {"0s"}, limit


@pytest.mark.long
def test_what_is_silent_for_long_goes_on(place):
    def request(tls):
        client = gateway_client.Client(
            port=place.https_port if tls else place.port, tls=bool(tls), timeout=SILENT + 15
        )
        with contextlib.closing(client):
            return client.get(f"/kfp/x?seconds={SILENT}", **COOKIE).status

    def socket(path):
        where = ("127.0.0.1", path, "hello")
        return gateway_client.talk(*where, port=place.port, silent=SILENT, **COOKIE)

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        requests = [pool.submit(request, tls) for tls in ("", HOST)]
        sockets = [pool.submit(socket, path) for path in ("/kfp/socket", "/open/socket")]
        calls = [pool.submit(watched, place, tls, silent=SILENT) for tls in ("", HOST)]
        assert [one.result() for one in requests] == [200, 200]
        assert [one.result() for one in sockets] == ["hello", "hello"]
        assert [one.result().trailers for one in calls] == [{"grpc-status": "0"}] * 2
    assert time.monotonic() - began > SILENT
