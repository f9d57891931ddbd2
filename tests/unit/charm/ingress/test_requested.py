"""Every field of `istio_ingress_route` as a VirtualService, or refused by the route's name."""

import sys

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.ingress import gateway, patterns, routes
from istio_integrator.kube import manifests
from istio_integrator.relations import kubeflow
from tests.unit.charm.ingress import envoy, wishes
from tests.unit.charm.ingress.wishes import match, refused, served

TARGET = gateway.Target(
    namespace="istio-ingress", selector={"a": "b"}, service="gw", http_port=80, https_port=443
)


def http(*asked, **terms):
    """The entries of the VirtualService."""
    context = routes.Context.of(
        served(*asked, **terms), TARGET, model="kubeflow", application="istio-integrator"
    )
    (obj,) = manifests.render(routes.FOLDER, context)
    return obj["spec"]["http"]


def to(service="app", port=80, **more):
    host = f"{service}.kubeflow.svc.cluster.local"
    return {"destination": {"host": host, "port": {"number": port}}, **more}


def rewrite(kind=None, value="", **more):
    key = kind and kind[0].lower() + kind[1:]
    path = {"path": {"type": kind, key: value}} if kind else {}
    return {"type": "URLRewrite", "urlRewrite": {**path, **more}}


def redirect(kind=None, value="", **more):
    return {
        "type": "RequestRedirect",
        "requestRedirect": rewrite(kind, value, **more)["urlRewrite"],
    }


NAME = "istio-integrator-istio-ingress-route-1"


def test_prefix_matches_whole_parts_of_a_path():
    for path in ("/a", "/a/"):
        assert http(wishes.route(match(path))) == [
            {
                "name": NAME,
                "match": [{"uri": {"exact": "/a"}}, {"uri": {"prefix": "/a/"}}],
                "route": [to()],
            }
        ]
    found = served(wishes.route(match("/a")))
    for path, is_served in (("/a", True), ("/a/", True), ("/a/b", True), ("/ab", False)):
        assert bool(envoy.reached(found, path)) is is_served


@pytest.mark.parametrize(
    "asked",
    [wishes.route(match("/")), wishes.route(match("//")), wishes.route(), wishes.route({})],
)
def test_route_without_a_path_is_for_every_path(asked):
    assert http(asked) == [{"name": NAME, "match": [{"uri": {"prefix": "/"}}], "route": [to()]}]


def test_exact_path_regular_expression_method_and_headers():
    asked = [
        wishes.route(match("/a", "Exact", method="POST", headers={"X-Kind": "a b"})),
        wishes.route(match("/b/[0-9]+", "RegularExpression")),
    ]
    assert http(*asked) == [
        {
            "name": NAME,
            "match": [
                {
                    "uri": {"exact": "/a"},
                    "method": {"exact": "POST"},
                    "headers": {"x-kind": {"exact": "a b"}},
                }
            ],
            "route": [to()],
        },
        {"name": NAME, "match": [{"uri": {"regex": "/b/[0-9]+"}}], "route": [to()]},
    ]


def test_weights_are_shares_of_several_backends():
    backends = [{"service": "a", "port": 80, "weight": 90}, {"service": "b", "port": 81}]
    (entry,) = http(wishes.route(match("/a"), backends=backends))
    assert entry["route"] == [to("a", weight=90), to("b", 81, weight=1)]


@pytest.mark.parametrize(
    ("path", "value", "cases"),
    [
        ("/foo", "/xyz", {"/foo/bar": "/xyz/bar", "/foo": "/xyz", "/foo/": "/xyz/"}),
        ("/foo/", "/xyz", {"/foo/bar": "/xyz/bar", "/foo": "/xyz", "/foo/": "/xyz/"}),
        ("/foo", "/xyz/", {"/foo/bar": "/xyz/bar", "/foo": "/xyz/", "/foo/": "/xyz/"}),
        ("/foo", "", {"/foo/bar": "/bar", "/foo": "/", "/foo/": "/"}),
        ("/foo", "/", {"/foo/bar": "/bar", "/foo": "/", "/foo/": "/"}),
        ("/", "/xyz", {"/bar": "/xyz/bar", "/": "/xyz/"}),
    ],
)
def test_prefix_is_replaced_as_the_gateway_api_has_it(path, value, cases):
    found = served(wishes.route(match(path), filters=[rewrite("ReplacePrefixMatch", value)]))
    assert {asked: envoy.reached(found, asked)[1] for asked in cases} == cases


