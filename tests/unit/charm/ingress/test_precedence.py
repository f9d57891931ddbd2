"""Routes of both generations are served in one order, which is the Gateway API's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.relations import ingress_route, kubeflow
from tests.unit.charm.ingress import envoy, wishes

# The Gateway API allows no empty segment in a match; requests may have some.
ASKED = ["/", "/a", "/a", "/a/", "/a/b", "/a/b/", "/ab"]
PATHS = st.sampled_from([*ASKED, "//", "/a//"])
MATCHES = st.builds(wishes.match, st.sampled_from(ASKED), st.sampled_from(["Exact", "PathPrefix"]))
OLDER, NEWER = "older", "newer"
WISHES = st.lists(
    st.one_of(
        st.tuples(st.just(OLDER), st.sampled_from(ASKED)),
        st.tuples(st.just(NEWER), st.lists(MATCHES, min_size=1, max_size=3)),
    ),
    min_size=1,
    max_size=6,
)


def read(asked):
    """Read what applications wish, each of them one thing."""
    by_older, by_newer = [], []
    for relation, (generation, what) in enumerate(asked):
        application = f"app-{relation}"
        if generation == OLDER:
            message = kubeflow.IngressRequest(service="app", port=80, prefix=what)
            by_older.append(kubeflow.Received(relation, application, message))
        else:
            by_newer.append(wishes.received(relation, wishes.route(*what)))
    return by_older, by_newer


def rank(match, relation):
    """Weigh a match as the Gateway API says."""
    path = match["path"]["value"]
    is_exact = match["path"]["type"] == "Exact"
    return is_exact, len(path.rstrip("/")), len(path), -relation


def fits(match, path):
    """Tell whether a request fits a match of the Gateway API."""
    asked = match["path"]["value"]
    if match["path"]["type"] == "Exact":
        return path == asked
    wanted = asked.rstrip("/").split("/")
    return path.split("/")[: len(wanted)] == wanted


def best(asked, kept, path):
    """Find who serves a request, looking at every wish that is served."""
    found = []
    for relation, (generation, what) in enumerate(asked):
        if generation == OLDER and relation in kept and path.startswith(what):
            found.append((rank(wishes.match(what), relation), relation))
        elif generation == NEWER:
            found += [
                (rank(match, relation), relation)
                for match in what
                if fits(match, path) and _key(match) in kept.get(relation, ())
            ]
    return max(found)[1] if found else None


def _key(match):
    path = match["path"]["value"]
    if match["path"]["type"] == "PathPrefix":
        path = path.rstrip("/") or "/"
    return match["path"]["type"] == "Exact", path


@given(WISHES, PATHS, st.randoms())
def test_whoever_is_first_is_who_the_gateway_api_means(asked, path, shuffler):
    older, newer = read(asked)
    plan = wishes.plan(*newer, older=older)
    kept = {}
    for route in plan.routes:
        kept.setdefault(route.relation, set()).add((route.kind == 0, route.path))
    found = envoy.first(plan.routes, path)
    want = best(asked, kept, path)
    assert (found[0].relation if found else None) == want
    # Whatever order relations are read in.
    shuffler.shuffle(older)
    shuffler.shuffle(newer)
    assert wishes.plan(*newer, older=older) == plan


@given(WISHES)
def test_no_two_applications_have_the_same(asked):
    older, newer = read(asked)
    found = wishes.plan(*newer, older=older).routes
    owners = {}
    for route in found:
        assert owners.setdefault(route.claim, route.application) == route.application
    # What asks for nothing but `/` is the last: Istio has it after the routes of others.
    kinds = [route.kind for route in found]
    assert 2 not in kinds[:-1]


@given(WISHES, st.integers(0, 5))
def test_who_goes_leaves_the_others_as_they_were_or_with_more(asked, gone):
    older, newer = read(asked)
    before = wishes.plan(*newer, older=older).routes
    rest = [[one for one in some if one.relation != gone] for some in (older, newer)]
    after = wishes.plan(*rest[1], older=rest[0]).routes
    stayed = [route for route in before if route.relation != gone]
    assert [route for route in after if route in stayed] == stayed


def newer(path, kind="PathPrefix"):
    return lambda relation: wishes.received(relation, wishes.route(wishes.match(path, kind)))


def older(prefix):
    message = kubeflow.IngressRequest(service="app", port=80, prefix=prefix)
    return lambda relation: kubeflow.Received(relation, f"app-{relation}", message)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(newer("/a", "Exact"), newer("/a"), id="exact, prefix"),
        pytest.param(older("/a/b"), newer("/a"), id="older longer"),
        pytest.param(newer("/a/b"), older("/a/"), id="newer longer"),
    ],
)
@pytest.mark.parametrize("ages", [(1, 2), (2, 1)])
def test_more_exact_route_comes_first_whatever_its_age(first, second, ages):
    said = [first(ages[0]), second(ages[1])]
    asked = [one for one in said if isinstance(one, ingress_route.Received)]
    plan = wishes.plan(*asked, older=[one for one in said if one not in asked])
    assert plan.problems == ()
    assert [route.relation for route in plan.routes] == list(ages)
