from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import names
from istio_integrator.ingress import gateway, record
from istio_integrator.ingress.routes import render as rendering
from istio_integrator.kube import manifests
from istio_integrator.relations import kubeflow
from tests.unit.charm.ingress import envoy, wishes


def said(relation=1, application="kfp-ui", **changes):
    values = {"service": application, "port": 3000, "prefix": f"/{application}", **changes}
    return kubeflow.Received(relation, application, kubeflow.IngressRequest(**values))


def plan(*received, **changes):
    return wishes.plan(older=received, **changes)


def served(*received, **changes):
    return plan(*received, **changes).routes


# What Charmed Kubeflow's applications ask for.


PREFIXES = st.text(st.sampled_from("/ab.-"), min_size=0, max_size=5).map(lambda text: f"/{text}")
SEVERAL = st.lists(PREFIXES, min_size=1, max_size=6, unique_by=lambda path: path.rstrip("/"))
"""Slashes at the end make no prefix another one: only one application can have it."""


@given(SEVERAL, PREFIXES, st.randoms())
def test_longest_prefix_is_served_whatever_the_order(prefixes, path, shuffler):
    received = [said(n, f"app-{n}", prefix=prefix) for n, prefix in enumerate(prefixes)]
    shuffler.shuffle(received)
    found = served(*received)
    owners = dict(zip(prefixes, (f"app-{n}" for n in range(len(prefixes))), strict=True))
    longest = max((p for p in prefixes if path.startswith(p)), key=len, default=None)
    assert envoy.reached(found, path) == ((owners[longest], path) if longest else None)


@given(st.lists(st.integers(0, 99), unique=True, max_size=8), st.text("ab-", min_size=1))
def test_names_never_collide(ids, application):
    found = served(*(said(n, "same", prefix=f"/{n}/") for n in ids))
    assert len({route.name for route in found}) == len(ids)
    assert all(len(route.name) <= 63 for route in found)


def test_second_relation_for_a_prefix_is_refused_and_named():
    first, second = said(1, "one", prefix="/x"), said(2, "two", prefix="/x")
    assert [route.backend.host for route in served(second, first)] == [
        "one.kubeflow.svc.cluster.local"
    ]
    assert list(plan(first, second).problems) == ["ingress:2 two: prefix /x belongs to one"]


def test_malformed_request_takes_away_its_own_route_only():
    broken = kubeflow.Received(3, "bad", None, "port is missing")
    assert len(served(said(), broken)) == 1
    assert list(plan(said(), broken).problems) == ["ingress:3 bad: port is missing"]


def test_service_is_reached_in_the_model_by_the_domain_of_the_cluster():
    (route,) = served(said(namespace="ai"), model="ai", domain="k8s.example")
    assert route.backend.host == "kfp-ui.ai.svc.k8s.example"


TARGET = gateway.Target(
    namespace="istio-ingress", selector={"a": "b"}, service="gw", http_port=80, https_port=443
)


VALUES = record.Values()
MARK = {VALUES.header: {"exact": VALUES.asked}}


def render(*received):
    context = rendering.virtual_service(
        served(*received), TARGET, VALUES, model="kubeflow", application="istio-integrator"
    )
    return manifests.render(rendering.VIRTUAL_SERVICE, context)


def test_virtual_service_is_exported_to_the_gateway_and_never_to_all():
    (service,) = render(said(prefix="/pipeline", rewrite="/"))
    assert service["metadata"]["name"] == "istio-integrator-routes"
    assert service["metadata"]["annotations"][names.RELATION] == "ingress:1 kfp-ui"
    assert service["spec"] == {
        "gateways": ["kubeflow/kubeflow-gateway"],
        "hosts": ["*"],
        "exportTo": [".", "istio-ingress"],
        "http": [
            {
                "name": "istio-integrator-ingress-1",
                "match": [{"uri": {"prefix": "/pipeline/"}, "headers": MARK}],
                "rewrite": {"uri": "/"},
                "route": [_to("kfp-ui")],
            },
            {
                "name": "istio-integrator-ingress-1",
                "match": [{"uri": {"prefix": "/pipeline"}, "headers": MARK}],
                "rewrite": {"uri": "/"},
                "route": [_to("kfp-ui")],
            },
            {
                "name": VALUES.last_route,
                "match": [{"uri": {"prefix": "/"}}],
                "directResponse": {"status": 404},
            },
        ],
    }


def test_nothing_is_written_where_nothing_is_served():
    assert render() == []


def _to(service, port=3000):
    host = f"{service}.kubeflow.svc.cluster.local"
    return {"destination": {"host": host, "port": {"number": port}}}
