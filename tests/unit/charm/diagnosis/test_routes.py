"""The Gateways that routes name, and what routes lead to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import routes
from tests.unit.charm.diagnosis.objects import service

OWNER = "a.app"


def route(*, gateways=("a/kubeflow-gateway",), host="web.a.svc.cluster.local", port=80, **labels):
    marks = labels or {"istio-integrator.charmhub.io/owner": OWNER}
    destination = {"host": host, "port": {"number": port}}
    return {
        "kind": "VirtualService",
        "metadata": {"name": "web", "namespace": "a", "labels": marks},
        "spec": {
            "gateways": list(gateways),
            "http": [{"route": [{"destination": destination}]}],
        },
    }


GATEWAY = {
    "metadata": {"name": "kubeflow-gateway", "namespace": "a"},
    "spec": {"servers": [{"port": {"number": 80}}, {"port": {"number": 443}}]},
}


@pytest.mark.parametrize(
    ("gateways", "missing"),
    [
        pytest.param(("a/kubeflow-gateway",), [], id="there"),
        pytest.param(("kubeflow-gateway",), [], id="beside-the-route"),
        pytest.param(("mesh",), [], id="sidecars"),
        pytest.param(("b/kubeflow-gateway", "mesh"), ["b/kubeflow-gateway"], id="elsewhere"),
        pytest.param(("other",), ["a/other"], id="gone"),
    ],
)
def test_gateway_that_a_route_names_and_that_is_not_there(gateways, missing):
    found = list(routes.judge_gateways([route(gateways=gateways)], [GATEWAY]))
    assert [each.level.value for each in found] == (["✗"] if missing else ["✓"])
    assert all(name in found[0].seen for name in missing)


def slices(*, ready=True, name="http-80"):
    return [
        {
            "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": name, "port": 8080}],
            "endpoints": [{"conditions": {"ready": ready}}],
        }
    ]


WEB = service(name="web", namespace="a")

EXTERNAL = service("ExternalName", name="web", namespace="a")


@pytest.mark.parametrize(
    ("services", "parts", "port", "want"),
    [
        pytest.param([WEB], slices(), 80, "", id="ready"),
        pytest.param([WEB], slices(ready=None), 80, "", id="absent-is-ready"),
        pytest.param([WEB], slices(ready=False), 80, "no ready endpoint", id="not-ready"),
        pytest.param([WEB], slices(name="grpc"), 80, "no ready endpoint", id="another-port"),
        pytest.param([WEB], [], 80, "no ready endpoint", id="no-pods"),
        pytest.param([WEB], slices(), 81, "has no port 81", id="no-such-port"),
        pytest.param([], [], 80, "there is no Service a/web", id="no-service"),
        pytest.param([EXTERNAL], [], 80, "", id="elsewhere"),
    ],
)
def test_backend_of_a_route(services, parts, port, want):
    for one, model, level in (
        (route(port=port), "a", "✗"),
        (route(port=port, team="b"), "a", "!"),
        # With our label, and written by somebody else.
        (route(port=port), "kubeflow", "!"),
    ):
        (found,) = routes.judge_backends(
            [one], services, parts, domain="cluster.local", owner=OWNER, model=model
        )
        assert found.level.value == (level if want else "✓")
        assert want in found.seen


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True)


@given(NAMES, NAMES, st.sampled_from(["cluster.local", "k8s.example.com"]))
def test_name_of_a_service_is_read_in_every_spelling(name, namespace, domain):
    for host in (f"{name}.{namespace}.svc.{domain}", f"{name}.{namespace}.svc"):
        assert routes.service_name(host, "x", domain) == f"{namespace}/{name}"
    assert routes.service_name(name, namespace, domain) == f"{namespace}/{name}"
    assert routes.service_name(f"{name}.example.org", namespace, domain) == ""


def test_route_of_others_at_our_gateway_is_ours_to_look_at():
    elsewhere = {**route(), "metadata": {"name": "nb", "namespace": "shop"}}
    third = {**route(gateways=("shop/web",)), "metadata": {"name": "x", "namespace": "shop"}}
    found = routes.relevant([route(), elsewhere, third], namespaces=["a"], model="a")
    assert [each["metadata"]["name"] for each in found] == ["web", "nb"]
