"""Today's routes, by both renderers: who reaches what in which state of the gateway's Envoy.

Each charm of Kubeflow that has the interface asks as it does, and beside them are routes of every
kind, one within another. WebSockets and gRPC are tried, too, and no time limit is found in Envoy.
"""

import base64
import concurrent.futures
import contextlib
import itertools
import json
import re

import pytest
from charmlibs.interfaces import istio_ingress_route as library
from ops import testing

from istio_integrator.relations import kubeflow
from tests import echo, forged_requests, gateway_client, http2, waiting
from tests.functional import gateway_api_world, ingress_world, istiod_world
from tests.functional.ingress_world import MODEL
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
from tests.kubernetes_objects import made

HOST = gateway_client.HOST
SERVING = {"virtualservice": ingress_world.serving, "gateway-api": gateway_api_world.serving}
"""The world that serves the model's routes, by the option `routing`."""
SCHEMES = pytest.mark.parametrize("tls", ["", HOST], ids=["http", "https"])
BOTH = pytest.mark.parametrize(
    ("tls", "known"),
    [
        pytest.param("", False, id="http-stranger"),
        pytest.param(HOST, True, id="https-known"),
        pytest.param("", True, id="http-known", marks=pytest.mark.long),
        pytest.param(HOST, False, id="https-stranger", marks=pytest.mark.long),
    ],
)
COOKIE = {"Cookie": echo.COOKIE}
VICTIM = "victim@example.com"
CLAIM = {"kubeflow-userid": VICTIM, "kubeflow_groups": VICTIM}
KINDS = ("kubeflow-userid", "kubeflow-groups")
TARGET = forged_requests.TARGET
HOLE = f"{TARGET.rpartition('/')[0]}/hole"
"""A path without authentication among paths that need it."""
GUARDED = ("/kfp/x", "/x", "/open/admin/x", "/notebook/x")
"""Paths that need authentication; the last is a tenant's."""
FREE = ("/open/x", "/open", "/open/administrator")
OURS = (*GUARDED[:3], *FREE)
ROUTED = {
    "virtualservice": ("EnvoyFilter", "Gateway.networking.istio.io", "VirtualService"),
    "gateway-api": ("EnvoyFilter", "HTTPRoute"),
}
"""Kinds that are deleted and created; without its Gateway istiod would delete the workload."""
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
KNOWN = [("cookie", echo.COOKIE), ("kubeflow-userid", VICTIM)]
GRPC = [("te", "trailers"), ("content-type", "application/grpc")]
GRPC_WEB = [("content-type", "application/grpc-web+proto"), ("x-grpc-web", "1")]


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


WITHIN = "/open/theirs/"
"""A tenant's prefix within one that needs no authentication."""


def by_virtual_service():
    routes = [ingress_world.to(ingress_world.WEB, path) for path in ("/notebook/", WITHIN)]
    return ingress_world.virtual_service("shop", "notebook", [ingress_world.OURS], ["*"], *routes)


def by_http_route():
    paths = ("/notebook", WITHIN.rstrip("/"))
    matches = [{"path": {"type": "PathPrefix", "value": path}} for path in paths]
    rule = {"matches": matches, "backendRefs": [{"name": "web", "port": 80}]}
    parent = {"name": "kubeflow-gateway", "namespace": MODEL}
    spec = {"parentRefs": [parent], "rules": [rule]}
    kind = ("gateway.networking.k8s.io/v1", "HTTPRoute")
    return made(*kind, "notebook", "shop", spec)


NOTEBOOKS = {"virtualservice": by_virtual_service, "gateway-api": by_http_route}


