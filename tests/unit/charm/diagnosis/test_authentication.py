"""Whom the gateway's Envoy asks before our routes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import authentication
from istio_integrator.ingress import authorization

SERVICE = authorization.Service(host="oidc.a.svc.cluster.local", port=8080)

OURS = "app-ingress-1"
ASK = "ours.ask"

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


def routes(host, *, everywhere=None, on_host=None, on_route=None):
    virtual_host = {"name": host, "routes": [{"name": ASK}, {"name": OURS}]}
    if on_host is not None:
        virtual_host["typed_per_filter_config"] = {"ours": on_host}
    if on_route is not None:
        virtual_host["routes"][0]["typed_per_filter_config"] = {"ours": on_route}
    configuration = {"name": "http.8080", "virtual_hosts": [virtual_host]}
    if everywhere is not None:
        configuration["typed_per_filter_config"] = {"ours": everywhere}
    return json.dumps({"configs": [{"route_config": configuration}]})


SWITCH = st.one_of(st.none(), st.booleans())


@given(st.booleans(), SWITCH, SWITCH, SWITCH, st.booleans())
def test_the_nearest_switch_decides_whether_a_filter_is_in_force(
    default, everywhere, host, route, wrapped
):
    def setting(enabled):
        if enabled is None:
            return None
        inner = {"disabled": True} if not enabled else {"check_settings": {}}
        return {"config": inner} if wrapped else inner

    (found,) = authentication.virtual_hosts(
        listeners(authorizes(**({} if default else {"disabled": True}))),
        routes(
            "*:80",
            everywhere=setting(everywhere),
            on_host=setting(host),
            on_route=setting(route),
        ),
        entry=ASK,
    )
    switches = (route, host, everywhere, default)
    nearest = next((each for each in switches if each is not None), default)
    assert bool(found.asked) is nearest


def judged(hosts, domains=()):
    return list(authentication.judge(hosts, SERVICE, ours=[OURS], domains=domains, show="show"))


def host(name="*:80", routes=(OURS,), asked=(SERVICE.cluster,)):
    return authentication.VirtualHost(name, routes, asked)


@pytest.mark.parametrize(
    ("hosts", "domains", "level", "words"),
    [
        pytest.param([host()], (), "✓", "asks oidc.a.svc.cluster.local:8080", id="asked"),
        pytest.param([host(asked=())], (), "✗", "asks nobody before *:80", id="nobody"),
        pytest.param([host(asked=("x",))], (), "✗", "another than oidc", id="another"),
        pytest.param(
            [host(), host("shop:80", routes=("web",), asked=())],
            (),
            "✓",
            "before *:80",
            id="others-are-not-asked",
        ),
        pytest.param(
            [host("k.io:443", routes=("theirs",), asked=())],
            ("k.io",),
            "✗",
            "nobody before k.io:443",
            id="theirs-at-our-host",
        ),
        pytest.param([], (), "✓", "no route is served yet", id="no-route"),
    ],
)
def test_gateway_is_judged_by_whom_it_asks_before_our_routes(hosts, domains, level, words):
    found = judged(hosts, domains)
    assert (found[0].level.value, words in found[0].seen) == (level, True)


def test_configuration_that_can_not_be_read_has_no_virtual_hosts():
    assert authentication.virtual_hosts("no JSON", "{}", entry=ASK) == []
