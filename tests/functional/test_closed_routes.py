"""Who reaches which route in which state of the gateway's Envoy, by both renderers."""

import base64
import contextlib
import itertools
import json

import pytest

from istio_integrator.kube import cluster as charm_cluster
from tests import echo, gateway_client, waiting
from tests.functional import gateway_api_world, ingress_world, renderers
from tests.functional.ingress_world import MODEL, WEB
from tests.functional.newer_routes import OPEN, bag, matched, wish
from tests.functional.renderers import HOST, SCHEMES

COOKIE = {"Cookie": echo.COOKIE}
CLAIM = {"kubeflow-userid": "victim@example.com", "kubeflow_groups": "victim"}
ASKED = {"/kfp/x": "kfp", "/x": "dashboard", "/open/admin/x": "kfp", "/notebook/x": "web"}
"""Paths that need authentication, and the Service that answers each; the last is a tenant's."""
FREE = {"/open/x": "open", "/open": "open", "/open/administrator": "open"}
OURS = [path for path in {**ASKED, **FREE} if path != "/notebook/x"]
ROUTED = {
    "virtualservice": ("EnvoyFilter", "Gateway", "VirtualService"),
    "gateway-api": ("EnvoyFilter", "HTTPRoute"),
}
"""What is deleted and created; istiod would delete its workload with a Gateway of its own."""


@pytest.fixture(scope="module", params=renderers.SERVING)
def place(request, client, kubeconfig, tmp_path_factory):
    """A model with routes of every kind, one within another, and a notebook of a tenant."""
    newer = [
        bag(1, "home", wish("dashboard", matched("/"))),
        bag(2, "kfp", wish("kfp", matched("/kfp")), wish("kfp", matched("/open/admin"))),
        bag(3, "dex", wish("open", matched("/open")), endpoint=OPEN),
    ]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(echo.serving(echo.Application))
        found = stack.enter_context(
            renderers.serving(
                request.param,
                client,
                kubeconfig,
                tmp_path_factory.mktemp("istiod"),
                newer=newer,
                services=[("open", 80, server.server_port)],
            )
        )
        found.renderer = request.param
        found.free = server.asked
        stack.enter_context(found.there(NOTEBOOKS[request.param]()))
        get_well(found)
        yield found


def by_virtual_service():
    route = {"match": [{"uri": {"prefix": "/notebook/"}}], "route": ingress_world.lead(WEB)}
    gateways = [f"{MODEL}/kubeflow-gateway"]
    return ingress_world.virtual_service("shop", "notebook", gateways, ["*"], route)


def by_http_route():
    match = {"path": {"type": "PathPrefix", "value": "/notebook"}}
    rule = {"matches": [match], "backendRefs": [{"name": "web", "port": 80}]}
    return gateway_api_world.route("notebook", rule)


NOTEBOOKS = {"virtualservice": by_virtual_service, "gateway-api": by_http_route}


def marks(place):
    """The headers that open routes, which no client can know."""
    secret = place.api.get(charm_cluster.SECRET, "istio-integrator-record", MODEL)
    values = json.loads(base64.b64decode(secret["data"]["record"]))["values"]
    return [{values["header"]: values[name]} for name in ("asked", "free", "root")]


def requests(place):
    """What strangers send."""
    (header, _), *_ = marks(place)[0].items()
    return [{}, CLAIM, {header: "x"}, *marks(place)]


def identities(answer):
    """Whom an application takes a request to be from, in any spelling."""
    return {
        value
        for name, value in answer.echo["headers"].items()
        if name.replace("_", "-") in ("kubeflow-userid", "kubeflow-groups") and value
    }


@SCHEMES
@pytest.mark.parametrize("path", ASKED)
def test_users_alone_reach_what_needs_authentication(place, path, tls):
    for headers in requests(place):
        assert place.asked_once(path, tls=tls, **headers).status == 302, headers
        answer = place.asked_once(path, tls=tls, **headers, **COOKIE)
        assert (answer.status, identities(answer)) == (200, {echo.USER}), headers
        assert not marks(place)[0].keys() & answer.echo["headers"].keys()


@SCHEMES
@pytest.mark.parametrize("path", FREE)
def test_everyone_reaches_what_needs_no_authentication_and_is_anonymous(place, path, tls):
    place.asked.clear()
    for headers in [*requests(place), COOKIE]:
        place.free.clear()
        answer = place.asked_once(path, tls=tls, **headers)
        assert (answer.status, identities(answer), len(place.free)) == (200, set(), 1), headers
        assert not marks(place)[0].keys() & answer.echo["headers"].keys()
    assert place.asked == []


def own(place, *kinds):
    """Our objects of some kinds, as somebody could write them again."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    for obj in place.part()._scope.manifests.owned():
        if obj["kind"] in kinds:
            metadata = {key: obj["metadata"][key] for key in kept if key in obj["metadata"]}
            head = {key: obj[key] for key in ("apiVersion", "kind", "spec")}
            yield {**head, "metadata": metadata}


def status(place, asked):
    return getattr(place.asked_once(**asked), "status", 0)


def get_well(place):
    place.reconcile()
    for path, tls in itertools.product([*ASKED, *FREE], ("", HOST)):
        asked = {"path": path, "tls": tls, **COOKIE}
        # A proxy asks for a certificate after it has the listener.
        assert waiting.eventually(lambda asked=asked: status(place, asked) == 200, 90), asked


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
                counts = [(each, each.count) for each in (known, *strangers)]
                assert waiting.eventually(
                    lambda counts=counts: all(each.count > count + 5 for each, count in counts)
                )
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
        assert "No validation issues found" in said, said


def test_istioctl_analyze_has_nothing_to_say(place, tmp_path):
    assert_valid(place, tmp_path)


def test_closed_guard_lets_nobody_pass(place, tmp_path):
    place.auths = []
    assert any("ingress is closed" in said for said in place.reconcile())
    assert_valid(place, tmp_path)
    for path, tls in itertools.product([*ASKED, *FREE], ("", HOST)):
        place.eventually(403, path, tls=tls, **COOKIE)
        for headers in requests(place):
            assert place.asked_once(path, tls=tls, **headers).status == 403, (path, headers)
    place.auths = [ingress_world.COMPLETE]
    get_well(place)


def test_without_authentication_everyone_is_anonymous_until_it_is_switched_on(place):
    place.auths, place.options = [], {**place.options, "require_authentication": False}
    place.reconcile()
    for path, tls in itertools.product([*ASKED, *FREE], ("", HOST)):
        answer = place.eventually(200, path, tls=tls, **CLAIM)
        assert identities(answer) == set()
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
