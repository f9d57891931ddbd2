"""Which routes the gateway serves, in which order, and which requests are refused by name.

Routes of both generations are served in one order, which is the Gateway API's.
"""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.asked.routes import plan as planning
from istio_integrator.asked.routes.plan import Uri, VirtualServiceEntry
from istio_integrator.relations import kubeflow
from tests.unit.cases import cases
from tests.unit.charm.ingress import wishes
from tests.unit.charm.ingress.wishes import match, served

# The Gateway API allows no empty segment in a match; requests may have some.
ASKED = ["/", "/a", "/a", "/a/", "/a/b", "/a/b/", "/ab"]
PATHS = st.sampled_from([*ASKED, "//", "/a//"])
MATCHES = st.builds(match, st.sampled_from(ASKED), st.sampled_from(["Exact", "PathPrefix"]))
OLDER, NEWER = "older", "newer"
WISHES = st.lists(
    st.one_of(
        st.tuples(st.just(OLDER), st.sampled_from(ASKED)),
        st.tuples(st.just(NEWER), st.lists(MATCHES, min_size=1, max_size=3)),
    ),
    min_size=1,
    max_size=6,
)


def first_match(routes, path):
    """Return the first route and entry by which Envoy serves a request, and what matched."""
    for route in routes:
        for entry in route.entries:
            for uri in entry.uris:
                is_exact = uri.how == "exact"
                if path == uri.value if is_exact else path.startswith(uri.value):
                    return route, entry, uri.value
    return None


def older(relation, prefix, application=None, **more):
    message = kubeflow.IngressRequest(service="app", port=80, prefix=prefix, **more)
    sender = application or f"app-{relation}"
    return kubeflow.Received(relation, sender, message, endpoint=kubeflow.INGRESS)


def read(asked):
    """Read what applications wish, each of them one thing."""
    by_older, by_newer = [], []
    for relation, (generation, what) in enumerate(asked):
        if generation == OLDER:
            by_older.append(older(relation, what))
        else:
            by_newer.append(wishes.received(relation, wishes.route(*what)))
    return by_older, by_newer


def rank(wish, relation):
    """Weigh a match as the Gateway API says."""
    path = wish["path"]["value"]
    return wish["path"]["type"] == "Exact", len(path.rstrip("/")), len(path), -relation


def fits(wish, path):
    """Tell whether a request fits a match of the Gateway API."""
    asked = wish["path"]["value"]
    if wish["path"]["type"] == "Exact":
        return path == asked
    wanted = asked.rstrip("/").split("/")
    return path.split("/")[: len(wanted)] == wanted


def best(asked, kept, path):
    """Find who serves a request, looking at every wish that is served."""
    found = []
    for relation, (generation, what) in enumerate(asked):
        if generation == OLDER and relation in kept and path.startswith(what):
            found.append((rank(match(what), relation), relation))
        elif generation == NEWER:
            found += [
                (rank(wish, relation), relation)
                for wish in what
                if fits(wish, path) and _key(wish) in kept.get(relation, ())
            ]
    return max(found)[1] if found else None


def _key(wish):
    path = wish["path"]["value"]
    if wish["path"]["type"] == "PathPrefix":
        path = path.rstrip("/") or "/"
    return wish["path"]["type"] == "Exact", path


@given(WISHES, PATHS)
def test_whoever_is_first_is_who_the_gateway_api_means(asked, path):
    older, newer = read(asked)
    plan = wishes.plan(*newer, older=older)
    kept = {}
    for route in plan.routes:
        kept.setdefault(route.request.relation, set()).add((route.kind == 0, route.path))
    found = first_match(plan.routes, path)
    want = best(asked, kept, path)
    assert (found[0].request.relation if found else None) == want


@given(WISHES, st.integers(0, 5))
def test_who_goes_leaves_the_others_as_they_were_or_with_more(asked, gone):
    older, newer = read(asked)
    before = wishes.plan(*newer, older=older).routes
    owners = {}
    for route in before:
        application = route.request.application
        assert owners.setdefault(route.claim, application) == application
    # What asks for nothing but `/` is the last: Istio has it after the routes of others.
    assert planning.PathMatch.ALL not in [route.kind for route in before][:-1]
    rest = [[one for one in some if one.relation != gone] for some in (older, newer)]
    after = wishes.plan(*rest[1], older=rest[0]).routes
    stayed = [route for route in before if route.request.relation != gone]
    assert [route for route in after if route in stayed] == stayed


