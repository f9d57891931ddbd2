"""Routes about which nobody is asked, beside guarded ones, by a real istiod in a real Envoy."""

import contextlib
import itertools
import json
import uuid

import httpx2
import pytest

from istio_integrator.ingress import guards
from istio_integrator.relations import kubeflow
from tests import echo, forged_requests, gateway_client, waiting
from tests.functional import ingress_world
from tests.functional.ingress_world import AUTH, COMPLETE, DOMAIN, MODEL, lead, virtual_service

COOKIE = echo.COOKIE
HOST = gateway_client.HOST
OURS = f"{MODEL}/kubeflow-gateway"
OPEN = f"open.{MODEL}.svc.{DOMAIN}"
KFP = f"kfp.{MODEL}.svc.{DOMAIN}"
NAME = f"istio-integrator-{uuid.uuid4().hex}"
VICTIM = "victim@example.com"
FORGED = {"headers": {"request": {"set": {"kubeflow-userid": VICTIM, "kubeflow_groups": "a"}}}}


def match(method=None, **uri):
    return {"uri": uri, **({"method": {"exact": method}} if method else {})}


def routes(name=NAME):
    """An unauthenticated application, and a guarded one around it."""
    unasked = [match(prefix="/open/"), match("GET", exact="/pipeline/page")]
    guarded = [match(prefix="/pipeline")]
    return virtual_service(
        MODEL,
        "mixed",
        [OURS],
        [HOST],
        {"name": name, "match": unasked, "route": lead(OPEN)},
        {"name": f"{name}-forged", "match": [match(prefix="/forged")], "route": lead(OPEN)}
        | FORGED,
        {"name": "istio-integrator-guarded", "match": guarded, "route": lead(KFP)},
    )


UNASKED = (NAME, f"{NAME}-forged")


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(echo.serving(echo.Application))
        more = {"open": server.server_port}
        folder = tmp_path_factory.mktemp("istiod")
        found = stack.enter_context(ingress_world.serving(client, kubeconfig, folder, more))
        found.unguarded = server.asked
        found.options = {"hosts": HOST, "tls_secret": ingress_world.SECRET}
        found.reconcile()
        stack.enter_context(found.there(routes()))
        found.eventually(200, Cookie=COOKIE)
        found.eventually(200, tls=HOST, Cookie=COOKIE)
        yield found
        found.part().remove()


@pytest.fixture(params=[False, True], ids=["shared", "own"])
def opened(place, request):
    """The place with nobody asked about two routes."""
    place.auths = [COMPLETE]
    place.guard(own=request.param, unasked=UNASKED)
    for tls in ("", HOST):
        place.eventually(200, "/open/x", tls=tls)
        place.eventually(200, "/forged", tls=tls)
        place.eventually(302, "/pipeline/x", tls=tls)
    for asked in (place.application, place.unguarded, place.asked):
        asked.clear()
    return place


def headers(asked):
    """What requests said about their user, in any spelling and any header."""
    known = ("kubeflow-userid", "kubeflow-groups")
    return [
        value
        for each in asked
        for name, value in each["headers"].items()
        if name.replace("_", "-") in known
    ]


def identities(asked):
    """The users that requests named."""
    return list(filter(None, headers(asked)))


def test_unauthenticated_route_is_reached_unasked_and_by_nobody_in_particular(opened):
    for claim, path in itertools.product(forged_requests.CLAIMS, ("/open/x", "/pipeline/page")):
        head = forged_requests.head(path, more=(f"Cookie: {COOKIE}", claim))
        answer = gateway_client.raw("127.0.0.1", head, opened.port)
        assert answer.startswith(b"HTTP/1.1 200 "), claim
    assert opened.asked == []
    assert opened.application == []
    assert len(opened.unguarded) == 2 * len(forged_requests.CLAIMS)
    assert headers(opened.unguarded) == []
    assert "admin" not in json.dumps(opened.unguarded)


def test_what_the_route_itself_says_of_a_user_leaves_as_nothing(opened):
    for headers in ({}, {"kubeflow-userid": VICTIM}, {"kubeflow_groups": VICTIM}):
        for tls in ("", HOST):
            assert opened.asked_once("/forged", tls=tls, **headers).status == 200
    assert len(opened.unguarded) == 6
    assert identities(opened.unguarded) == []


def test_websocket_of_an_unauthenticated_route_is_nobodys_either(opened):
    where = ("127.0.0.1", "/open/socket", "hello")
    assert gateway_client.talk(*where, port=opened.port) == "hello"
    assert " 302 " in gateway_client.talk("127.0.0.1", "/pipeline/x", "hello", port=opened.port)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/pipeline/page"),
        ("PUT", "/pipeline/page"),
        ("GET", "/pipeline/page/"),
        ("GET", "/pipeline/pages"),
        ("GET", "/pipeline/page;x"),
        ("GET", "/pipeline/PAGE"),
        ("GET", "/open"),
        ("GET", "/opening"),
        ("GET", "/OPEN/x"),
        ("GET", "/kfp/x"),
        ("GET", "/"),
    ],
)
def test_neighbours_of_an_unauthenticated_route_are_asked_about(opened, method, path):
    head = forged_requests.head(path, method=method, more=("Content-Length: 0",))
    answer = gateway_client.raw("127.0.0.1", head, opened.port)
    assert answer.startswith(b"HTTP/1.1 302 "), answer
    assert opened.application == opened.unguarded == []
    assert len(opened.asked) == 1


