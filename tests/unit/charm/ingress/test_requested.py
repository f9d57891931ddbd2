"""What routes of `istio_ingress_route` are in a VirtualService, and what is refused by name."""

import pytest

from istio_integrator.ingress import gateway, record
from istio_integrator.ingress.routes import plan as planning
from istio_integrator.ingress.routes import render
from istio_integrator.kube import manifests
from istio_integrator.relations import kubeflow
from tests.unit.charm.ingress import envoy, wishes
from tests.unit.charm.ingress.wishes import match, served

TARGET = gateway.Target(
    namespace="istio-ingress", selector={"a": "b"}, service="gw", http_port=80, https_port=443
)
VALUES = record.Values()


def http(*asked, **terms):
    """The entries of the VirtualService."""
    context = render.virtual_service(
        served(*asked, **terms),
        TARGET,
        VALUES,
        model="kubeflow",
        application="istio-integrator",
    )
    (obj,) = manifests.render(render.VIRTUAL_SERVICE, context)
    *entries, last = obj["spec"]["http"]
    assert last["directResponse"] == {"status": 404}
    for entry in entries:
        for each in entry["match"]:
            assert each.pop("headers").keys() == {VALUES.header}
    return entries


def to(service="app", port=80, **more):
    host = f"{service}.kubeflow.svc.cluster.local"
    return {"destination": {"host": host, "port": {"number": port}}, **more}


def rewrite(kind=None, value="", **more):
    key = kind and kind[0].lower() + kind[1:]
    path = {"path": {"type": kind, key: value}} if kind else {}
    return {"type": "URLRewrite", "urlRewrite": {**path, **more}}


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


def test_exact_path_is_that_path_alone():
    (entry,) = http(wishes.route(match("/a/", "Exact")))
    assert entry["match"] == [{"uri": {"exact": "/a/"}}]


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


def test_exact_path_is_replaced_as_a_whole():
    whole = rewrite("ReplaceFullPath", "/new")
    (entry,) = http(wishes.route(match("/a", "Exact"), filters=[whole]))
    assert entry["rewrite"] == {"uri": "/new"}


def grpc(*matches, **more):
    return {**wishes.route(*matches, **more), "name": "calls"}


def test_grpc_methods_are_paths():
    read = wishes.plan(
        wishes.received(
            1,
            grpc=[
                grpc({"method": {"service": "ml.Store", "method": "Get"}}),
                grpc(
                    {
                        "method": {"service": "ml.Store"},
                    }
                ),
                grpc(),
            ],
        )
    )
    assert read.problems == ()
    assert [route.is_grpc for route in read.routes] == [True, True, True]
    values = [[uri.value for uri in route.entries[0].uris] for route in read.routes]
    assert values == [["/ml.Store/Get"], ["/ml.Store", "/ml.Store/"], ["/"]]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (wishes.route(match("/a", method="GET")), "asks for method;"),
        (wishes.route(match("/a", headers={"x-a": "1"})), "asks for headers;"),
        (wishes.route(match("/a"), hostnames=["other.com"]), "asks for hostnames;"),
        (wishes.route(match("/a"), backends=[]), "asks for no Service"),
        (
            wishes.route(match("/a"), backends=[{"service": name, "port": 80} for name in "ab"]),
            "asks for several Services",
        ),
        (
            wishes.route(match("/(", "RegularExpression")),
            "asks for a path of type RegularExpression",
        ),
        (
            wishes.route(match("/a"), listener={"port": 8080, "protocol": "HTTP"}),
            "asks for port 8080; served are",
        ),
        (
            wishes.route(match("/a", "Exact"), filters=[rewrite("ReplacePrefixMatch", "/b")]),
            "replaces the prefix of an exact path",
        ),
        (
            wishes.route(match("/a"), filters=[rewrite("ReplaceFullPath", "/b")]),
            "replaces the whole path of a prefix",
        ),
        (
            wishes.route(match("/a"), filters=[rewrite(hostname="b.c")]),
            "asks for hostname;",
        ),
        (
            wishes.route(match("/a"), filters=[{"requestRedirect": {"scheme": "https"}}]),
            "asks for a filter that is no URLRewrite",
        ),
        (
            wishes.route(match("/a"), filters=[rewrite("ReplacePrefixMatch", "/b")] * 2),
            "asks for several filters",
        ),
        (wishes.route(match("/a"), corsPolicy={"allowOrigins": ["*"]}), "asks for corsPolicy"),
        (wishes.route({**match("/a"), "queryParams": [{"name": "a"}]}), "asks for queryParams"),
        (
            wishes.route(match("/a"), filters=[{"urlRewrite": {"regex": {"pattern": "a"}}}]),
            "asks for regex",
        ),
    ],
)
def test_route_that_cannot_be_served_is_named_and_the_others_are(asked, words):
    good = wishes.route(match("/good"), name="good")
    found = wishes.plan(wishes.received(1, asked, good))
    (problem,) = found.problems
    assert problem.startswith("istio-ingress-route:1 app-1: route web ")
    assert words in problem
    assert [route.title for route in found.routes] == ["good"]