def test_whole_path_and_host_are_replaced():
    whole = rewrite("ReplaceFullPath", "/new\\1", hostname="In.example.com")
    (entry,) = http(wishes.route(match("/a"), filters=[whole]))
    assert entry["rewrite"] == {
        "uriRegexRewrite": {"match": "/.*", "rewrite": "/new\\\\1"},
        "authority": "in.example.com",
    }
    (entry,) = http(wishes.route(match("/a"), filters=[rewrite(hostname="b.example.com")]))
    assert entry["rewrite"] == {"authority": "b.example.com"}
    assert len(entry["match"]) == 2


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        (
            redirect(scheme="https"),
            {"redirectCode": 301, "scheme": "https", "derivePort": "FROM_PROTOCOL_DEFAULT"},
        ),
        (
            redirect(hostname="b.example.com", statusCode=302),
            {
                "redirectCode": 302,
                "authority": "b.example.com",
                "derivePort": "FROM_REQUEST_PORT",
            },
        ),
        (
            redirect("ReplaceFullPath", "/new", port=8443, scheme="https"),
            {"redirectCode": 301, "scheme": "https", "port": 8443, "uri": "/new"},
        ),
    ],
)
def test_redirect_has_all_that_was_asked_for(asked, want):
    (entry,) = http(wishes.route(match("/a"), filters=[asked]))
    assert entry["redirect"] == want
    assert "route" not in entry


def test_redirect_replaces_a_prefix_where_istio_can():
    asked = wishes.route(match("/a"), filters=[redirect("ReplacePrefixMatch", "/b")], backends=[])
    at, below = http(asked, replaces_prefix=True)
    assert at["match"] == [{"uri": {"exact": "/a"}}]
    assert at["redirect"]["uri"] == "/b"
    assert below["match"] == [{"uri": {"prefix": "/a/"}}]
    assert below["redirect"]["prefixRewrite"] == "/b/"
    assert "this Istio can't" in refused(asked)


def grpc(*matches, **more):
    return {**wishes.route(*matches, **more), "name": "calls"}


def test_grpc_methods_are_paths():
    read = wishes.plan(
        wishes.received(
            1,
            grpc=[
                grpc({"method": {"service": "ml.Store", "method": "Get"}}),
                grpc({"method": {"service": "ml.Store"}, "headers": {"x-a": "1"}}),
                grpc(),
            ],
        )
    )
    assert read.problems == ()
    assert [route.is_grpc for route in read.routes] == [True, True, True]
    values = [[uri.value for uri in route.entries[0].uris] for route in read.routes]
    assert values == [["/ml.Store/Get"], ["/ml.Store", "/ml.Store/"], ["/"]]


HOSTS = ("kf.example.com", "ml.example.com")


def test_hostnames_are_matched_with_and_without_a_port():
    asked = wishes.route(match("/a", "Exact"), hostnames=["KF.example.com"])
    (entry,) = http(asked, hosts=HOSTS)
    (said,) = entry["match"]
    assert said["authority"] == {"regex": r"(?i)kf\.example\.com(:[0-9]+)?"}
    found = served(asked, hosts=HOSTS)
    for host, is_served in (
        ("kf.example.com", True),
        ("KF.example.com:8080", True),
        ("kfxexample.com", False),
        ("ml.example.com", False),
        ("kf.example.com.evil", False),
    ):
        assert bool(envoy.reached(found, "/a", host=host)) is is_served


@pytest.mark.parametrize("hostnames", [None, [], HOSTS, ["*.example.com"]])
def test_hostnames_that_are_all_of_ours_need_no_match(hostnames):
    hosts = ("*.example.com",) if hostnames == ["*.example.com"] else HOSTS
    (entry,) = http(wishes.route(match("/"), hostnames=hostnames), hosts=hosts)
    assert entry["match"] == [{"uri": {"prefix": "/"}}]


