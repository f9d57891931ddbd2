"""HTTPRoutes of several relations."""

from istio_integrator.ingress import http_routes
from istio_integrator.relations import kubeflow
from tests.unit.charm.ingress import wishes


def test_names_count_the_routes_of_a_relation():
    older = kubeflow.Received(
        1, "old", kubeflow.IngressRequest(service="app", port=80, prefix="/old")
    )
    newer = wishes.received(2, *(wishes.route(wishes.match(path)) for path in ("/a", "/b")))
    plan = wishes.plan(newer, older=[older])
    fit, problems = http_routes.fit(plan.routes)
    made = http_routes.Context.of(
        fit, application="istio-integrator", model="kubeflow", domain="cluster.local"
    )
    assert (plan.problems, problems) == ((), [])
    assert {one.name for one in made.routes} == {
        f"istio-integrator-route-{number}" for number in ("1-0", "2-0", "2-1")
    }