@pytest.fixture(scope="module", params=SERVING)
def place(request, client, kubeconfig, tmp_path_factory):
    """A model with Kubeflow's charms, routes of every kind, and a notebook of a tenant."""
    exact = library.HTTPPathMatchType.Exact
    newer = [
        *charms(),
        bag(1, "kfp", wish("kfp", matched("/kfp")), wish("kfp", matched("/open/admin"))),
        bag(2, "open", wish("login", matched("/open")), endpoint=OPEN),
        bag(3, "store", grpc=[calls("store", ("ml.Store", None))]),
        bag(4, "bin", grpc=[calls("bin", ("ml.Store", "Drop"), ("ml.Bin", None))]),
        bag(5, "nested", *nested()),
        bag(
            6,
            "more",
            wish("kfp", matched("/exactly", exact)),
            wish("kfp", matched("/moved"), filters=[rewritten("/pipeline")]),
        ),
        bag(
            7,
            "pages",
            wish("login", matched(HOLE, exact)),
            wish("login", matched("/pages/")),
            endpoint=OPEN,
        ),
    ]
    folder = tmp_path_factory.mktemp("istiod")
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(echo.serving(echo.Application))
            for name in (*CHARMS, "login")
        }
        stores = {
            name: stack.enter_context(echo.serving(http2.Calls))
            for name in sorted(set(CALLS.values()))
        }
        found = stack.enter_context(SERVING[request.param](client, kubeconfig, folder))
        found.names = {server.server_port: name for name, server in servers.items()}
        found.login = servers["login"].asked
        found.stores = {name: server.asked for name, server in stores.items()}
        for name, server in servers.items():
            is_open = name == "login" or CHARMS[name].endpoint == OPEN
            server.asked = found.login if is_open else found.application
        for name, server in {**servers, **stores}.items():
            number = CHARMS[name].port if name in CHARMS else 8080 if name in stores else 80
            for obj in ingress_world.service(MODEL, name, server.server_port, number):
                found.api.create(obj)
        found.renderer = request.param
        found.options |= {"hosts": HOST, "tls_secret": ingress_world.SECRET}
        controller = testing.Relation("gateway-metadata", id=8, remote_app_name="controller")
        found.requests, found.newer = [], [*newer, controller]
        found.auths = [ingress_world.COMPLETE]
        if request.param == "gateway-api":
            stack.enter_context(found.there(ingress_world.secret(folder, MODEL)))
        stack.enter_context(found.there(NOTEBOOKS[request.param]()))
        found.reconcile()
        if request.param == "gateway-api":
            gateway_api_world.run(found, client, 80, 443)
        for tls in ("", HOST):
            assert waiting.eventually(lambda tls=tls: serves(found, tls), 240)
        yield found
        found.remove()
        assert found.owned() == []


def serves(place, tls):
    """Tell whether Envoy has all of the routes."""
    answered = all(
        reached(place, charm.path, tls, **COOKIE)[:2] == (200, name)
        for name, charm in CHARMS.items()
    )
    within = all(reached(place, path, tls, **COOKIE)[1] == NESTED[path][0] for path in NESTED)
    at_once = all(watched(place, tls, path).trailers for path in CALLS)
    rest = (*GUARDED, *FREE, "/exactly", "/moved/x", HOLE, "/pages/one")
    is_rest = all(reached(place, path, tls, **COOKIE)[0] == 200 for path in rest)
    return answered and within and at_once and is_rest


@pytest.fixture(autouse=True)
def forgotten(place):
    """Nothing asked yet."""
    for asked in (place.application, place.login, place.asked, *place.stores.values()):
        asked.clear()


def reached(place, path, tls="", **headers):
    """Return the status, and with 200 the application and the request that it received."""
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

    place.application.clear()
    place.asked.clear()
    status, who, asked = reached(place, charm.path, tls, **CLAIM)
    if charm.endpoint == ASKED:
        assert status == 302
        assert (place.application, len(place.asked)) == ([], 1)
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
        assert len(place.application) == bool(more)
    (asked,) = place.application
    assert place.names[asked["port"]] == "envoy"
    assert asked["headers"]["content-type"] == "application/grpc-web+proto"
    assert asked["headers"]["kubeflow-userid"] == echo.USER