def test_no_way_to_write_a_request_leads_from_an_unauthenticated_route_to_a_guarded_one(opened):
    heads = [forged_requests.head(path) for path in forged_requests.PATHS]
    heads += [param.values[0] for param in forged_requests.HEADS]
    claims = "".join(f"{claim}\r\n" for claim in forged_requests.CLAIMS)
    for head in heads:
        # The authorization service here lets everybody reach /dex.
        text = head.replace("/dex", "/open").replace("\r\n\r\n", f"\r\n{claims}\r\n")
        answer = gateway_client.raw("127.0.0.1", text, opened.port)
        assert answer.startswith(b"HTTP/1."), head
    assert opened.application == []
    assert identities([*opened.unguarded, *opened.asked]) == []
    assert {each["path"].startswith("/open/") for each in opened.unguarded} == {True}


def test_requests_of_http_2_are_told_apart_in_the_same_way(opened):
    with httpx2.Client(http1=False, http2=True) as client:

        def ask(path, **headers):
            url = f"http://127.0.0.1:{opened.port}{path}"
            return client.get(url, headers={"Host": HOST, **headers})

        claim = {"kubeflow-userid": VICTIM, "kubeflow_groups": VICTIM}
        assert ask("/open/x", **claim).status_code == 200
        assert headers(opened.unguarded) == []
        for path in ("/pipeline/x", "/open/../pipeline/x", "/open/%2e%2e/pipeline/x", "/open"):
            stranger = ask(path, **claim)
            assert (stranger.http_version, stranger.status_code) == ("HTTP/2", 302), path
    assert opened.application == []


SIMILAR = [
    pytest.param(NAME[:-1], id="a character less"),
    pytest.param(f"{NAME}x", id="a character more"),
    pytest.param(NAME.upper(), id="upper case"),
    pytest.param(f"{NAME}.x", id="a part more"),
    pytest.param("istio-integrator-", id="the part that all know"),
    pytest.param("mixed", id="the name of our VirtualService"),
    pytest.param("*", id="a wildcard"),
    pytest.param(".*", id="a pattern"),
    pytest.param("", id="none"),
]


@pytest.mark.parametrize("name", SIMILAR)
def test_route_of_a_tenant_with_a_similar_name_is_asked_about(opened, name):
    named = {"name": name} if name else {}
    route = {**named, "match": [match(prefix="/steal")], "route": lead(KFP), **FORGED}
    with opened.there(virtual_service("shop", "steal", [OURS], ["*", HOST], route)):
        answer = opened.eventually(200, "/steal/x", Cookie=COOKIE)
        assert identities([answer.echo]) == [echo.USER]
        opened.application.clear()
        for host, tls in itertools.product((HOST, "elsewhere.example.com"), ("", HOST)):
            answer = opened.asked_once("/steal/x", host=host, tls=tls)
            assert answer.status in (302, 404), (host, tls)
        assert opened.application == []


def test_unauthenticated_route_needs_no_authorization_service_and_others_do(opened):
    elsewhere = AUTH.model_copy(update={"port": 81})
    opened.auths = [kubeflow.Received(9, "oidc", elsewhere)]
    opened.guard(unasked=UNASKED)
    opened.eventually(403, "/pipeline/x", Cookie=COOKIE)
    assert opened.asked_once("/open/x").status == 200
    assert opened.asked_once("/forged", **{"kubeflow-userid": VICTIM}).status == 200
    assert identities(opened.unguarded) == []


def test_closed_guard_makes_no_exception(opened):
    opened.auths = []
    opened.guard(unasked=UNASKED)
    for path, tls in itertools.product(("/open/x", "/forged", "/pipeline/x"), ("", HOST)):
        opened.eventually(403, path, tls=tls, Cookie=COOKIE)


def test_guarded_routes_never_open_while_exceptions_come_and_go(place):
    place.auths = [COMPLETE]
    place.guard(unasked=UNASKED)
    place.eventually(200, "/open/x")
    strangers = [
        gateway_client.Hammer(place.visitor(tls=tls), fresh=True, pause=0, path=path)
        for path, tls in (("/kfp/x", ""), ("/pipeline/x", ""), ("/pipeline/x", HOST))
    ]
    with contextlib.ExitStack() as stack:
        for stranger in strangers:
            stack.enter_context(stranger)

        def go_on():
            before = [stranger.count for stranger in strangers]
            assert waiting.eventually(
                lambda: all(
                    stranger.count > count + 10
                    for stranger, count in zip(strangers, before, strict=True)
                )
            )

        for others in ((), UNASKED[:1], UNASKED[1:], (*UNASKED, f"{NAME}-more")):
            place.guard(unasked=others)
            place.eventually(200 if NAME in others else 302, "/open/x")
            go_on()
        for auths in ([], [COMPLETE]):
            place.auths = auths
            place.guard(unasked=UNASKED)
            place.eventually(200 if auths else 403, "/open/x")
            go_on()
        # A route that was open comes back as one that is not, and the reverse.
        for name in ("istio-integrator-another", NAME):
            place.api.apply(routes(name))
            place.eventually(200 if name == NAME else 302, "/open/x")
            go_on()
    for stranger in strangers:
        assert 200 not in stranger.answers, stranger.answers
        assert stranger.answers.get(302, 0) > 0, stranger.answers


def test_routes_beyond_the_bound_are_asked_about_and_the_status_says_so(place):
    place.auths = [COMPLETE]
    part = place.part()
    target = part.resolved()
    others = [f"istio-integrator-{number:032}" for number in range(guards.MOST_UNASKED)]
    part._guard(part._decide().guard, target, [*others, NAME])
    (said,) = [one.message for one in part.statuses() if "without authentication" in one.message]
    assert said.startswith("1 more than 64 routes")
    place.eventually(302, "/open/x")