def rewrite(kind=None, value="", **more):
    key = kind and kind[0].lower() + kind[1:]
    path = {"path": {"type": kind, key: value}} if kind else {}
    return {"type": "URLRewrite", "urlRewrite": {**path, **more}}


WHOLE = VirtualServiceEntry((Uri("prefix", "/"),))
RENAMED = {"type": "ReplaceFullPath", "value": "/new"}
PARTED = VirtualServiceEntry((Uri("exact", "/a"), Uri("prefix", "/a/")))


@cases(
    ("asked", "entries"),
    prefix=(wishes.route(match("/a", method=None)), [PARTED]),
    slash=(wishes.route({"path": {"value": "/a/"}}), [PARTED]),
    root=(wishes.route(match("/")), [WHOLE]),
    slashes=(wishes.route(match("//")), [WHOLE]),
    no_match=(wishes.route(), [WHOLE]),
    empty_match=(wishes.route({}), [WHOLE]),
    of_https=(wishes.route(match("/a"), listener={"port": 443, "protocol": "HTTP"}), [PARTED]),
    exact=(wishes.route(match("/a/", "Exact")), [VirtualServiceEntry((Uri("exact", "/a/"),))]),
    exact_rewrite=(
        wishes.route(match("/a", "Exact"), filters=[{"urlRewrite": {"path": RENAMED}}]),
        [VirtualServiceEntry((Uri("exact", "/a"),), "/new")],
    ),
)
def test_match_is_what_a_virtual_service_has_for_it(asked, entries):
    (found,) = served(asked)
    assert found.entries == entries
    assert (found.service, found.port) == ("app", 80)


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

    def seen(asked):
        _, entry, matched = first_match(found, asked)
        return entry.path + asked[len(matched) :]

    assert {asked: seen(asked) for asked in cases} == cases


def test_rewrite_of_the_older_interface_replaces_a_part_of_a_segment():
    (found,) = wishes.plan(older=[older(1, "/a", rewrite="/new")]).routes
    assert found.entries == [VirtualServiceEntry((Uri("prefix", "/a"),), "/new")]


def test_grpc_methods_are_paths():
    methods = {"service": "ml.Store", "method": "Get"}, {"service": "ml.Store"}
    calls = [*(wishes.route({"method": each}) for each in methods), wishes.route()]
    read = wishes.plan(wishes.received(1, grpc=calls))
    assert read.problems == ()
    assert [route.is_grpc for route in read.routes] == [True, True, True]
    rewritten = wishes.route({"method": methods[0]}, filters=[rewrite("ReplaceFullPath", "/b")])
    (problem,) = wishes.plan(wishes.received(1, grpc=[rewritten])).problems
    assert "asks for a rewrite of gRPC" in problem
    values = [[uri.value for uri in route.entries[0].uris] for route in read.routes]
    assert values == [["/ml.Store/Get"], ["/ml.Store", "/ml.Store/"], ["/"]]


A = match("/a")


def test_first_of_equal_matches_is_served_and_each_has_a_place():
    found = served(wishes.route(A, match("/bc")), wishes.route(A, name="b", service="two"))
    places = [(each.path, each.service, each.place) for each in found]
    assert places == [("/bc", "app", 1), ("/a", "app", 0)]


