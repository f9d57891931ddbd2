"""Where routes lead, and which of them no Gateway serves."""

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import routes
from istio_integrator.messages import Said, Severity
from tests.unit.charm.diagnosis.objects import service


def leading(*, gateways=("a/kubeflow-gateway",), host="web.a.svc.cluster.local", port=80):
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
        pytest.param([], [], 80, "Service a/web does not exist", id="no-service"),
        pytest.param([EXTERNAL], [], 80, "", id="elsewhere"),
    ],
)
def test_backend_of_a_route(services, parts, port, want):
    one = leading(port=port)
    for ours, severity in ((True, Severity.BLOCKED), (False, Severity.DOUBT)):
        (found,) = routes.judge_backends(
            [one], services, parts, domain="cluster.local", is_ours=lambda _, ours=ours: ours
        )
        if want:
            assert (found.said, found.severity) == (Said.BACKEND_NOT_READY, severity)
            assert want in found.about["problem"]
        else:
            assert found == Said.BACKENDS_READY(count=1)


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True)


@given(NAMES, NAMES, st.sampled_from(["cluster.local", "k8s.example.com"]))
def test_name_of_a_service_is_read_in_every_spelling(name, namespace, domain):
    for host in (f"{name}.{namespace}.svc.{domain}", f"{name}.{namespace}.svc"):
        assert routes.service_name(host, "x", domain) == f"{namespace}/{name}"
    assert routes.service_name(name, namespace, domain) == f"{namespace}/{name}"
    assert routes.service_name(f"{name}.example.org", namespace, domain) == ""


def test_route_of_others_at_our_gateway_is_ours_to_look_at():
    elsewhere = {**leading(), "metadata": {"name": "nb", "namespace": "shop"}}
    third = {**leading(gateways=("shop/web",)), "metadata": {"name": "x", "namespace": "shop"}}
    listed = [leading(), elsewhere, third]
    facts = types.SimpleNamespace(model="a", profiles=[], objects=lambda _: listed)
    found = routes.of_model(facts)
    assert [each["metadata"]["name"] for each in found] == ["web", "nb"]


OWN = "kubeflow/kubeflow-gateway"
LOCAL = "knative-serving/knative-local-gateway"
IRIS = "iris.alice.models.example.com"
INSIDE = "iris.alice.svc.cluster.local"


def route(*names, gateways=(OWN,), space="alice", name="iris"):
    metadata = {"namespace": space, "name": name}
    return {"metadata": metadata, "spec": {"hosts": [*names], "gateways": [*gateways]}}


def judged(served, *given):
    return routes.judge_hosts(given, OWN, served)


GATEWAY = {"metadata": {"name": "kubeflow-gateway", "namespace": "kubeflow"}}


@pytest.mark.parametrize(
    ("gateways", "missing"),
    [
        pytest.param((OWN,), [], id="there"),
        pytest.param(("kubeflow-gateway",), [], id="beside-the-route"),
        pytest.param(("mesh",), [], id="sidecars"),
        pytest.param(("b/kubeflow-gateway", "mesh"), ["b/kubeflow-gateway"], id="elsewhere"),
        pytest.param(("other",), ["kubeflow/other"], id="gone"),
    ],
)
def test_gateway_that_a_route_names_and_that_is_not_there(gateways, missing):
    one = route("*", gateways=gateways, space="kubeflow")
    found = list(routes.judge_gateways([one], [GATEWAY]))
    named = [Said.ROUTE_WITHOUT_GATEWAY(gateway=each, routes="kubeflow/iris") for each in missing]
    assert found == (named or [Said.GATEWAYS_EXIST()])


@pytest.mark.parametrize(
    ("names", "served"),
    [
        pytest.param(["*"], [IRIS], id="every host is ours"),
        pytest.param([IRIS], [IRIS], id="by name"),
        pytest.param(["kubeflow.example.com", "*.models.example.com"], [IRIS], id="by a wildcard"),
        pytest.param(["kubeflow.example.com"], ["*"], id="a route for every host"),
        pytest.param(["kubeflow.example.com"], ["*.example.com"], id="a route with a wildcard"),
        pytest.param([IRIS], [INSIDE, IRIS.upper()], id="one of several, in upper case"),
    ],
)
def test_route_at_a_host_of_ours_is_served(names, served):
    found = judged(names, route(*served, gateways=[OWN, LOCAL, "mesh"]))
    assert found == Said.HOSTS_SERVED()


def test_route_on_our_gateway_at_no_host_of_ours_is_named_with_its_hosts():
    assert judged(["kubeflow.example.com"], route(INSIDE, IRIS)) == Said.HOSTS_NOT_SERVED(
        gateway=OWN, routes="alice/iris", hosts=IRIS, namespace="alice", name="iris"
    )


def test_host_to_add_is_one_for_the_outside():
    names = ["iris.alice", IRIS, "iris.alice.svc", INSIDE]
    assert judged(["kubeflow.example.com"], route(*names)).about["hosts"] == IRIS


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(spec=st.dictionaries(st.sampled_from(["hosts", "gateways", "http"]), HOSTILE))
def test_object_of_somebody_hides_no_other(spec):
    odd = {"metadata": {"namespace": "mallory", "name": "odd"}, "spec": spec}
    bad = route(IRIS)
    assert "alice/iris" in judged(["kubeflow.example.com"], odd, bad).about["routes"]


def test_of_thousands_of_routes_a_few_are_named():
    many = [route(IRIS, name=f"r{number:04}") for number in range(5_000)]
    found = judged(["kubeflow.example.com"], *many)
    assert found.about["routes"] == "alice/r0000, alice/r0001, alice/r0002 and 4997 more"
    assert len(found.seen) < 400


LABEL = st.text("ab", min_size=1, max_size=2)
NAME = st.lists(LABEL, min_size=1, max_size=3).map(".".join)
HOST = st.builds(str.__add__, st.sampled_from(["", "*."]), NAME) | st.just("*")


@given(one=HOST, other=HOST, name=NAME)
def test_two_hosts_meet_where_a_name_is_within_both(one, other, name):
    both = [host == name or (host[:1] == "*" and name.endswith(host[1:])) for host in (one, other)]
    assert routes._meet(one, other) == routes._meet(other, one)
    if all(both):
        assert routes._meet(one, other)