def test_charms_and_controllers_hear_where_the_model_is_reached(place):
    place.reconcile()
    told = {"external_host": HOST, "tls_enabled": "True"}
    assert place.told[ASKED] == place.told[OPEN] == told
    if place.renderer == "gateway-api":
        assert json.loads(place.told[kubeflow.GATEWAY_METADATA][kubeflow.METADATA]) == {
            "namespace": MODEL,
            "gateway_name": "kubeflow-gateway",
            "deployment_name": "kubeflow-gateway-istio",
            "service_account": "kubeflow-gateway-istio",
        }


def test_hook_writes_nothing_again_and_istiod_copies_no_label_of_ours(place):
    def versions():
        kinds = ROUTED[place.renderer]
        return {each["metadata"]["resourceVersion"] for each in place.owned(*kinds)}

    before = versions()
    place.reconcile()
    assert versions() == before
    # Else it would go with the objects that are pruned, and its pods would change with ours.
    for kind in ("Deployment", "Service"):
        made = place.api.get(kind, "kubeflow-gateway-istio", MODEL)
        assert (made is not None) == (place.renderer == "gateway-api")
        marks = made and [made["metadata"]["labels"], made["metadata"].get("annotations")]
        assert not re.search("istio-integrator|juju", json.dumps(marks))


def test_redirect_to_https_is_given_unasked(place):
    before, place.options = place.options, {**place.options, "https_redirect": True}
    place.reconcile()
    answer = place.eventually(301, **COOKIE)
    assert answer.headers["location"] == f"https://{HOST}/kfp/x"
    place.eventually(302, tls=HOST)
    place.eventually(200, tls=HOST, **COOKIE)
    seen = place.look()
    assert (seen.guarded, seen.missing) == ((80, 443), ())
    if place.renderer == "virtualservice":
        assert place.asked_once("/", host=gateway_client.TENANT).status == 200
    place.asked.clear()
    assert place.asked_once(**COOKIE).status == 301
    assert place.asked == []
    place.options = before
    get_well(place)


def called(path, more=(), kind=tuple(GRPC)):
    """The head of a call, as clients of gRPC write it."""
    pseudo = {":method": "POST", ":scheme": "http", ":authority": HOST, ":path": path}
    return [*pseudo.items(), *kind, *more]


def watched(place, tls="", path=WATCH, *, texts=(b"one",), more=KNOWN):
    """Call, and say each text only when the one before it has come back."""
    port = place.https_port if tls else place.port
    with http2.Client(port, tls=tls) as client:
        number = client.begin(called(path, more), ends=False)
        said = b""
        for text in texts:
            client.send(number, http2.message(text))
            said += http2.message(text)
            stream = client.until(number, lambda stream, said=said: stream.body == said)
            if stream.has_ended or stream.body != said:
                return stream
        client.end(number)
        return client.until(number)


@SCHEMES
@pytest.mark.parametrize("path", CALLS)
def test_call_streams_to_the_service_of_its_method_and_says_who_calls(place, path, tls):
    texts = (b"one", b"two", b"x" * 10_000, b"", b"end")
    stream = watched(place, tls, path, texts=texts)
    assert (stream.status, stream.trailers) == (200, {"grpc-status": "0"})
    assert stream.body == b"".join(map(http2.message, texts))
    assert [name for name, asked in place.stores.items() if asked] == [CALLS[path]]
    (asked,) = place.stores[CALLS[path]]
    assert asked["path"] == path
    assert asked["headers"]["kubeflow-userid"] == echo.USER
    assert asked["headers"]["te"] == "trailers"


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
    assert gateway_client.talk(path, place.port, **COOKIE) == "hello"
    stranger = gateway_client.talk(path, place.port)
    assert stranger == ("hello" if path.startswith("/open") else 302)


def dumped(place, resource):
    path = f"config_dump?resource=dynamic_{resource}"
    return json.loads(istiod_world.administration(place.admin, path))


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
        for config in dumped(place, "route_configs")["configs"]
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
    listeners = dumped(place, "listeners")
    # Envoy's own is five minutes, so it has to be said.
    assert set(values(listeners, "stream_idle_timeout")) == {"0s"}
    for limit in ("request_timeout", "max_stream_duration", "max_connection_duration"):
        assert set(values(listeners, limit)) <= {"0s"}, limit


