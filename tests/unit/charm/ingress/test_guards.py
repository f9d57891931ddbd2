"""The EnvoyFilter that authenticates requests, as far as a gateway is not needed to see it."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.ingress import gateway, record
from istio_integrator.ingress.guard import authentication, envoyfilter
from istio_integrator.kube import manifests
from istio_integrator.messages import Said
from tests.unit.charm.ingress import wishes

SERVICE = authentication.Service(
    host="oidc.kubeflow.svc.cluster.local",
    port=8080,
    request_headers=("cookie", "x-auth-token"),
    response_headers=("kubeflow-userid",),
)
ASKS = authentication.Decision(service=SERVICE)
OPEN = authentication.Decision()
CLOSED = authentication.Decision(problem=Said.NO_AUTHENTICATOR())
TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gw",
    http_port=80,
    https_port=443,
    hosts=("a.example", "*.b.example"),
)
VALUES = record.Values()


def context(decision=ASKS, routes=(), **how):
    return envoyfilter.variables(
        decision,
        dataclasses.replace(TARGET, **how),
        VALUES,
        routes,
        owner="kubeflow.istio-integrator",
        model="kubeflow",
        domain="cluster.local",
    )


def free(*paths):
    return wishes.received(
        1, wishes.route(*(wishes.match(each) for each in paths)), endpoint=wishes.OPEN
    )


def asked(*paths):
    return wishes.received(2, wishes.route(*(wishes.match(each) for each in paths)))


def test_identity_headers_are_those_that_only_the_service_sets():
    service = authentication.Service(
        host="x",
        port=1,
        request_headers=("x-auth-token",),
        response_headers=("kubeflow-userid", "x-auth-token", "authorization"),
    )
    assert service.identity_headers == ("kubeflow-userid", "kubeflow-groups")


def test_named_gateway_is_guarded_at_our_hosts_and_our_own_everywhere():
    assert context()["places"] == [
        {"gateway": "kubeflow/kubeflow-gateway"},
        {"vhost": {"name": "a.example:80"}},
        {"vhost": {"name": "*.b.example:80"}},
    ]
    assert context(is_own=True)["places"] == [{}]


def test_entries_are_for_routes_without_authentication_and_for_others_within_them():
    plan = wishes.plan(free("/dex/", "/login"), asked("/dex/admin", "/dexterity", "/x", "/"))
    entries = [
        (*each.match.values(), each.script) for each in context(routes=plan.routes)["entries"]
    ]
    assert entries == [
        ("/dex/admin", "ask"),
        ("/login", "pass"),
        ("/dex", "pass"),
        ("/", "ask"),
    ]


def test_size_does_not_depend_on_the_number_of_authenticated_routes():
    few, many = (
        wishes.plan(free("/dex"), asked(*(f"/app-{number}" for number in range(count))))
        for count in (1, 16)
    )
    rendered = [
        manifests.render(envoyfilter.FOLDER, context(routes=one.routes)) for one in (few, many)
    ]
    assert rendered[0] == rendered[1]


@pytest.mark.parametrize(
    ("decision", "filters"),
    [
        (ASKS, ["strip", "guard", "authorize", "mark"]),
        (OPEN, ["strip", "guard", "mark"]),
        (CLOSED, ["guard"]),
    ],
    ids=["service", "no authentication", "closed"],
)
def test_closed_guard_marks_nothing(decision, filters):
    plan = wishes.plan(free("/dex"), asked("/kfp"))
    (found,) = manifests.render(envoyfilter.FOLDER, context(decision, plan.routes))
    patches = [(each["applyTo"], each["patch"]) for each in found["spec"]["configPatches"]]
    names = [one["value"]["name"] for kind, one in patches if kind == "HTTP_FILTER"]
    assert [name.rpartition(".")[2] for name in names] == filters
    enabled = {
        name.rpartition(".")[2]
        for kind, one in patches
        if kind == "HTTP_ROUTE"
        for name in one["value"].get("typed_per_filter_config", ())
    }
    assert enabled == set(filters) - {"guard"}


def test_access_narrows_with_whatever_is_granted_no_longer():
    routes = wishes.plan(free("/dex"), asked("/kfp")).routes
    before = envoyfilter.access(ASKS, TARGET, routes)
    other = dataclasses.replace(SERVICE, port=81)
    for after in (
        envoyfilter.access(authentication.Decision(service=other), TARGET, routes),
        envoyfilter.access(ASKS, dataclasses.replace(TARGET, hosts=("a.example",)), routes),
        envoyfilter.access(ASKS, dataclasses.replace(TARGET, selector={"x": "y"}), routes),
        envoyfilter.access(ASKS, TARGET, wishes.plan(free("/dex")).routes),
        envoyfilter.access(ASKS, TARGET, wishes.plan(asked("/dex", "/kfp")).routes),
        envoyfilter.access(OPEN, TARGET, routes),
        envoyfilter.access(CLOSED, TARGET, routes),
    ):
        assert not before <= after
    assert not envoyfilter.access(OPEN, TARGET, routes) <= before
    more = wishes.plan(free("/dex"), asked("/kfp", "/more")).routes
    assert before <= envoyfilter.access(ASKS, TARGET, more)


def leaving(**headers):
    service = dataclasses.replace(SERVICE, **headers)
    return {
        header.name: header.value
        for header in context(authentication.Decision(service=service))["leaving"]
    }


def test_each_spelling_of_an_identity_leaves_as_the_service_said_it():
    found = leaving()
    known = {"kubeflow-userid", "kubeflow_userid", "kubeflow-groups", "kubeflow_groups"}
    assert set(found) == known
    assert found["kubeflow-userid"] == (
        f"%CEL('{VALUES.metadata}' in metadata.filter_metadata"
        " ? metadata.filter_metadata['envoy.filters.http.ext_authz']['kubeflow-userid']"
        " : xds.cluster_name.endsWith('.kubeflow.svc.cluster.local') ? ''"
        " : request.headers['kubeflow-userid'])%"
    )
    four = leaving(response_headers=("x-goog-authenticated-user-email",)).keys() - known
    assert len(four) == 16
    assert {name.replace("_", "-") for name in four} == {"x-goog-authenticated-user-email"}


def test_name_of_many_dashes_costs_two_spellings():
    name = "-".join("x" * 60)
    found = {one for one in leaving(response_headers=(name,)) if one.startswith("x")}
    assert found == {name, name.replace("-", "_")}


@given(st.from_regex(r"[!#$%&'*+.^_`|~0-9a-z-]+", fullmatch=True).filter(lambda t: len(t) < 40))
def test_no_name_of_a_header_ends_the_expression_that_it_is_in(name):
    for value in leaving(response_headers=(name,)).values():
        assert value.count("%") == 2
        assert value.count("'") == 12


def test_old_proxies_are_not_given_what_they_would_refuse_their_routes_for():
    (found,) = manifests.render(envoyfilter.FOLDER, context())
    *_, last = found["spec"]["configPatches"]
    version = re.compile(last["match"]["proxy"]["proxyVersion"])
    taken = ["1.26.0", "1.31.1", "1.31.1-distroless", "1.40.0", "2.0.1"]
    refused = ["1.25.9", "1.9.0", "1.2.26", "unknown", ""]
    assert [one for one in (*taken, *refused) if version.match(one)] == taken