@cases(
    ("asked", "words"),
    method=(wishes.route(match("/a", method="GET")), "asks for method;"),
    headers=(wishes.route(match("/a", headers={"x-a": "1"})), "asks for headers;"),
    hostnames=(wishes.route(A, hostnames=["other.com"]), "asks for hostnames;"),
    no_service=(wishes.route(A, backends=[]), "asks for no Service"),
    services=(
        wishes.route(A, backends=[{"service": name, "port": 80} for name in "ab"]),
        "asks for several Services",
    ),
    type=(wishes.route(A, match("(/a", "RegularExpression")), "a path of type RegularExpression"),
    port=(
        wishes.route(A, listener={"port": 8080, "protocol": "HTTP"}),
        "asks for port 8080; served are",
    ),
    prefix_of_exact=(
        wishes.route(match("/a", "Exact"), filters=[rewrite("ReplacePrefixMatch", "/b")]),
        "replaces the prefix of an exact path",
    ),
    prefix_of_exact_beside_another=(
        wishes.route(A, match("/b", "Exact"), filters=[rewrite("ReplacePrefixMatch", "/c")]),
        "replaces the prefix of an exact path",
    ),
    whole_of_prefix=(
        wishes.route(A, filters=[rewrite("ReplaceFullPath", "/b")]),
        "replaces the whole path of a prefix",
    ),
    hostname=(wishes.route(A, filters=[rewrite(hostname="b.c")]), "asks for hostname;"),
    filter=(
        wishes.route(A, filters=[{"requestRedirect": {"scheme": "https"}}]),
        "asks for a filter that is no URLRewrite",
    ),
    filters=(
        wishes.route(A, filters=[rewrite("ReplacePrefixMatch", "/b")] * 2),
        "asks for several filters",
    ),
    cors=(wishes.route(A, corsPolicy={"allowOrigins": ["*"]}), "asks for corsPolicy"),
    query=(wishes.route({**A, "queryParams": [{"name": "a"}]}), "asks for queryParams"),
    regex=(
        wishes.route(A, filters=[{"urlRewrite": {"regex": {"pattern": "a"}}}]), "asks for regex",
    ),
    # None of a route's matches is served without the others.
    one_match=(wishes.route(match("/fine"), match("/x", method="GET")), "asks for method;"),
)  # fmt: skip
def test_route_that_cannot_be_served_is_named_and_the_others_are(asked, words):
    good = wishes.route(match("/good"), name="good")
    found = wishes.plan(wishes.received(1, asked, good))
    (problem,) = found.problems
    assert problem.startswith("istio-ingress-route:1 app-1: route web ")
    assert words in problem
    assert [route.title for route in found.routes] == ["good"]


def test_root_without_authentication_is_refused():
    """Requests for notebooks would match it first, and be rejected."""
    root, dex = wishes.route(match("/"), name="root"), wishes.route(match("/dex"), name="dex")
    found = wishes.plan(wishes.received(1, root, dex, endpoint=wishes.OPEN))
    assert [route.path for route in found.routes] == ["/dex"]
    (problem,) = found.problems
    assert "route root asks for / without authentication" in problem
    assert wishes.plan(wishes.received(1, root)).problems == ()


ROUTE = "istio-ingress-route"
EXACT = match("/a", "Exact")


@cases(
    ("newer", "by_older", "routes", "problem"),
    slash_makes_another_exact_path=(
        [wishes.received(1, wishes.route(EXACT)), wishes.received(3, wishes.route(EXACT)),
         wishes.received(2, wishes.route(match("/a/", "Exact"), A))],
        [], [("app-1", "/a"), ("app-2", "/a/"), ("app-2", "/a")],
        f"{ROUTE}:3 app-3: route web: /a belongs to app-1",
    ),
    oldest_relation=(
        [wishes.received(3, wishes.route(A)), wishes.received(5, wishes.route(A))], [],
        [("app-3", "/a")], f"{ROUTE}:5 app-5: route web: /a belongs to app-3",
    ),
    older_interface=(
        [wishes.received(1, wishes.route(A, match("/b")))], [older(2, "/a")],
        [("app-2", "/a"), ("app-1", "/b")], f"{ROUTE}:1 app-1: route web: /a belongs to app-2",
    ),
    older_interface_with_slash=(
        [wishes.received(1, wishes.route(A, match("/b")))], [older(2, "/a/")],
        [("app-2", "/a/"), ("app-1", "/b")], f"{ROUTE}:1 app-1: route web: /a belongs to app-2",
    ),
    slashes_make_no_other_prefix=(
        [], [older(1, "/kfp/"), older(2, "/kfp"), older(3, "/kfpx")],
        [("app-3", "/kfpx"), ("app-1", "/kfp/")], "ingress:2 app-2: prefix /kfp belongs to app-1",
    ),
    **{f"both_interfaces_{each}": (
        [wishes.received(1, wishes.route(match("/new")), application="dex", endpoint=each)],
        [older(4, "/x", "x"), older(2, "/dex", "dex")], [("x", "/x"), ("dex", "/dex")],
        (f"{each}:1 dex: dex is served by its relation to ingress; "
         f"run: juju remove-relation mesh-2:{each} dex"),
    ) for each in (ROUTE, wishes.OPEN)},
)  # fmt: skip
def test_path_belongs_to_one_application(newer, by_older, routes, problem):
    found = wishes.plan(*newer, older=by_older)
    assert {(route.request.application, route.path) for route in found.routes} == {*routes}
    assert found.problems == (problem,)


