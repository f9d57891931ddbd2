"""Which routes have no host of ours, and which has a Gateway at which nobody is asked."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import hosts
from istio_integrator.ingress import authorization, gateway, guards, observed

MODEL = "kubeflow"
OWN = "kubeflow/kubeflow-gateway"
KNATIVE = "knative-serving/knative-ingress-gateway"
LOCAL = "knative-serving/knative-local-gateway"
IRIS = "iris.alice.models.example.com"
INSIDE = "iris.alice.svc.cluster.local"
ASKED = authorization.Guard(
    service=authorization.Service(host="oidc.kubeflow.svc.cluster.local", port=80)
)


def neighbour(reference, *served, port=80):
    return observed.Neighbour(reference, (observed.Server(port, served),))


BOTH = (neighbour(KNATIVE, "*"), neighbour(LOCAL, "*", port=8081))


def place(*names, neighbours=BOTH, guard=ASKED, **more):
    target = gateway.Target(
        namespace="istio-ingress",
        selector={"istio": "ingressgateway"},
        service="gateway",
        http_port=80,
        https_port=443,
        hosts=names,
        neighbours=tuple(neighbours),
        **more,
    )
    context = guards.context(
        guard, target, owner="o", model=MODEL, domain="cluster.local", redirects=True
    )
    return hosts.Place.of(target, context, own=OWN)


def route(*names, gateways=(OWN,), space="alice", name="iris"):
    metadata = {"namespace": space, "name": name}
    return {"metadata": metadata, "spec": {"hosts": [*names], "gateways": [*gateways]}}


def said(where, *routes):
    return [each for each in hosts.judge(routes, where) if each.level.value != "✓"]


@pytest.mark.parametrize(
    ("names", "served"),
    [
        pytest.param([], [IRIS], id="every host is ours"),
        pytest.param([IRIS], [IRIS], id="by name"),
        pytest.param(["kubeflow.example.com", "*.models.example.com"], [IRIS], id="by a wildcard"),
        pytest.param(["kubeflow.example.com"], ["*"], id="a route for every host"),
        pytest.param(["kubeflow.example.com"], ["*.example.com"], id="a route with a wildcard"),
        pytest.param([IRIS], [INSIDE, IRIS.upper()], id="one of several, in upper case"),
    ],
)
def test_route_at_a_host_of_ours_is_served(names, served):
    assert said(place(*names), route(*served, gateways=[OWN, LOCAL, "mesh"])) == []


def test_route_on_our_gateway_at_no_host_of_ours_is_named_with_its_hosts():
    (found,) = said(place("kubeflow.example.com"), route(INSIDE, IRIS))
    assert found.level.value == "!"
    assert "alice/iris" in found.seen
    assert IRIS in found.seen
    assert "hosts" in found.seen
    assert found.next == "kubectl -n alice get virtualservice iris -o yaml"


def test_host_to_add_is_one_for_the_outside():
    names = ["iris.alice", IRIS, "iris.alice.svc", INSIDE]
    (found,) = said(place("kubeflow.example.com"), route(*names))
    assert f"add {IRIS} to" in found.seen


@pytest.mark.parametrize(
    ("where", "names"),
    [
        pytest.param(place("kubeflow.example.com"), [IRIS], id="not a host of ours"),
        pytest.param(
            place("kubeflow.example.com", "*.models.example.com", only_https=True),
            [IRIS],
            id="within a wildcard of ours, in plain HTTP",
        ),
        pytest.param(place("kubeflow.example.com"), ["*"], id="any host"),
        pytest.param(
            place("kubeflow.example.com", neighbours=[neighbour(KNATIVE, "alice/*", port=443)]),
            [IRIS],
            id="HTTPS of a Gateway for routes of that namespace",
        ),
        pytest.param(
            place(neighbours=[neighbour(KNATIVE, "*", port=443)]),
            [IRIS],
            id="HTTPS that is spared where all else is asked about",
        ),
    ],
)
def test_route_that_is_served_unasked_is_named_with_the_gateway(where, names):
    (found,) = said(where, route(INSIDE, *names, gateways=[LOCAL, KNATIVE]))
    assert found.level.value == "!"
    assert "alice/iris" in found.seen
    assert KNATIVE in found.seen
    assert "are not authenticated" in found.seen


@pytest.mark.parametrize(
    ("where", "names"),
    [
        pytest.param(place(), [IRIS], id="all is asked about without hosts"),
        pytest.param(place(is_own=True), [IRIS], id="a workload of our own"),
        pytest.param(
            place("*.models.example.com"), [IRIS], id="within a wildcard that is not redirected"
        ),
        pytest.param(place("kubeflow.example.com"), ["kubeflow.example.com"], id="a host of ours"),
        pytest.param(
            place("kubeflow.example.com", neighbours=BOTH[1:]), [IRIS], id="a port of no Service"
        ),
        pytest.param(
            place("kubeflow.example.com", neighbours=[neighbour(KNATIVE, "bob/*")]),
            [IRIS],
            id="for routes of another namespace",
        ),
        pytest.param(
            place("kubeflow.example.com", neighbours=[neighbour(KNATIVE, "shop.example.com")]),
            [IRIS],
            id="a host that is not the Gateway's",
        ),
    ],
)
def test_route_that_is_asked_about_or_not_served_is_not_named(where, names):
    assert said(where, route(*names, gateways=[LOCAL, KNATIVE])) == []


def test_nothing_to_say_is_said():
    (found,) = hosts.judge([route(IRIS)], place())
    assert found.level.value == "✓"


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(spec=st.dictionaries(st.sampled_from(["hosts", "gateways", "http"]), HOSTILE))
def test_object_of_somebody_hides_no_other(spec):
    odd = {"metadata": {"namespace": "mallory", "name": "odd"}, "spec": spec}
    bad = route(IRIS, gateways=[KNATIVE])
    found = said(place("kubeflow.example.com"), odd, bad)
    assert any("alice/iris" in each.seen for each in found)


def test_of_thousands_of_routes_a_few_are_named():
    many = [route(IRIS, name=f"r{number:04}") for number in range(5_000)]
    (found,) = said(place("kubeflow.example.com"), *many)
    assert "alice/r0000" in found.seen
    assert "4997 more" in found.seen
    assert len(found.seen) < 400


LABEL = st.text("ab", min_size=1, max_size=2)
NAME = st.lists(LABEL, min_size=1, max_size=3).map(".".join)
HOST = st.builds(str.__add__, st.sampled_from(["", "*."]), NAME) | st.just("*")


@given(one=HOST, other=HOST, name=NAME)
def test_two_hosts_meet_where_a_name_is_within_both(one, other, name):
    both = [host == name or (host[:1] == "*" and name.endswith(host[1:])) for host in (one, other)]
    assert hosts._meet(one, other) == hosts._meet(other, one)
    if all(both):
        assert hosts._meet(one, other)


@given(
    served=st.lists(HOST, max_size=4),
    asked=st.lists(NAME, max_size=3),
    name=HOST,
    one=NAME,
)
def test_route_is_unasked_where_the_gateway_serves_a_name_of_it_of_which_nobody_is(
    served, asked, name, one
):
    found = hosts._Hosts.of(served, asked).meet(name)
    both = hosts._meet(name, one) and any(hosts._meet(host, one) for host in served)
    if both and one not in asked:
        assert found
    if found:
        assert any(hosts._meet(name, host) for host in served)
        assert name not in asked


def test_thousands_of_hosts_and_routes_of_a_tenant_are_soon_compared():
    many = [
        observed.Server(80, tuple(f"*.h{n}.s{m}.example" for n in range(256))) for m in range(32)
    ]
    where = place("kubeflow.example.com", neighbours=[observed.Neighbour(KNATIVE, tuple(many))])
    names = [f"n{number}.example.net" for number in range(32)]
    theirs = [route(*names, gateways=[KNATIVE], name=f"r{number}") for number in range(100)]
    before = time.process_time()
    assert said(where, *theirs) == []
    assert time.process_time() - before < 3
