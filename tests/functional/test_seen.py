"""The workload's report about a real Envoy that a real istiod configures."""

import contextlib
import dataclasses
import time
import uuid

import pytest

from integrator_contract import seen
from integrator_contract.seen import Cause
from tests import gateway_client, waiting
from tests.functional import ingress_world, istiod_world
from tests.functional.gateway_looks import look
from tests.functional.ingress_world import DOMAIN, HTTPS, MODEL, OURS, server
from tests.kubernetes_objects import made

HOST = gateway_client.HOST
BOTH = (80, 443)
WHERE = istiod_world.GATEWAY_NAMESPACE


@pytest.fixture
def served(place):
    """A model that is served by HTTP and HTTPS."""
    place.options = {"hosts": HOST, "tls_secret": ingress_world.SECRET}
    place.reconcile()
    place.eventually(302)
    place.eventually(302, tls=HOST)
    see(place, lambda answer: answer.routes)
    return place


def see(place, until, expected=None):
    """Look until an answer is as it should be."""
    return look(expected or place.expected, until, place.admin)


def causes(answer):
    return [each.cause for each in answer.missing]


def about(answer, cause):
    return [dict(each.about) for each in answer.missing if each.cause is cause]


def test_whole_gateway_is_seen_as_it_is_expected(served):
    assert len(served.expected.filters) >= 2
    answer = see(served, lambda answer: answer.routes)
    assert answer == seen.Seen(
        of=served.expected.word(),
        unseen=None,
        pods=1,
        ready=1,
        guarded=BOTH,
        is_open=True,
        routes=3,
    )


@pytest.mark.parametrize(
    ("changes", "hosts", "status"),
    [
        pytest.param({"hosts": ["x1.invalid"]}, (), 404, id="only a random name"),
        pytest.param({"tls": {"httpsRedirect": True}}, (HOST,), 301, id="a redirect"),
    ],
)
def test_port_is_guarded_whatever_its_server_serves(served, changes, hosts, status):
    opened = served.owned("Gateway.networking.istio.io")[0]
    expected = dataclasses.replace(
        served.expected,
        servers=[dataclasses.replace(each, hosts=hosts) for each in served.expected.servers],
    )
    servers = [
        each if "tls" in changes and each["port"]["number"] == 443 else {**each, **changes}
        for each in opened["spec"]["servers"]
    ]
    write(served, opened, servers=servers)
    served.eventually(status)
    see(served, lambda answer: (answer.guarded, answer.missing) == (BOTH, ()), expected)
    write(served, opened)
    served.eventually(302)


def write(place, obj, **spec):
    """Write an object with another specification."""
    metadata = {
        key: obj["metadata"][key] for key in ("name", "namespace", "labels", "annotations")
    }
    place.api.apply({**obj, "metadata": metadata, "spec": {**obj["spec"], **spec}})


@contextlib.contextmanager
def without(place, obj):
    """Delete an object for the time of the block."""
    place.api.delete(obj)
    yield
    place.hook()


def test_filters_that_no_filter_chain_has_are_ignored_by_istiod(served):
    with without(served, served.owned("EnvoyFilter")[0]):
        answer = see(served, lambda answer: answer.unguarded == BOTH)
    assert causes(answer) == [Cause.FILTERS_IGNORED] * 2
    assert (answer.guarded, answer.routes) == ((), 0)


def test_listener_that_waits_for_a_certificate_serves_without_new_filters(served):
    absent = {"mode": "SIMPLE", "credentialName": "absent"}
    bad = ingress_world.gateway("shop", "bad", server(443, ["bad.example.com"], **absent))
    see(served, lambda answer: answer.guarded == BOTH)
    with contextlib.ExitStack() as stack:
        with without(served, served.owned("EnvoyFilter")[0]):
            see(served, lambda answer: answer.unguarded == BOTH)
            stack.enter_context(served.there(bad))
            see(served, lambda answer: Cause.WARMING in causes(answer))
        answer = see(served, lambda answer: answer.guarded == (80,))
    assert answer.unguarded == (443,)
    assert about(answer, Cause.WARMING) == [{"port": "443", "secrets": "absent"}]
    assert about(answer, Cause.FILTERS_MISSING) == [{"port": "443"}]
    see(served, lambda answer: answer.guarded == BOTH)


def test_routes_that_envoy_refuses_to_change_are_named(served):
    with served.there(ingress_world.frozen()):
        served.requests.append(ingress_world.request(4, "kfp", "/more", None))
        served.hook()
        answer = see(served, lambda answer: causes(answer) == [Cause.ROUTES_MISSING])
    assert about(answer, Cause.ROUTES_MISSING) == [
        {"host": HOST, "port": "80", "routes": "3 of 4"}
    ]
    assert answer.routes == 3
    see(served, lambda answer: answer.routes == 4)
    served.requests.pop()


