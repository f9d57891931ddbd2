import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.ingress import routes
from istio_integrator.kube import manifests
from istio_integrator.relations import kubeflow


def said(relation=1, application="kfp-ui", **changes):
    values = {"service": application, "port": 3000, "prefix": f"/{application}", **changes}
    return kubeflow.Received(relation, application, kubeflow.IngressRequest(**values))


def served(*received, model="kubeflow", domain="cluster.local"):
    return routes.from_requests(
        received, model=model, application="istio-integrator", domain=domain
    )


# What Charmed Kubeflow's applications ask for.
CONSUMERS = {
    "kubeflow-dashboard": ("/", "/"),
    "oidc-gatekeeper": ("/authservice", "/"),
    "dex-auth": ("/dex", "/dex"),
    "jupyter-ui": ("/jupyter/", "/"),
    "katib-ui": ("/katib/", None),
    "kfp-ui": ("/pipeline", "/pipeline"),
    "envoy": ("/ml_metadata", "/ml_metadata"),
    "kubeflow-volumes": ("/volumes", "/"),
    "tensorboards-web-app": ("/tensorboards", "/"),
    "mlflow-server": ("/mlflow/", "/"),
}


def reached(found: list[routes.Route], path: str) -> tuple[str, str] | None:
    """Do what Envoy does with the routes in the order given, `/` last as istiod has it."""
    pairs = [(route, match) for route in found for match in route.matches]
    for route, match in sorted(pairs, key=lambda pair: pair[1].prefix == "/"):
        if path.startswith(match.prefix) and not (
            match.without and re.fullmatch(match.without, path)
        ):
            return route.relation.partition(" ")[2], match.rewrite + path[len(match.prefix) :]
    return None


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/", ("kubeflow-dashboard", "/")),
        ("/_/pipeline", ("kubeflow-dashboard", "/_/pipeline")),
        ("/authservice/logout", ("oidc-gatekeeper", "/logout")),
        ("/dex/auth", ("dex-auth", "/dex/auth")),
        ("/jupyter/api", ("jupyter-ui", "/api")),
        ("/katib/", ("katib-ui", "/katib/")),
        ("/pipeline", ("kfp-ui", "/pipeline")),
        ("/pipeline/apis/v1", ("kfp-ui", "/pipeline/apis/v1")),
        ("/volumes/api", ("kubeflow-volumes", "/api")),
        ("/volumes", ("kubeflow-volumes", "/")),
        ("/tensorboards?ns=a", ("tensorboards-web-app", "/?ns=a")),
        ("/mlflow/x", ("mlflow-server", "/x")),
    ],
)
def test_every_consumer_is_reached_by_its_path(path, want):
    received = [
        said(relation, application, prefix=prefix, rewrite=rewrite)
        for relation, (application, (prefix, rewrite)) in enumerate(CONSUMERS.items())
    ]
    found = served(*received)
    random.Random(path).shuffle(found)
    assert reached(found, path) == want


PREFIXES = st.text(st.sampled_from("/ab.-"), min_size=0, max_size=5).map(lambda text: f"/{text}")


@given(st.lists(PREFIXES, min_size=1, max_size=6, unique=True), PREFIXES, st.randoms())
def test_longest_prefix_is_served_whatever_the_order(prefixes, path, shuffler):
    received = [said(n, f"app-{n}", prefix=prefix) for n, prefix in enumerate(prefixes)]
    found = served(*received)
    shuffler.shuffle(found)
    owners = dict(zip(prefixes, (f"app-{n}" for n in range(len(prefixes))), strict=True))
    longest = max((p for p in prefixes if path.startswith(p)), key=len, default=None)
    assert reached(found, path) == ((owners[longest], path) if longest else None)


@given(st.lists(st.integers(0, 99), unique=True, max_size=8), st.text("ab-", min_size=1))
def test_names_never_collide(ids, application):
    found = served(*(said(n, "same", prefix=f"/{n}/") for n in ids))
    assert len({route.name for route in found}) == len(ids)
    assert all(len(route.name) <= 63 for route in found)


def test_second_relation_for_a_prefix_is_refused_and_named():
    first, second = said(1, "one", prefix="/x"), said(2, "two", prefix="/x")
    assert [route.host for route in served(second, first)] == ["one.kubeflow.svc.cluster.local"]
    assert list(routes.problems([first, second])) == ["ingress:2 two: prefix /x belongs to one"]


def test_malformed_request_takes_away_its_own_route_only():
    broken = kubeflow.Received(3, "bad", None, "port is missing")
    assert len(served(said(), broken)) == 1
    assert list(routes.problems([said(), broken])) == ["ingress:3 bad: port is missing"]


def test_service_in_another_namespace_is_reached_there():
    (route,) = served(said(namespace="elsewhere"), model="ai")
    assert route.host == "kfp-ui.elsewhere.svc.cluster.local"
    (route,) = served(said(), model="ai", domain="k8s.example")
    assert route.host == "kfp-ui.ai.svc.k8s.example"


def render(*received, hosts=("*",)):
    context = routes.Context(
        routes=served(*received),
        gateway="kubeflow/kubeflow-gateway",
        hosts=hosts,
        export_to=(".", "istio-ingress"),
    )
    return manifests.render(routes.FOLDER, context)


def test_virtual_service_is_exported_to_the_gateway_and_never_to_all():
    (service,) = render(said(prefix="/pipeline", rewrite="/"))
    assert service["metadata"]["name"] == "istio-integrator-ingress-1"
    assert service["spec"] == {
        "gateways": ["kubeflow/kubeflow-gateway"],
        "hosts": ["*"],
        "exportTo": [".", "istio-ingress"],
        "http": [
            {
                "name": "istio-integrator-ingress-1",
                "match": [{"uri": {"prefix": "/pipeline/"}}],
                "rewrite": {"uri": "/"},
                "route": [_to("kfp-ui")],
            },
            {
                "name": "istio-integrator-ingress-1",
                "match": [{"uri": {"prefix": "/pipeline"}}],
                "rewrite": {"uri": "/"},
                "route": [_to("kfp-ui")],
            },
        ],
    }


def test_virtual_service_without_rewrite_leaves_the_path():
    (service,) = render(said(prefix="/katib/"))
    assert service["spec"]["http"] == [
        {
            "name": "istio-integrator-ingress-1",
            "match": [{"uri": {"prefix": "/katib/"}}],
            "route": [_to("kfp-ui")],
        }
    ]


def test_prefix_within_another_is_left_out_of_it():
    outer, _ = render(said(1, "a", prefix="/a"), said(2, "b", prefix="/a/b.c"))
    (match,) = outer["spec"]["http"][0]["match"]
    assert match["withoutHeaders"] == {":path": {"regex": r"(?:/a/b\.c).*"}}


def _to(service, port=3000):
    host = f"{service}.kubeflow.svc.cluster.local"
    return {"destination": {"host": host, "port": {"number": port}}}
