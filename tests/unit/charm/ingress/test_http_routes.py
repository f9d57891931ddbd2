"""HTTPRoutes as istiod reads them: it writes nothing that comes behind a prefix `/`."""

import pytest

from istio_integrator.ingress import http_routes
from istio_integrator.relations import kubeflow
from tests.unit.charm.ingress import wishes

EXPRESSION = wishes.match("/pages/[a-z]+", "RegularExpression")
PREFIX = {"type": "PathPrefix", "value": "/"}
EVERYTHING = {"type": "RegularExpression", "value": ".*"}
HOSTS = ("kf.example.com", "ml.example.com")


def replaced(path):
    modifier = {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}
    return [{"type": "URLRewrite", "urlRewrite": {"path": modifier}}]


def context(plan):
    """What is written of a plan, and what is said of the rest of it."""
    assert plan.problems == ()
    fit, problems = http_routes.fit(plan.routes)
    made = http_routes.Context.of(
        fit, application="istio-integrator", model="kubeflow", domain="cluster.local"
    )
    return made, problems


def written(*http):
    """What is written of the wishes of applications, and what is said of the others."""
    plan = wishes.plan(*(wishes.received(n, one) for n, one in enumerate(http)), hosts=HOSTS)
    made, problems = context(plan)
    return {one.relation[-1]: one.match["path"] for one in made.routes}, problems


def test_names_count_the_routes_of_a_relation():
    older = kubeflow.Received(
        1, "old", kubeflow.IngressRequest(service="app", port=80, prefix="/old")
    )
    newer = wishes.received(2, *(wishes.route(wishes.match(path)) for path in ("/a", "/b")))
    made, _ = context(wishes.plan(newer, older=[older]))
    assert {one.name for one in made.routes} == {
        f"istio-integrator-route-{number}" for number in ("1-0", "2-0", "2-1")
    }


@pytest.mark.parametrize("root", [wishes.route(wishes.match("/")), wishes.route()])
def test_root_stays_a_prefix_until_there_is_an_expression(root):
    assert written(root) == ({"0": PREFIX}, [])
    found, problems = written(root, wishes.route(EXPRESSION), wishes.route(wishes.match("/a")))
    assert (found["0"], found["1"], problems) == (EVERYTHING, EXPRESSION["path"], [])
    assert found["2"]["type"] == "PathPrefix"


def test_expression_for_one_hostname_leaves_the_root_of_all_as_it_is():
    expression = wishes.route(EXPRESSION, hostnames=[HOSTS[0]])
    assert written(wishes.route(wishes.match("/")), expression)[0]["0"] == PREFIX


def test_expression_beside_a_root_that_has_to_be_a_prefix_is_refused_and_named():
    moved = wishes.route(wishes.match("/"), filters=replaced("/new"))
    found, (problem,) = written(moved, wishes.route(EXPRESSION), wishes.route(wishes.match("/a")))
    assert (found["0"], sorted(found)) == (PREFIX, ["0", "2"])
    assert "app-1: no HTTPRoute can have the expression /pages/[a-z]+" in problem
    assert "app-0, which is replaced; ask for a prefix" in problem
