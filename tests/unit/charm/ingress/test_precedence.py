"""Routes of both generations are served in one order, which is the Gateway API's."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.relations import ingress_route, kubeflow
from tests.unit.charm.ingress import envoy, wishes

HOSTS = ("kf.example.com", "ml.example.com")
PATHS = st.sampled_from(["/", "/a", "/a", "/a/", "/a/b", "/a/b/", "/ab", "//", "/a//"])
HEADERS = st.dictionaries(st.sampled_from(["x-a", "x-b"]), st.just("1"), max_size=2)
MATCHES = st.builds(
    lambda path, kind, method, headers: wishes.match(path, kind, method=method, headers=headers),
    PATHS,
    st.sampled_from(["Exact", "PathPrefix"]),
    st.sampled_from([None, "GET", "GET", "POST"]),
    HEADERS,
)
HOSTNAMES = st.sampled_from([None, None, [HOSTS[0]], [HOSTS[1]], list(HOSTS)])
OLDER, NEWER = "older", "newer"
WISHES = st.lists(
    st.one_of(
        st.tuples(st.just(OLDER), PATHS, st.none()),
        st.tuples(st.just(NEWER), st.lists(MATCHES, min_size=1, max_size=3), HOSTNAMES),
    ),
    min_size=1,
    max_size=6,
)
REQUESTS = st.builds(
    envoy.Request,
    path=PATHS,
    method=st.sampled_from(["GET", "POST"]),
    host=st.sampled_from(HOSTS),
    headers=HEADERS.map(lambda found: tuple(sorted(found.items()))),
)


def read(asked):
    """Read what applications wish, each of them one thing."""
    by_older, by_newer = [], []
    for relation, (generation, what, hostnames) in enumerate(asked):
        application = f"app-{relation}"
        if generation == OLDER:
            message = kubeflow.IngressRequest(service="app", port=80, prefix=what)
            by_older.append(kubeflow.Received(relation, application, message))
        else:
            wish = wishes.route(*what, hostnames=hostnames)
            by_newer.append(wishes.received(relation, wish))
    return by_older, by_newer


def rank(match, hostnames, relation):
    """Weigh a match as the Gateway API says."""
    named = hostnames is not None and set(hostnames) < set(HOSTS)
    path = match["path"]["value"]
    is_exact = match["path"]["type"] == "Exact"
    # One that is for some of our hosts is more exact than one that is for all.
    length = len(path.rstrip("/"))
    headers = len(match["headers"] or ())
    return named, is_exact, length, bool(match["method"]), headers, len(path), -relation


def fits(match, hostnames, request):
    """Tell whether a request fits a match of the Gateway API."""
    path = match["path"]["value"]
    if match["path"]["type"] == "Exact":
        is_there = request.path == path
    else:
        wanted = path.rstrip("/").split("/")
        is_there = request.path.split("/")[: len(wanted)] == wanted
    return (
        is_there
        and match["method"] in (None, request.method)
        and (match["headers"] or {}).items() <= dict(request.headers).items()
        and (hostnames is None or request.host in hostnames)
    )


def best(asked, kept, request):
    """Find who serves a request, looking at every wish that is served."""
    found = []
    for relation, (generation, what, hostnames) in enumerate(asked):
        if generation == OLDER and relation in kept and request.path.startswith(what):
            plain = wishes.match(what, method=None, headers=None)
            found.append((rank(plain, None, relation), relation))
        elif generation == NEWER:
            found += [
                (rank(match, hostnames, relation), relation)
                for match in what
                if fits(match, hostnames, request) and _key(match) in kept.get(relation, ())
            ]
    return max(found)[1] if found else None


def _key(match):
    path = match["path"]["value"]
    if match["path"]["type"] == "PathPrefix":
        path = path.rstrip("/") or "/"
    headers = tuple(sorted((match["headers"] or {}).items()))
    return match["path"]["type"] == "Exact", path, match["method"] or "", headers


@given(WISHES, REQUESTS, st.randoms())
def test_whoever_is_first_is_who_the_gateway_api_means(asked, request, shuffler):
    older, newer = read(asked)
    plan = wishes.plan(*newer, older=older, hosts=HOSTS)
    kept = {}
    for route in plan.routes:
        key = (route.kind == 0, route.path, route.method, route.headers)
        kept.setdefault(route.relation, set()).add(key)
    found = envoy.first(plan.routes, request)
    want = best(asked, kept, request)
    assert (found[0].relation if found else None) == want
    # Whatever order relations are read in.
    shuffler.shuffle(older)
    shuffler.shuffle(newer)
    assert wishes.plan(*newer, older=older, hosts=HOSTS) == plan


@given(WISHES)
def test_no_two_applications_have_the_same(asked):
    older, newer = read(asked)
    found = wishes.plan(*newer, older=older, hosts=HOSTS).routes
    owners = {}
    for route in found:
        for claim in route.claims:
            assert owners.setdefault(claim, route.application) == route.application
    # What asks for nothing but `/` is the last: Istio has it after the routes of others.
    kinds = [route.kind for route in found]
    assert 3 not in kinds[:-1]


@given(WISHES, st.integers(0, 5))
def test_who_goes_leaves_the_others_as_they_were_or_with_more(asked, gone):
    older, newer = read(asked)
    before = wishes.plan(*newer, older=older, hosts=HOSTS).routes
    rest = [[one for one in some if one.relation != gone] for some in (older, newer)]
    after = wishes.plan(*rest[1], older=rest[0], hosts=HOSTS).routes
    stayed = [route for route in before if route.relation != gone]
    assert [route for route in after if route in stayed] == stayed


def newer(path, kind="PathPrefix", hostnames=None, **more):
    return lambda relation: wishes.received(
        relation, wishes.route(wishes.match(path, kind, **more), hostnames=hostnames)
    )


def older(prefix):
    message = kubeflow.IngressRequest(service="app", port=80, prefix=prefix)
    return lambda relation: kubeflow.Received(relation, f"app-{relation}", message)


HEADER = {"x-a": "1"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(newer("/a", hostnames=HOSTS[:1]), newer("/a/b"), id="hostname, length"),
        pytest.param(newer("/a", "Exact"), newer("/a"), id="exact, prefix"),
        pytest.param(newer("/a", "Exact"), newer("/a", method="GET"), id="exact, method"),
        pytest.param(newer("/a/b"), newer("/a", method="GET", headers=HEADER), id="length, all"),
        pytest.param(newer("/a", method="GET"), newer("/a"), id="method, none"),
        pytest.param(newer("/a", method="GET"), newer("/a", headers=HEADER), id="method, header"),
        pytest.param(
            newer("/a", headers={**HEADER, "x-b": "1"}), newer("/a", headers=HEADER), id="headers"
        ),
        pytest.param(newer("/a", method="GET"), older("/a/"), id="method, older with slash"),
        pytest.param(newer("/a", method="GET"), older("/a"), id="method, older"),
        pytest.param(older("/a/b"), newer("/a"), id="older longer"),
        pytest.param(newer("/a/b"), older("/a/"), id="newer longer"),
        pytest.param(older("/a/"), older("/a"), id="slash at the end of older ones"),
        pytest.param(older("/b"), newer("/a/[0-9]+", "RegularExpression"), id="prefix, regex"),
        pytest.param(newer("/a/[0-9]+", "RegularExpression"), older("/"), id="regex, all"),
    ],
)
@pytest.mark.parametrize("ages", [(1, 2), (2, 1)])
def test_more_exact_route_comes_first_whatever_its_age(first, second, ages):
    said = [first(ages[0]), second(ages[1])]
    asked = [one for one in said if isinstance(one, ingress_route.Received)]
    plan = wishes.plan(*asked, older=[one for one in said if one not in asked], hosts=HOSTS)
    assert plan.problems == ()
    assert [route.relation for route in plan.routes] == list(ages)


def test_wildcard_comes_after_a_host_and_before_none():
    said = [
        newer("/a/b/c")(1),
        newer("/a/b", hostnames=["*.b.example.com"])(2),
        newer("/a", hostnames=["x.b.example.com"])(3),
    ]
    found = wishes.plan(*said, hosts=("*.example.com",)).routes
    assert [route.relation for route in found] == [3, 2, 1]


def test_regular_expression_comes_after_prefixes_and_before_the_rest():
    regex = wishes.match("/a/[0-9]+", "RegularExpression")
    longer = wishes.match("/a/[0-9]+/long", "RegularExpression")
    everything = [
        wishes.received(1, wishes.route(wishes.match("/"))),
        wishes.received(2, wishes.route(regex)),
        wishes.received(3, wishes.route(wishes.match("/a/1"))),
        wishes.received(4, wishes.route(wishes.match("/a/1", "Exact"))),
        wishes.received(5, wishes.route(longer)),
    ]
    random.Random(1).shuffle(everything)
    found = wishes.plan(*everything).routes
    assert [route.relation for route in found] == [4, 3, 5, 2, 1]
