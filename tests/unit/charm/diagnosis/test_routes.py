"""What routes lead to."""

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import routes
from tests.unit.charm.diagnosis.objects import service


def route(*, gateways=("a/kubeflow-gateway",), host="web.a.svc.cluster.local", port=80):
    destination = {"host": host, "port": {"number": port}}
    return {
        "kind": "VirtualService",
        "metadata": {"name": "web", "namespace": "a"},
        "spec": {
            "gateways": list(gateways),
            "http": [{"route": [{"destination": destination}]}],
        },
    }


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
    one = route(port=port)
    for ours, level in (([one], "✗"), ([], "!")):
        (found,) = routes.judge_backends([one], services, parts, domain="cluster.local", ours=ours)
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
    listed = [route(), elsewhere, third]
    facts = types.SimpleNamespace(model="a", profiles=[], objects=lambda _: listed)
    found = routes.of_model(facts)
    assert [each["metadata"]["name"] for each in found] == ["web", "nb"]