def test_route_with_one_match_that_cannot_be_served_is_not_served_by_the_other():
    asked = wishes.route(match("/fine"), match("/x", method="GET"))
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
    asked = wishes.route(match("/a"))
    found = wishes.plan(wishes.received(5, asked), wishes.received(3, asked))
    assert [route.relation for route in found.routes] == [3]
    assert found.problems == ("istio-ingress-route:5 app-5: route web: /a belongs to app-3",)


def test_slashes_at_the_end_make_no_other_prefix():
    found = wishes.plan(older=[older(1, "/kfp/"), older(2, "/kfp"), older(3, "/kfpx")])
    assert [route.path for route in found.routes] == ["/kfpx", "/kfp/"]
    assert found.problems == ("ingress:2 app-2: prefix /kfp belongs to app-1",)


def test_application_of_both_generations_is_served_by_the_older():
    newer = wishes.received(
        1, wishes.route(match("/new")), application="dex", endpoint=wishes.OPEN
    )
    found = wishes.plan(newer, older=[older(2, "/dex", "dex")])
    assert [route.path for route in found.routes] == ["/dex"]
    (problem,) = found.problems
    assert problem == (
        f"{wishes.OPEN}:1 dex: dex is served by its relation to ingress; "
        f"run: juju remove-relation istio-integrator:{wishes.OPEN} dex"
    )


def test_many_problems_of_one_application_are_few_lines():
    bad = [wishes.route(match("/a"), name=f"r{n}", backends=[]) for n in range(128)]
    first, *_, last = problems = wishes.plan(wishes.received(1, *bad)).problems
    assert len(problems) == 4
    assert "route r0 asks for no Service" in first
    assert last == "istio-ingress-route:1 app-1: 125 more routes can't be served"


def test_root_without_authentication_is_refused():
    """Requests for notebooks would match it first, and be rejected."""
    root, dex = wishes.route(match("/"), name="root"), wishes.route(match("/dex"), name="dex")
    found = wishes.plan(wishes.received(1, root, dex, endpoint=wishes.OPEN))
    assert [route.path for route in found.routes] == ["/dex"]
    (problem,) = found.problems
    assert "route root asks for / without authentication" in problem
    assert wishes.plan(wishes.received(1, root)).problems == ()


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
    context = render.virtual_service(
        found.routes, TARGET, VALUES, model="kubeflow", application="a"
    )
    (obj,) = manifests.render(render.VIRTUAL_SERVICE, context)
    assert len(str(obj)) < planning.MOST_OF_ALL
    assert {0, 1, 2} <= {route.relation for route in found.routes}


def test_matches_are_not_multiplied_without_end():
    asked = [
        wishes.route(*(match(f"/{n}/{m}") for m in range(16)), name=f"r{n}") for n in range(40)
    ]
    found = wishes.plan(wishes.received(1, *asked))
    assert found.routes == ()
    assert "asks for more routes than there is room for" in found.problems[0]
