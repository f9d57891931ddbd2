import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.ingress import authorization, gateway, guards
from istio_integrator.kube import manifests

SERVICE = authorization.Service(
    host="oidc.kubeflow.svc.cluster.local",
    port=8080,
    request_headers=("cookie", "x-auth-token"),
    response_headers=("kubeflow-userid",),
)
TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gw",
    http_port=80,
    https_port=443,
)


def context(guard, target=TARGET, hosts=("kf.example",), unasked=(), redirects=False, **how):
    return guards.context(
        guard,
        dataclasses.replace(target, hosts=tuple(hosts), **how),
        owner="kubeflow.istio-integrator",
        model="kubeflow",
        domain="cluster.local",
        redirects=redirects,
        unasked=unasked,
    )


def rendered(*given, **how):
    (found,) = manifests.render(guards.FOLDER, context(*given, **how))
    return found


def patches(envoy_filter, kind):
    return [patch for patch in envoy_filter["spec"]["configPatches"] if patch["applyTo"] == kind]


def filters(envoy_filter):
    return [
        patch["patch"]["value"]
        for patch in envoy_filter["spec"]["configPatches"]
        if patch["applyTo"] == "HTTP_FILTER"
    ]


def test_identity_that_a_service_does_not_say_is_taken_away_and_never_kept():
    service = dataclasses.replace(SERVICE, response_headers=("x-user",))
    assert service.identity_headers == ("x-user", "kubeflow-userid", "kubeflow-groups")
    strip, authorize = filters(rendered(authorization.Guard(service=service)))
    answer = authorize["typed_config"]["http_service"]["authorization_response"]
    kept = [one["exact"] for one in answer["dynamic_metadata_from_headers"]["patterns"]]
    assert kept == ["x-user"]
    for header in service.identity_headers:
        assert f"identity[ [[{header}]] ] = true" in json.dumps(strip)
    assert {"kubeflow-userid", "kubeflow-groups", "x-user"} <= set(
        leaving(response_headers=("x-user",))
    )


def test_identity_headers_are_those_that_only_the_service_says():
    service = authorization.Service(
        host="x",
        port=1,
        request_headers=("x-auth-token",),
        response_headers=("kubeflow-userid", "x-auth-token", "authorization"),
    )
    assert service.identity_headers == ("kubeflow-userid", "kubeflow-groups")


GUARD = authorization.Guard(service=SERVICE)
WILDCARD = ("*.kf.example", "kf.example")


def test_shared_gateway_has_the_filters_switched_on_by_its_routes():
    envoy_filter = rendered(GUARD)
    assert [one["disabled"] for one in filters(envoy_filter)] == [True, True]
    hosts = [
        patch["match"]["routeConfiguration"] for patch in patches(envoy_filter, "VIRTUAL_HOST")
    ]
    assert hosts == [{"gateway": "kubeflow/kubeflow-gateway"}]
    everywhere, *_ = patches(envoy_filter, "ROUTE_CONFIGURATION")
    assert everywhere["match"] == {"context": "GATEWAY"}
    names = {one["name"] for one in filters(envoy_filter)}
    for patch in (everywhere, *patches(envoy_filter, "VIRTUAL_HOST")):
        enabled = patch["patch"]["value"]["typed_per_filter_config"]
        assert set(enabled) == names
        assert all("disabled" not in config for config in enabled.values())


def test_filters_are_of_http_alone():
    manager = "envoy.filters.network.http_connection_manager"
    for patch in patches(rendered(GUARD), "HTTP_FILTER"):
        assert patch["match"]["listener"]["filterChain"]["filter"]["name"] == manager


def test_scripts_are_where_envoy_looks_for_them():
    envoy_filter = rendered(GUARD)
    strip, _ = filters(envoy_filter)
    (default,) = strip["typed_config"]["default_source_code"].values()
    (ours,) = patches(envoy_filter, "VIRTUAL_HOST")
    on = ours["patch"]["value"]["typed_per_filter_config"][strip["name"]]["config"]
    assert on["source_code"] == {"inline_string": default}


def script(*given, **how):
    everywhere, *_ = patches(rendered(*given, **how), "ROUTE_CONFIGURATION")
    return json.dumps(everywhere["patch"]["value"])


def test_host_within_a_wildcard_is_told_by_its_ending():
    envoy_filter = rendered(GUARD, TARGET, WILDCARD)
    assert [one["disabled"] for one in filters(envoy_filter)] == [True, True]
    (ours,) = patches(envoy_filter, "VIRTUAL_HOST")
    assert ours["match"]["routeConfiguration"] == {"gateway": "kubeflow/kubeflow-gateway"}
    found = script(GUARD, TARGET, WILDCARD)
    assert "guarded[ [[kf.example]] ] = true" in found
    assert "table.insert(endings, [[.kf.example]])" in found
    assert "endings" not in script(GUARD, TARGET, ("kf.example",))
    assert "endings" not in script(GUARD, TARGET, WILDCARD, is_own=True)