REMOTE = "remote-0123456789abcdef0123456789abcdef"
"""How Juju calls an application that reaches us by an offer."""


@cases(
    ("model", "application", "replaced", "words"),
    another=("mlflow", "app", {}, "asks for Services of mlflow"),
    offer=("mlflow", REMOTE, {}, "is of another model"),
    # Its own model may have the same name as ours, in another cluster.
    offer_of_the_name=("kf", REMOTE, {}, "is of another model"),
    silent_offer=("kf", REMOTE, {"message": None}, "is of another model"),
    invalid_offer=("kf", REMOTE, {"message": None, "problem": "x"}, "is of another model"),
)
@pytest.mark.parametrize("endpoint", [wishes.ASKED, wishes.OPEN, kubeflow.INGRESS])
def test_route_to_a_service_outside_of_the_model_is_refused_by_name(
    endpoint, model, application, replaced, words
):
    if endpoint == kubeflow.INGRESS:
        one = older(1, "/a", application, namespace=model)
    else:
        terms = {"model": model, "application": application, "endpoint": endpoint}
        one = wishes.received(1, wishes.route(A), **terms)
    found = wishes.plan(dataclasses.replace(one, **replaced))
    problem = f"{endpoint}:1 {application}: {words}; only Services of kf get routes"
    assert (found.routes, found.problems) == ((), (problem,))


def test_many_problems_of_one_application_are_few_lines():
    bad = [wishes.route(A, name=f"r{n}\n", backends=[]) for n in range(128)]
    first, *_, last = problems = wishes.plan(wishes.received(1, *bad)).problems
    assert len(problems) == 4
    assert r"route r0\n asks for no Service" in first
    assert last == f"{ROUTE}:1 app-1: 125 more routes can't be served"
    *_, last = wishes.plan(wishes.received(1, *bad[:4])).problems
    assert r"route r3\n asks for no Service" in last


@cases(("length", "matches", "count"), long_paths=(200, 16, 20), many_matches=(1, 16, 40))
def test_one_application_cannot_take_the_room_of_all(length, matches, count):
    hungry = [
        wishes.route(*(match(f"/{'x' * length}/{n}/{m}") for m in range(matches)), name=f"r{n}")
        for n in range(count)
    ]
    other = wishes.received(2, wishes.route(match("/b")))
    found = wishes.plan(wishes.received(1, *hungry), other)
    assert [route.request.relation for route in found.routes] == [2]
    (problem,) = found.problems
    assert problem == f"{ROUTE}:1 app-1: asks for more routes than there is room for"


def test_all_routes_together_have_room_in_one_object(monkeypatch):
    many = [
        wishes.received(
            n, *(wishes.route(match(f"/{n}/{'x' * 200}/{m}"), name=f"r{m}") for m in range(100))
        )
        for n in range(12)
    ]
    found = wishes.plan(*many)
    assert found.problems
    assert sum(route.size for route in found.routes) <= planning.MOST_OF_ALL
    assert {0, 1, 2} <= {route.request.relation for route in found.routes}
    size = sum(route.size for route in wishes.plan(many[0]).routes)
    for most in ("MOST_OF_ONE", "MOST_OF_ALL"):
        monkeypatch.setattr(planning, most, size)
    assert not wishes.plan(many[0]).problems