def marks(place):
    """The headers that open routes, which no client can know."""
    secret = place.api.get("Secret", "istio-integrator-record", MODEL)
    values = json.loads(base64.b64decode(secret["data"]["record"]))["values"]
    return [{values["header"]: values[name]} for name in ("asked", "free", "root")]


def requests(place):
    """Headers of requests without a session."""
    (header, _), *_ = marks(place)[0].items()
    return [{}, CLAIM, {header: "x"}, *marks(place)]


def identities(*asked):
    """Return the users that requests name, by any spelling of the identity headers."""
    return {
        value
        for one in asked
        for name, value in one["headers"].items()
        if name.replace("_", "-") in KINDS and value
    }


@SCHEMES
@pytest.mark.parametrize("path", GUARDED)
def test_users_alone_reach_what_needs_authentication(place, path, tls):
    for headers in requests(place):
        assert place.asked_once(path, tls=tls, **headers).status == 302, headers
        answer = place.asked_once(path, tls=tls, **headers, **COOKIE)
        assert (answer.status, identities(answer.echo)) == (200, {echo.USER}), headers
        assert not marks(place)[0].keys() & answer.echo["headers"].keys()


@SCHEMES
@pytest.mark.parametrize("path", FREE)
def test_everyone_reaches_what_needs_no_authentication_and_is_anonymous(place, path, tls):
    for headers in [*requests(place), COOKIE]:
        place.login.clear()
        answer = place.asked_once(path, tls=tls, **headers)
        assert (answer.status, identities(answer.echo), len(place.login)) == (200, set(), 1), (
            headers
        )
        assert not marks(place)[0].keys() & answer.echo["headers"].keys()
    assert place.asked == []