def test_hostname_within_a_wildcard_of_ours():
    hostnames = ["a.example.com", "*.b.example.com"]
    found = served(wishes.route(match("/a"), hostnames=hostnames), hosts=("*.example.com",))
    # The more exact one first.
    assert [route.host for route in found] == hostnames
    assert envoy.reached(found, "/a", host="x.b.example.com:80")
    assert not envoy.reached(found, "/a", host="b.example.com")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (wishes.route(match("/", method="GET")), "has the path / with a method"),
        (wishes.route(match(headers={"x-a": "1"})), "has the path / with a method"),
        (wishes.route(match("/"), hostnames=[HOSTS[0]]), "has the path / with a method"),
        (wishes.route(match("/a"), hostnames=["other.com"]), "other.com, which is not among"),
        (wishes.route(match("/a"), hostnames=["*.example.com"]), "which is not among hosts"),
        (wishes.route(match("/a"), backends=[]), "names no Service"),
        (wishes.route(match("/(", "RegularExpression")), "RE2 does not take"),
        (wishes.route(match("/a(?!b)", "RegularExpression")), "RE2 does not take"),
        (wishes.route(match("/.*", "RegularExpression")), "matches paths of others"),
        (wishes.route(match("/[a-z]+/.*", "RegularExpression")), "matches paths of others"),
        (wishes.route(match("/a\\pL{12}", "RegularExpression")), "too complex"),
        (wishes.route(match("/a\u00e4", "RegularExpression")), "characters that no path has"),
        (
            wishes.route(match("/a"), listener={"port": 8080, "protocol": "HTTP"}),
            "asks for port 8080: 80 and 443 are served",
        ),
        (
            wishes.route(match("/a", "Exact"), filters=[rewrite("ReplacePrefixMatch", "/b")]),
            "replaces a prefix without matching one",
        ),
        (
            wishes.route(match("/a"), filters=[rewrite(hostname="b.c"), redirect(port=81)]),
            "has more than one filter",
        ),
    ],
)
def test_route_that_cannot_be_served_is_named_and_the_others_are(asked, words):
    good = wishes.route(match("/good"), name="good")
    found = wishes.plan(wishes.received(1, asked, good), hosts=HOSTS)
    (problem,) = found.problems
    assert problem.startswith("istio-ingress-route:1 app-1: route web ")
    assert words in problem
    assert [route.title for route in found.routes] == ["good"]


def test_route_with_one_match_that_cannot_be_served_is_not_served_by_the_other():
    asked = wishes.route(match("/fine"), match("/", method="GET"))
    assert wishes.plan(wishes.received(1, asked)).routes == ()


def older(relation, prefix, application=None):
    message = kubeflow.IngressRequest(service="app", port=80, prefix=prefix)
    return kubeflow.Received(relation, application or f"app-{relation}", message)


@pytest.mark.parametrize("prefix", ["/a", "/a/"])
def test_older_interface_is_never_displaced(prefix):
    newer = wishes.received(1, wishes.route(match("/a"), wishes.match("/b")))
    found = wishes.plan(newer, older=[older(2, prefix)])
    assert found.problems == ("istio-ingress-route:1 app-1: route web: /a belongs to app-2",)
    assert {(route.application, route.path) for route in found.routes} == {
        ("app-2", prefix),
        ("app-1", "/b"),
    }


def test_oldest_relation_keeps_what_two_ask_for():
    asked = wishes.route(match("/a", method="GET"))
    found = wishes.plan(wishes.received(5, asked), wishes.received(3, asked))
    assert [route.relation for route in found.routes] == [3]
    assert found.problems == ("istio-ingress-route:5 app-5: route web: /a belongs to app-3",)


def test_application_of_both_generations_is_served_by_the_older():
    newer = wishes.received(
        1, wishes.route(match("/new")), application="dex", endpoint=wishes.OPEN
    )
    found = wishes.plan(newer, older=[older(2, "/dex", "dex")], token=wishes.TOKEN)
    assert [route.path for route in found.routes] == ["/dex"]
    (problem,) = found.problems
    assert problem == (
        f"{wishes.OPEN}:1 dex: dex is served by its relation to ingress; "
        f"run: juju remove-relation istio-integrator:{wishes.OPEN} dex"
    )