def test_route_of_another_team_that_stops_all_updates_is_named_with_its_fault(served):
    header = {"headers": {"request": {"set": {"x": "%FOO%"}}}}
    bad = ingress_world.virtual_service(
        "shop", "mesh-2", [OURS], ["*"], ingress_world.to(ingress_world.WEB, "/shop/", **header)
    )
    regular = ingress_world.virtual_service(
        "shop", "regular", [OURS], ["*"], ingress_world.to(ingress_world.WEB, "/regular/")
    )
    with served.there(bad, regular):
        served.requests.append(ingress_world.request(4, "kfp", "/more", None))
        served.hook()
        see(served, lambda answer: {*causes(answer)} == {Cause.ROUTES_MISSING})
        # The API server applies a policy some seconds after it is written.
        found = waiting.eventually(
            lambda: [each for each in served.hook() if "breaks tenant-policy" in each]
        )
    assert found
    (said,) = found
    assert said.startswith(
        "blocked: VirtualService shop/mesh-2 breaks tenant-policy; run: kubectl"
    )
    assert "Envoy refuses all routes of a gateway for one with %" in said
    see(served, lambda answer: answer.routes == 4)
    served.requests.pop()


def test_service_that_is_not_exported_to_the_gateway_is_named(served):
    private = {"annotations": {"networking.istio.io/exportTo": "."}}
    served.api.apply(made("v1", "Service", "oidc", MODEL, metadata=private))
    answer = see(served, lambda answer: answer.missing)
    served.api.apply(made("v1", "Service", "oidc", MODEL))
    assert about(answer, Cause.CLUSTER_MISSING) == [{"home": MODEL, "service": "oidc"}]
    see(served, lambda answer: not (answer.unseen or answer.missing))


def test_dns_domain_that_istiod_does_not_use_is_named(served):
    clusters = (f"outbound|80||oidc.{MODEL}.svc.corp.example",)
    expected = dataclasses.replace(served.expected, clusters=clusters)
    answer = see(served, lambda answer: answer.missing, expected)
    assert about(answer, Cause.OTHER_DOMAIN) == [{"domain": DOMAIN}]


@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        pytest.param(
            server(443, [HOST], **HTTPS),
            {"host": HOST, "port": "443", "by": "shop/older"},
            id="host",
        ),
        pytest.param(
            {"port": {"number": 443, "name": "tcp", "protocol": "TCP"}, "hosts": ["*"]},
            {},
            id="protocol",
        ),
    ],
)
def test_server_that_istiod_drops_for_an_older_one_is_named(served, theirs, named):
    opened = served.owned("Gateway.networking.istio.io")[0]
    served.api.delete(opened)
    with served.there(ingress_world.gateway("shop", "older", theirs)):
        # Kubernetes knows the age of an object in whole seconds.
        time.sleep(1.1)
        write(served, opened)
        answer = see(served, lambda answer: answer.guarded == (80,))
    assert about(answer, Cause.SERVER_MISSING) == [{"port": "443", "protocol": "HTTPS"}]
    assert about(answer, Cause.HOST_TAKEN) == [each for each in [named] if each]
    assert answer.unguarded == ()
    see(served, lambda answer: answer.guarded == BOTH)


def test_listener_that_envoy_refuses_is_told_in_its_words(served):
    lua = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
    manager = "envoy.filters.network.http_connection_manager"
    value = f"x-{uuid.uuid4().hex}"
    code = f"function ('{value}'"
    config = {"@type": lua, "default_source_code": {"inline_string": code}}
    patch = {"operation": "INSERT_BEFORE", "value": {"name": "bad", "typed_config": config}}
    where = {"context": "GATEWAY", "listener": {"filterChain": {"filter": {"name": manager}}}}
    spec = {"configPatches": [{"applyTo": "HTTP_FILTER", "match": where, "patch": patch}]}
    kind = ("networking.istio.io/v1alpha3", "EnvoyFilter")
    with served.there(made(*kind, "broken", WHERE, spec)):
        answer = see(served, lambda answer: causes(answer) == [Cause.UPDATE_REFUSED] * 2)
    words = about(answer, Cause.UPDATE_REFUSED)[0]["words"]
    assert "script load error" in words
    # As Envoy would quote a random value of the charm's own filters.
    assert "(not shown)" in words
    assert value not in words
    assert answer.guarded == BOTH
