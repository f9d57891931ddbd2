"""The workload's report about a real Envoy that a real istiod configures."""

import contextlib
import dataclasses
import time
import uuid

import pytest

from integrator_contract import seen
from integrator_contract.seen import Cause
from istio_integrator.messages import Template
from tests import echo, gateway_client, rights, waiting
from tests.functional import ingress_world, istiod_world
from tests.functional.gateway_looks import look
from tests.functional.ingress_world import DOMAIN, HTTPS, MODEL, OURS, server
from tests.kubernetes_objects import made
from tests.unit.cases import cases

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
    return look(expected or place.expected, until, place.admin, place.istiod)


def causes(answer):
    return [each.cause for each in answer.missing]


def about(answer, cause):
    found = (dataclasses.asdict(each) for each in answer.missing if each.cause is cause)
    return [
        {key: str(value) for key, value in each.items() if value and key != "cause"}
        for each in found
    ]


def test_whole_gateway_is_seen_as_it_is_expected(served):
    assert len(served.expected.filters) >= 2
    answer = see(served, lambda answer: answer.routes)
    assert answer == seen.EnvoyState(
        of=served.expected.digest(),
        unseen=None,
        pods=1,
        ready=1,
        guarded=BOTH,
        is_open=True,
        routes=3,
    )