def own(place, *kinds):
    """Yield the charm's objects of some kinds, ready to be applied again."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    for obj in place.owned(*kinds):
        metadata = {key: obj["metadata"][key] for key in kept if key in obj["metadata"]}
        head = {key: obj[key] for key in ("apiVersion", "kind", "spec")}
        yield {**head, "metadata": metadata}


def get_well(place):
    place.reconcile()
    for path, tls in itertools.product([*GUARDED, *FREE], ("", HOST)):
        asked = {"path": path, "tls": tls, **COOKIE}
        # A proxy asks for a certificate after it has the listener.
        assert waiting.eventually(lambda asked=asked: place.status(**asked) == 200, 90), asked


def test_route_of_a_tenant_within_an_open_one_is_served_to_nobody(place):
    place.theirs.clear()
    # Ours would come first.
    ours = list(own(place, ROUTED[place.renderer][-1]))
    for obj in ours:
        place.api.delete(obj)
    for tls in ("", HOST):
        place.eventually(403, f"{WITHIN}x", tls=tls)
        for headers in [*requests(place), COOKIE]:
            assert place.asked_once(f"{WITHIN}x", tls=tls, **headers).status == 403, headers
    assert place.theirs == []
    for obj in ours:
        place.api.apply(obj)
    get_well(place)


@pytest.mark.parametrize(
    ("lacking", "opens"),
    [
        pytest.param(["HTTP_FILTER"], (), id="listener without our filters"),
        pytest.param(["HTTP_ROUTE"], (), id="routes without our patches"),
        # Whoever knows the value is a client that reads our Secret.
        pytest.param(
            ["HTTP_FILTER", "HTTP_ROUTE", "ROUTE_CONFIGURATION"], marks, id="EnvoyFilter ignored"
        ),
    ],
)
def test_routes_are_closed_to_everyone_while_a_part_of_the_envoyfilter_is_missing(
    place, lacking, opens
):
    (guard,) = own(place, "EnvoyFilter")
    patches = [one for one in guard["spec"]["configPatches"] if one["applyTo"] not in lacking]
    if patches:
        place.api.apply({**guard, "spec": {**guard["spec"], "configPatches": patches}})
    else:
        place.api.delete(guard)
    refused = {403, 404}
    for path, tls in itertools.product(OURS, ("", HOST)):
        assert waiting.eventually(
            lambda path=path, tls=tls: place.asked_once(path, tls=tls, **COOKIE).status in refused
        ), path
    for path, tls, headers in itertools.product(OURS, ("", HOST), [*requests(place), COOKIE]):
        if not opens or headers not in opens(place):
            assert place.asked_once(path, tls=tls, **headers).status in refused, (path, headers)
    get_well(place)


def test_no_order_of_writes_answers_a_stranger(place):
    everything = {kind: list(own(place, kind)) for kind in ROUTED[place.renderer]}
    with contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(
                gateway_client.Hammer(place.visitor(tls=tls), fresh=fresh, path=path, **CLAIM)
            )
            for path, tls, fresh in (
                ("/kfp/x", "", False),
                ("/kfp/x", HOST, True),
                ("/x", HOST, False),
                ("/open/admin/x", "", True),
            )
        ]
        known = stack.enter_context(
            gateway_client.Hammer(place.visitor(), path="/kfp/x", **COOKIE)
        )
        for order in itertools.permutations(everything):
            for act, kind in itertools.product((place.api.delete, place.api.apply), order):
                for obj in everything[kind]:
                    act(obj)
                gateway_client.go_on([known, *strangers], 6)
            place.eventually(200, tls=HOST, **COOKIE)
    print("known", known.answers, *(each.answers for each in strangers))
    assert known.answers[200] > 0
    for stranger in strangers:
        assert 200 not in stranger.answers, stranger.answers
        assert stranger.answers[302] > 0


def assert_valid(place, folder):
    """See that Istio's own tool finds no fault with its objects."""
    if place.renderer == "virtualservice":
        said = place.analyzed(folder)
        assert "[IST" in said or "No validation issues found" in said, said
        # The exact path and the prefix of the same words are two applications' (`nested`).
        known = "[IST0131] (VirtualService"
        faults = [line for line in said.splitlines() if "[IST" in line]
        assert [line for line in faults if not (known in line and 'route-5"' in line)] == []


def test_closed_guard_lets_nobody_pass(place, tmp_path):
    assert_valid(place, tmp_path)
    place.auths = []
    assert any("ingress is closed" in said for said in place.reconcile())
    assert_valid(place, tmp_path)
    for path, tls in itertools.product([*GUARDED, *FREE], ("", HOST)):
        place.eventually(403, path, tls=tls, **COOKIE)
        for headers in requests(place):
            assert place.asked_once(path, tls=tls, **headers).status == 403, (path, headers)
    place.auths = [ingress_world.COMPLETE]
    get_well(place)


def test_without_authentication_everyone_is_anonymous_until_it_is_switched_on(place):
    place.auths, place.options = [], {**place.options, "require_authentication": False}
    place.reconcile()
    for path, tls in itertools.product([*GUARDED, *FREE], ("", HOST)):
        answer = place.eventually(200, path, tls=tls, **CLAIM)
        assert identities(answer.echo) == set()
    early = [place.visitor(tls=tls) for tls in ("", HOST)]
    assert [each.get("/kfp/x").status for each in early] == [200, 200]
    place.auths = [ingress_world.COMPLETE]
    place.reconcile()
    for visitor in early:
        assert waiting.eventually(lambda visitor=visitor: visitor.get("/kfp/x").status != 200)
        assert 200 not in {visitor.get("/kfp/x").status for _ in range(20)}
        visitor.close()
    get_well(place)
    assert place.asked_once("/kfp/x").status == 302


def port(place, tls):
    return place.https_port if tls else place.port


def is_open(asked):
    """Tell whether a request needs no session."""
    path = asked["path"].partition("?")[0]
    return path in ("/open", HOLE) or path.startswith(("/open/", "/pages/"))


