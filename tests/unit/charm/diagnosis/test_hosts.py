"""Which routes does no Gateway serve."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import routes as checked

OWN = "kubeflow/kubeflow-gateway"
LOCAL = "knative-serving/knative-local-gateway"
IRIS = "iris.alice.models.example.com"
INSIDE = "iris.alice.svc.cluster.local"


def route(*names, gateways=(OWN,), space="alice", name="iris"):
    metadata = {"namespace": space, "name": name}
    return {"metadata": metadata, "spec": {"hosts": [*names], "gateways": [*gateways]}}


def said(served, *routes):
    return [each for each in checked.judge_hosts(routes, OWN, served) if each.level.value != "✓"]


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
    found = list(checked.judge_gateways([one], [GATEWAY]))
    assert [each.level.value for each in found] == (["✗"] if missing else ["✓"])
    assert all(name in found[0].seen for name in missing)


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
    assert said(names, route(*served, gateways=[OWN, LOCAL, "mesh"])) == []


def test_route_on_our_gateway_at_no_host_of_ours_is_named_with_its_hosts():
    (found,) = said(["kubeflow.example.com"], route(INSIDE, IRIS))
    assert found.level.value == "!"
    assert "alice/iris" in found.seen
    assert IRIS in found.seen
    assert "hosts" in found.seen
    assert found.next == "kubectl -n alice get virtualservice iris -o yaml"


def test_host_to_add_is_one_for_the_outside():
    names = ["iris.alice", IRIS, "iris.alice.svc", INSIDE]
    (found,) = said(["kubeflow.example.com"], route(*names))
    assert f"add {IRIS} to" in found.seen


def test_nothing_to_say_is_said():
    (found,) = checked.judge_hosts([route(IRIS)], OWN, ["*"])
    assert found.level.value == "✓"


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(spec=st.dictionaries(st.sampled_from(["hosts", "gateways", "http"]), HOSTILE))
def test_object_of_somebody_hides_no_other(spec):
    odd = {"metadata": {"namespace": "mallory", "name": "odd"}, "spec": spec}
    bad = route(IRIS)
    found = said(["kubeflow.example.com"], odd, bad)
    assert any("alice/iris" in each.seen for each in found)


def test_of_thousands_of_routes_a_few_are_named():
    many = [route(IRIS, name=f"r{number:04}") for number in range(5_000)]
    (found,) = said(["kubeflow.example.com"], *many)
    assert "alice/r0000" in found.seen
    assert "4997 more" in found.seen
    assert len(found.seen) < 400


LABEL = st.text("ab", min_size=1, max_size=2)
NAME = st.lists(LABEL, min_size=1, max_size=3).map(".".join)
HOST = st.builds(str.__add__, st.sampled_from(["", "*."]), NAME) | st.just("*")


@given(one=HOST, other=HOST, name=NAME)
def test_two_hosts_meet_where_a_name_is_within_both(one, other, name):
    both = [host == name or (host[:1] == "*" and name.endswith(host[1:])) for host in (one, other)]
    assert checked._meet(one, other) == checked._meet(other, one)
    if all(both):
        assert checked._meet(one, other)