@pytest.mark.parametrize(
    ("only_https", "redirects", "spares"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_others_within_our_wildcard_are_spared_while_ours_is_and_stays_redirected(
    only_https, redirects, spares
):
    how = {"only_https": only_https, "redirects": redirects}
    assert ("x-forwarded-proto" in script(GUARD, TARGET, WILDCARD, **how)) is spares


def leaving(**headers):
    service = dataclasses.replace(SERVICE, **headers)
    return {
        header.name: header.value
        for header in context(authorization.Guard(service=service)).leaving
    }


def test_each_spelling_of_an_identity_leaves_as_the_service_said_it():
    found = leaving()
    known = {"kubeflow-userid", "kubeflow_userid", "kubeflow-groups", "kubeflow_groups"}
    assert set(found) == known
    assert found["kubeflow-userid"] == (
        "%CEL('istio-integrator.kubeflow.istio-integrator' in metadata.filter_metadata"
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
    *_, last = patches(rendered(GUARD), "ROUTE_CONFIGURATION")
    version = re.compile(last["match"]["proxy"]["proxyVersion"])
    taken = ["1.26.0", "1.31.1", "1.31.1-distroless", "1.40.0", "2.0.1"]
    refused = ["1.25.9", "1.9.0", "1.2.26", "unknown", ""]
    assert [one for one in (*taken, *refused) if version.match(one)] == taken


@pytest.mark.parametrize("guard", [authorization.Guard(), GUARD], ids=["closed", "asking"])
def test_everybody_is_asked_about_who_is_not_spared(guard):
    for hosts in ((), ("kf.example",), WILDCARD):
        strip, authorize = filters(rendered(guard, TARGET, hosts))
        asked = authorize["typed_config"]["filter_enabled_metadata"]
        assert asked == {
            "filter": strip["name"],
            "path": [{"key": "spared"}],
            "value": {"bool_match": True},
            "invert": True,
        }


OPEN = "istio-integrator-0123456789abcdef"


def test_nobody_is_asked_about_the_named_routes_and_the_first_filter_stays():
    envoy_filter = rendered(GUARD, unasked=(OPEN,))
    (patch,) = patches(envoy_filter, "HTTP_ROUTE")
    assert patch["match"] == {
        "context": "GATEWAY",
        "routeConfiguration": {"vhost": {"route": {"name": OPEN}}},
    }
    _, authorize = filters(envoy_filter)
    switched = patch["patch"]["value"]["typed_per_filter_config"]
    assert set(switched) == {authorize["name"]}
    assert switched[authorize["name"]]["config"]["disabled"] is True
    assert guards.exempted(envoy_filter) == (OPEN,)


@pytest.mark.parametrize("hosts", [(), ("kf.example",), WILDCARD])
def test_exceptions_change_routes_and_no_filter_whichever_comes_first(hosts):
    without, with_them = (
        rendered(GUARD, TARGET, hosts),
        rendered(GUARD, TARGET, hosts, unasked=(OPEN,)),
    )
    before, after = (one["spec"]["configPatches"] for one in (without, with_them))
    assert [one for one in after if one["applyTo"] != "HTTP_ROUTE"] == before


@given(st.lists(st.text(max_size=40) | st.just(OPEN)))
def test_route_is_told_by_a_name_that_nobody_guesses_or_is_asked_about(names):
    found = context(GUARD, unasked=names).unasked
    assert set(found) <= set(names)
    assert len(set(found)) == len(found)
    assert (OPEN in found) == (OPEN in names)
    assert all(len(name) >= 16 and name.isascii() for name in found)
    assert guards.exempted(rendered(GUARD, unasked=names)) == found


def test_exceptions_are_no_more_than_an_envoyfilter_has_room_for():
    names = [f"{'x' * 240}-{number}" for number in range(5_000)]
    envoy_filter = rendered(GUARD, unasked=names)
    assert guards.exempted(envoy_filter) == tuple(names[: guards.MOST_UNASKED])
    assert len(json.dumps(envoy_filter)) < 100_000


@pytest.mark.parametrize(
    "patch", [None, 5, {}, {"applyTo": "HTTP_ROUTE"}, {"applyTo": "HTTP_ROUTE", "match": []}]
)
def test_filter_that_somebody_changed_names_no_exception(patch):
    assert guards.exempted({"spec": {"configPatches": [patch]}}) == ()