def opened(text):
    """Write a request of the table for what is open here; the service itself opens `/dex`."""
    return text.replace("/dex", "/open")


def judge(place, *, known):
    """Say what no way to write a request leads to."""
    if not known:
        assert place.application == []
    assert identities(*place.application) <= {echo.USER}
    assert identities(*place.login) == set()
    assert identities(*place.asked) == set()
    assert all(map(is_open, place.login)), place.login


@SCHEMES
def test_claim_of_a_client_reaches_no_application_of_either_endpoint(place, tls):
    open_paths = ("/open/auth", HOLE, "/pages/one")
    for claim in forged_requests.CLAIMS:
        for path in (forged_requests.TARGET, "/exactly", "/moved/x", "/x", *open_paths):
            head = forged_requests.head(path, more=(f"Cookie: {echo.COOKIE}", claim))
            answer = gateway_client.raw("127.0.0.1", head, port(place, tls), tls=tls)
            assert answer.startswith(b"HTTP/1.1 200 "), (claim, path)
    assert len(place.application) == 4 * len(forged_requests.CLAIMS)
    assert {one["headers"]["kubeflow-userid"] for one in place.application} == {echo.USER}
    assert len(place.login) == len(open_paths) * len(forged_requests.CLAIMS)
    assert "admin" not in json.dumps([place.application, place.login, place.asked])
    judge(place, known=True)


@BOTH
def test_no_way_to_write_a_request_leads_past_the_guard(place, tls, known):
    heads = [forged_requests.head(path) for path in forged_requests.PATHS]
    heads += forged_requests.HEADS
    claims = "".join(f"{claim}\r\n" for claim in forged_requests.CLAIMS)
    if known:
        claims += f"Cookie: {echo.COOKIE}\r\n"
    for head in heads:
        text = opened(head).replace("\r\n\r\n", f"\r\n{claims}\r\n", 1)
        answer = gateway_client.raw("127.0.0.1", text, port(place, tls), tls=tls)
        assert answer.startswith(b"HTTP/1."), head
    judge(place, known=known)
    assert bool(place.application) is known


@BOTH
def test_no_frames_of_http_2_lead_past_the_guard(place, tls, known):
    more = [("cookie", echo.COOKIE)] if known else []

    def ask(fields):
        with http2.Client(port(place, tls), tls=tls, timeout=2) as client:
            client.ask([*fields, *more])

    asked = [[(name, opened(value)) for name, value in each] for each in forged_requests.FRAMES]
    # Some get no answer at all, and are waited for side by side.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, asked))
    judge(place, known=known)
    assert bool(place.application) is known
    assert place.login


@SCHEMES
def test_trailers_of_a_request_claim_nothing(place, tls):
    sent = forged_requests.fields(method="POST", more=[("cookie", echo.COOKIE)])
    with http2.Client(port(place, tls), tls=tls) as client:
        number = client.begin([*sent, ("content-length", "1")], ends=False)
        client.send(number, b"x")
        client.end(number, [("kubeflow-userid", "admin"), ("kubeflow_groups", "admin")])
        assert client.until(number).status == 200
    assert identities(*place.application) == {echo.USER}
    judge(place, known=True)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("/pipeline", "/pipelines", "/pipeline;x", "/pipeline%2fx")),
        *(("GET", path) for path in ("/opener", "/open;x", "/OPEN/x", "/open%2f", "/open/../x")),
        *(("GET", f"{HOLE}{more}") for more in ("/", "s", ";x", "%00", "%20")),
        *(("GET", path) for path in ("/x/pages/one", "//pages/one", "/pages%2fone")),
    ],
)
def test_next_to_what_is_open_somebody_is_asked(place, method, path):
    more = (*forged_requests.CLAIMS, "Content-Length: 0")
    head = forged_requests.head(path, method=method, more=more)
    answer = gateway_client.raw("127.0.0.1", head, place.port)
    assert answer.split()[1] in (b"302", b"400", b"403"), answer
    assert place.login == []
    judge(place, known=False)