@cases(
    ("changes", "hosts", "status"),
    only_a_random_name=({"hosts": ["x1.invalid"]}, (), 404),
    a_redirect=({"tls": {"httpsRedirect": True}}, (HOST,), 301),
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
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    metadata = {key: obj["metadata"][key] for key in kept}
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
        # Routes are missing at both ports from the first look on. A moment later Envoy rejects
        # those of one port, and takes those of the other.
        answer = see(served, lambda answer: answer.words and len(answer.missing) == 1)
    assert causes(answer) == [Cause.ROUTES_MISSING]
    assert about(answer, Cause.ROUTES_MISSING) == [
        {"host": HOST, "port": "80", "routes": "3 of 4"}
    ]
    assert "invalid escape sequence" in answer.words
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


@cases(
    ("theirs", "named"),
    host=(server(443, [HOST], **HTTPS), {"host": HOST, "port": "443", "by": "shop/older"}),
    protocol=({"port": {"number": 443, "name": "tcp", "protocol": "TCP"}, "hosts": ["*"]}, {}),
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


SECOND = "second.example.com"
USER = {"Cookie": echo.COOKIE}


@pytest.fixture
def second(served, request):
    """Another model that wants the same host, and one of its own."""
    # A namespace takes long to go.
    name = f"kf-{abs(hash(request.node.name))}"
    with served.there(ingress_world.units_of(MODEL)), ingress_world.beside(served, name) as found:
        found.options = {"hosts": f"{HOST},{SECOND}"}
        yield found


def guards(place):
    return [each["metadata"]["name"] for each in place.api.list("EnvoyFilter", WHERE)]


def reaches(place, path, host=HOST):
    """Return what strangers and users get from a model's application."""
    place.application.clear()
    answers = place.status(path, host=host), place.status(path, host=host, **USER)
    return (*answers, len(place.application))


def test_host_of_two_models_stays_with_the_earlier_and_the_later_serves_its_others(served, second):
    said = second.reconcile()
    assert any(f"{MODEL}/{rights.APPLICATION} has {HOST} at" in each for each in said), [*said]
    second.eventually(200, "/mlflow/x", host=SECOND, **USER)
    assert reaches(second, "/mlflow/x", SECOND) == (302, 200, 1)
    assert reaches(served, "/kfp/x") == (302, 200, 1)
    assert any("3 routes served" in each for each in served.reconcile())
    # The earlier does not take the later one's host either.
    served.options = {**served.options, "hosts": f"{HOST},{SECOND}"}
    said = served.reconcile()
    assert any(f"{second.model}/{rights.APPLICATION} has {SECOND} at" in each for each in said)
    assert reaches(second, "/mlflow/x", SECOND) == (302, 200, 1)
    served.options = {**served.options, "hosts": HOST}
    # Nothing else is left to the later, which then writes nothing.
    second.options = {"hosts": HOST}
    said = second.reconcile()
    assert any(f"{MODEL}/{rights.APPLICATION} has {HOST} at" in each for each in said), said
    kinds = ("EnvoyFilter", "Gateway.networking.istio.io", "VirtualService")
    assert second.owned(*kinds) == []
    served.remove()
    second.reconcile()
    second.eventually(200, "/mlflow/x", **USER)


def test_two_guards_at_a_host_are_seen_and_the_later_goes(served, second):
    """Two hooks at once do not see each other's EnvoyFilter."""
    second.options = {"hosts": SECOND}
    second.reconcile()
    second.eventually(200, "/mlflow/x", host=SECOND, **USER)
    (guard,) = served.owned("EnvoyFilter")
    served.api.delete(guard)
    second.options = {"hosts": HOST}
    second.reconcile()
    later = second.owned("EnvoyFilter")[0]
    served.api.delete(later)
    served.reconcile()
    time.sleep(1.1)
    write(served, later)
    for place, other in ((served, second), (second, served)):
        answer = see(place, lambda answer: Cause.HOST_SHARED in causes(answer))
        assert answer.routes == 0
        by = f"{other.model}.{rights.APPLICATION}"
        assert about(answer, Cause.HOST_SHARED)[0] == {"host": HOST, "port": "80", "by": by}
    for _ in range(2):
        second.hook()
        served.hook()
    assert guards(served) == [guard["metadata"]["name"]]
    served.eventually(200, **USER)
    see(served, lambda answer: answer.routes == 3 and not answer.missing)


def test_guard_that_a_removed_model_left_is_named_with_its_command(served, second):
    second.options = {"hosts": SECOND}
    second.reconcile()
    (left,) = second.owned("EnvoyFilter")
    served.api.delete(made("apps/v1", "StatefulSet", rights.APPLICATION, second.model))
    served.options = {**served.options, "hosts": f"{HOST},{SECOND}"}
    said = served.reconcile()
    command = f"kubectl -n {WHERE} delete envoyfilter {left['metadata']['name']}"
    (row,) = (
        each
        for each in served.diagnosed()
        if each["message"] == Template.HOSTS_OF_REMOVED_OWNER.name
    )
    assert row["next"] == command
    assert reaches(served, "/kfp/x") == (302, 200, 1), said
    served.api.delete(left)
    served.reconcile()
    served.eventually(302, "/kfp/x", host=SECOND)
    served.options = {**served.options, "hosts": HOST}


@pytest.mark.long
def test_host_opens_beside_routes_that_are_too_large_to_read(served, monkeypatch):
    """The VirtualServices of a tenant, which Envoy shows once for each port of the Gateway."""
    large = [
        ingress_world.virtual_service(
            *("shop", f"large-{number}", [OURS], ["*"]),
            *(
                ingress_world.to(ingress_world.WEB, f"/notebook/shop/{entry}-{'x' * 16_000}/")
                for entry in range(60 - number % 2)
            ),
        )
        for number in range(20)
    ]
    with served.there(*large):
        answer = see(served, lambda answer: answer.missing)
        # On a busy machine Envoy does not answer in time.
        assert {*causes(answer)} < {Cause.ROUTES_UNREAD, Cause.ROUTES_UNANSWERED}
        assert (answer.guarded, answer.unguarded, answer.routes) == (BOTH, (), 0)
        served.options = {**served.options, "hosts": f"{HOST},{SECOND}"}
        served.reconcile()
        served.eventually(200, "/kfp/x", host=SECOND, **USER)
        assert served.asked_once(host=SECOND).status == 302
        unread = (seen.MissingPart(cause=Cause.ROUTES_UNREAD),)
        late = dataclasses.replace(served.look(), is_late=True, missing=unread)
        monkeypatch.setattr(served, "look", lambda: late)
        said = served.hook()
        assert [each for each in said if "the largest: shop/large-" in each], [*said]
    served.options = {**served.options, "hosts": HOST}


def test_hosts_with_equal_routes_are_guarded_from_the_first_look(served):
    """Istiod gives them one virtual host, which has the name of the first."""
    more = [f"{letter}.example.com" for letter in "azm"]
    served.options = {**served.options, "hosts": ",".join((HOST, *more))}
    answers = []
    for _ in range(4):
        served.hook()
        answers.append(look(served.expected, lambda _: False, served.admin, seconds=3))
    assert not any(Cause.HOST_TAKEN in causes(each) for each in answers)
    assert (answers[-1].routes, answers[-1].unguarded) == (3, ())
    served.options = {**served.options, "hosts": HOST}


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
