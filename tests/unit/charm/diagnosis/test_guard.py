"""Whom the gateway's Envoy asks, and what the one who is asked stands on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import authentication
import streams
from diagnosis import guard

SERVICE = authentication.Service(host="oidc.a.svc.cluster.local", port=8080)
ASKED = authentication.Decision(guard=authentication.Guard(service=SERVICE))
CLOSED = authentication.Decision(guard=authentication.Guard(), blocked="ingress is closed: why")
OPEN = authentication.Decision()
OURS = "app-ingress-1"
TYPE = "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"


def listeners(*filters):
    manager = {"rds": {"route_config_name": "http.8080"}, "http_filters": list(filters)}
    network = {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": manager,
    }
    listener = {"filter_chains": [{"filters": [network]}]}
    return json.dumps({"configs": [{"active_state": {"listener": listener}}]})


def authorizes(name="ours", cluster=SERVICE.cluster, **fields):
    server = {"server_uri": {"cluster": cluster}}
    return {"name": name, "typed_config": {"@type": TYPE, "http_service": server}, **fields}


def routes(host, *, on_host=None, on_route=None, name=OURS):
    virtual_host = {"name": host, "routes": [{"name": name}]}
    if on_host is not None:
        virtual_host["typed_per_filter_config"] = {"ours": on_host}
    if on_route is not None:
        virtual_host["routes"][0]["typed_per_filter_config"] = {"ours": on_route}
    configuration = {"name": "http.8080", "virtual_hosts": [virtual_host]}
    return json.dumps({"configs": [{"route_config": configuration}]})


SWITCH = st.one_of(st.none(), st.booleans())


@given(st.booleans(), SWITCH, SWITCH, st.booleans())
def test_the_nearest_switch_decides_whether_a_filter_is_in_force(default, host, route, wrapped):
    def setting(enabled):
        if enabled is None:
            return None
        inner = {"disabled": True} if not enabled else {"check_settings": {}}
        return {"config": inner} if wrapped else inner

    (found,) = guard.virtual_hosts(
        listeners(authorizes(**({} if default else {"disabled": True}))),
        routes("*:80", on_host=setting(host), on_route=setting(route)),
    )
    nearest = next((each for each in (route, host, default) if each is not None), default)
    assert bool(found.asked) is nearest


def judged(hosts, decision=ASKED, domains=()):
    return list(
        guard.in_force(
            hosts, decision, ours=[OURS], domains=domains, application="app", look="look"
        )
    )


def host(name="*:80", routes=(OURS,), asked=(SERVICE.cluster,)):
    return guard.VirtualHost(name, routes, asked)


@pytest.mark.parametrize(
    ("hosts", "decision", "domains", "level", "words"),
    [
        pytest.param([host()], ASKED, (), "✓", "asks oidc.a.svc.cluster.local:8080", id="asked"),
        pytest.param([host(asked=())], ASKED, (), "✗", "asks nobody before *:80", id="nobody"),
        pytest.param([host(asked=("x",))], ASKED, (), "✗", "another than oidc", id="another"),
        pytest.param(
            [host(), host("shop:80", routes=("web",), asked=())],
            ASKED,
            (),
            "✓",
            "before *:80",
            id="others-are-not-asked",
        ),
        pytest.param(
            [host("k.io:443", routes=("theirs",), asked=())],
            ASKED,
            ("k.io",),
            "✗",
            "nobody before k.io:443",
            id="theirs-at-our-host",
        ),
        pytest.param([], ASKED, (), "✓", "no route is served yet", id="no-route"),
        pytest.param([host()], CLOSED, (), "✗", "closed, but *:80 serves", id="not-closed"),
        pytest.param([], CLOSED, (), "✗", "ingress is closed", id="closed"),
        pytest.param([host(asked=())], OPEN, (), "!", "everybody is let in", id="open"),
    ],
)
def test_gateway_is_judged_by_whom_it_asks_before_our_routes(
    hosts, decision, domains, level, words
):
    found = judged(hosts, decision, domains)
    assert (found[0].level.value, words in found[0].seen) == (level, True)


def test_configuration_that_can_not_be_read_has_no_virtual_hosts():
    assert guard.virtual_hosts("no JSON", "{}") == []


def test_issuer_is_looked_for_below_the_login_page_the_longest_path_first():
    assert guard.issuers("https://id.io/realms/k/protocol/auth?x=1") == [
        "https://id.io/realms/k/protocol/.well-known/openid-configuration",
        "https://id.io/realms/k/.well-known/openid-configuration",
        "https://id.io/realms/.well-known/openid-configuration",
        "https://id.io/.well-known/openid-configuration",
    ]
    assert guard.issuers("/dex/auth") == []


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=4), st.integers(0, 4))
def test_whatever_issuer_has_its_login_page_below_it_is_among_those_asked(steps, depth):
    login = "/".join(["https://id.io", *steps, "login"])
    issuer = "/".join(["https://id.io", *steps[:depth]])
    assert f"{issuer}/.well-known/openid-configuration" in guard.issuers(login)


DOCUMENT = streams.Response(200, {}, '{"issuer": "https://id.io"}')
REDIRECT = streams.Response(302, {"location": "https://id.io/auth"}, "")


def issuer(answer, *, own=True):
    return guard.Issuer(url="https://id.io/x", answer=answer, is_own_view=own)


@pytest.mark.parametrize(
    ("answer", "asked", "level", "words"),
    [
        pytest.param("refused", [], "✗", "does not answer: refused", id="silent"),
        pytest.param(streams.Response(503, {}, ""), [], "✗", "answers 503", id="broken"),
        pytest.param(streams.Response(403, {}, ""), [], "✓", "answers 403", id="no-provider"),
        pytest.param(REDIRECT, [issuer(DOCUMENT)], "✓", "https://id.io/x is there", id="there"),
        pytest.param(
            REDIRECT,
            [issuer(streams.Response(404, {}, "")), issuer(DOCUMENT)],
            "✓",
            "is there",
            id="a-shorter-path",
        ),
        pytest.param(REDIRECT, [issuer("timed out")], "✗", "does not reach", id="away"),
        pytest.param(
            REDIRECT, [issuer(streams.Response(200, {}, "hello"))], "✗", "answers 200", id="page"
        ),
        pytest.param(REDIRECT, [issuer("refused", own=False)], "!", "sends users", id="our-view"),
    ],
)
def test_authorization_service_is_judged_by_its_answer_and_its_provider(
    answer, asked, level, words
):
    (found,) = guard.authservice("oidc:8080", answer, asked, look="look")
    assert (found.level.value, words in found.seen) == (level, True)