def test_names_of_unauthenticated_routes_are_nobody_elses():
    both = [
        wishes.received(relation, wishes.route(match(f"/{relation}")), endpoint=endpoint)
        for relation, endpoint in enumerate((wishes.OPEN, wishes.ASKED, wishes.OPEN))
    ]
    found = wishes.plan(*both, older=[older(9, "/old")], token=wishes.TOKEN).routes
    unasked = routes.unasked(found)
    assert len(unasked) == 2
    assert all(name.endswith(wishes.TOKEN) for name in unasked)
    asked = {route.name for route in found if route.relation in (1, 9)}
    assert len(asked) == 2
    assert not asked & set(unasked)
    assert not any(wishes.TOKEN in name for name in asked)
    # Without what is random nobody passes unasked.
    assert routes.unasked(wishes.plan(*both).routes) == ()


def test_many_problems_of_one_application_are_few_lines():
    bad = [wishes.route(match("/a"), name=f"r{n}", backends=[]) for n in range(128)]
    first, *_, last = problems = wishes.plan(wishes.received(1, *bad)).problems
    assert len(problems) == 4
    assert "route r0 names no Service" in first
    assert last == "istio-ingress-route:1 app-1: 125 more routes can't be served"


def test_root_without_authentication_is_said():
    asked = wishes.received(1, wishes.route(match("/")), endpoint=wishes.OPEN)
    (note,) = wishes.plan(asked, token=wishes.TOKEN).notes
    assert note.startswith(f"{wishes.OPEN}:1 app-1 has /")
    assert wishes.plan(wishes.received(1, wishes.route(match("/")))).notes == ()


def test_one_application_cannot_take_the_room_of_all():
    hungry = [
        wishes.route(*(match(f"/{'x' * 200}/{n}/{m}") for m in range(16)), name=f"r{n}")
        for n in range(20)
    ]
    found = wishes.plan(wishes.received(1, *hungry), wishes.received(2, wishes.route(match("/b"))))
    assert [route.relation for route in found.routes] == [2]
    (problem,) = found.problems
    assert problem == "istio-ingress-route:1 app-1: asks for more routes than there is room for"


def test_all_routes_together_have_room_in_one_object():
    many = [
        wishes.received(
            n, *(wishes.route(match(f"/{n}/{'x' * 200}/{m}"), name=f"r{m}") for m in range(100))
        )
        for n in range(20)
    ]
    found = wishes.plan(*many)
    assert found.problems
    context = routes.Context.of(found.routes, TARGET, model="kubeflow", application="a")
    (obj,) = manifests.render(routes.FOLDER, context)
    assert len(str(obj)) < routes.MOST_OF_ALL
    assert {0, 1, 2} <= {route.relation for route in found.routes}


def test_matches_at_hosts_are_not_multiplied_without_end():
    hostnames = [f"h{n}.example.com" for n in range(16)]
    asked = [
        wishes.route(*(match(f"/{n}{m}") for m in range(16)), name=f"r{n}", hostnames=hostnames)
        for n in range(20)
    ]
    found = wishes.plan(wishes.received(1, *asked))
    assert found.routes == ()
    assert "asks for more than 512 matches" in found.problems[0]


def test_largest_expression_is_one_that_envoy_takes():
    assert patterns.LARGEST_PROGRAM < 32768
    assert patterns.problem("/a/[0-9a-f-]{36}/x") == ""


def test_without_the_engine_only_expressions_are_refused(monkeypatch):
    # As where an image lacks a library that it needs.
    monkeypatch.setitem(sys.modules, "re2", None)
    asked = wishes.route(match("/r/[0-9]+", "RegularExpression"))
    good = wishes.route(match("/good"), name="good")
    found = wishes.plan(wishes.received(1, asked, good))
    assert [route.title for route in found.routes] == ["good"]
    assert "can't be tried here" in found.problems[0]


@given(st.text(st.sampled_from("/ab.*+?()[]{}|\\^$0-9"), max_size=20))
def test_expression_is_taken_only_where_re2_takes_it_and_it_is_not_everybodys(pattern):
    if patterns.problem(f"/{pattern}"):
        return
    compiled = re2.compile(f"/{pattern}")
    assert compiled.programsize <= patterns.LARGEST_PROGRAM
    assert not compiled.fullmatch("/")
    assert not compiled.fullmatch("/notebook/user/name/")
