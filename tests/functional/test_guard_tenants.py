"""Objects by which a tenant attacks the guard of a gateway workload, in a real Envoy."""

import contextlib
import itertools
import json
import uuid
from typing import Any

import pytest

from testbed import loopback
from tests import echo, forged_requests, gateway_client, waiting
from tests.functional import ingress_world, istiod_world, test_tenant_policy
from tests.functional.ingress_world import (
    COMPLETE,
    DOMAIN,
    HTTPS,
    MODEL,
    NETWORKING,
    OURS,
    WEB,
    gateway,
    lead,
    server,
    service,
    to,
    virtual_service,
)
from tests.gateway_client import HOST, TENANT
from tests.kubernetes_objects import made, namespace_of

COOKIE = echo.COOKIE
CLAIM = "admin"
"""A user that the authorization service never names."""
CLAIMED = {"kubeflow-userid": CLAIM}
WHO = ({}, {"Cookie": COOKIE})
SPACE = "mallory"
EVIL = "evil.example.com"
THIRD = "third.example.com"
"""The host of another team's route on the model's Gateway."""
OIDC, KFP = (f"{name}.{MODEL}.svc.{DOMAIN}" for name in ("oidc", "kfp"))
MINE = f"web.{SPACE}.svc.{DOMAIN}"
OWN = ingress_world.OWN_LABELS
GUARDED = ("/kfp/x", "/notebook/x")
"""Paths of our host that need authentication; the second one is of a neighbour's route."""


def entry(name, host, port, **more):
    """A ServiceEntry of the tenant's, whose endpoint is a server on this machine."""
    spec = {
        "hosts": [host],
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "location": "MESH_INTERNAL",
        "resolution": "STATIC",
        "exportTo": ["*"],
        "endpoints": [{"address": istiod_world.own_address(), "ports": {"http": port}}],
        **more,
    }
    return made(NETWORKING, "ServiceEntry", name, SPACE, spec)


def destination(name, host, **policy):
    spec = {"host": host, "exportTo": ["*"], "trafficPolicy": policy}
    return made(NETWORKING, "DestinationRule", name, SPACE, spec)


def answering(name, **more):
    """An EnvoyFilter that answers every request."""
    lua = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
    code = 'function envoy_on_request(handle) handle:respond({[":status"] = "200"}, "x") end'
    config = {"@type": lua, "default_source_code": {"inline_string": code}}
    value = {"name": "evil", "typed_config": config}
    patch = {
        "applyTo": "HTTP_FILTER",
        "match": {"context": "GATEWAY"},
        "patch": {"operation": "INSERT_FIRST", "value": value},
    }
    spec = {"configPatches": [patch], "priority": -10, **more}
    return made("networking.istio.io/v1alpha3", "EnvoyFilter", name, SPACE, spec)


SELECTED = {"matchLabels": istiod_world.LABELS}
ALLOWED = {"selector": SELECTED, "action": "ALLOW", "rules": [{}]}
LIMITS = {
    "connectionPool": {"tcp": {"maxConnections": 1}, "http": {"maxRequestsPerConnection": 1}},
    "outlierDetection": {"consecutive5xxErrors": 1, "baseEjectionTime": "1h"},
}
TLS = {"mode": "SIMPLE", "sni": EVIL}
OUTSIDE = {"resolution": "DNS", "location": "MESH_EXTERNAL"}
LEADS = {
    "ServiceEntry of the authorization service": lambda its: entry("oidc", OIDC, its.server_port),
    "external ServiceEntry of it": lambda its: entry("external", OIDC, its.server_port, **OUTSIDE),
    "ServiceEntry of an application": lambda its: entry("kfp", KFP, its.server_port),
    "ServiceEntry of all hosts": lambda its: entry("all", "*.cluster.local", its.server_port),
    "ServiceEntry of its address": lambda its: entry(
        "address", "else.example.com", its.server_port, addresses=[its.address]
    ),
    "DestinationRule of the authorization service": lambda _: destination("oidc", OIDC, tls=TLS),
    "DestinationRule of an application": lambda _: destination("kfp", KFP, tls=TLS),
    "DestinationRule that limits": lambda _: destination("limits", KFP, **LIMITS),
    "route within the mesh to the authorization service": lambda _: virtual_service(
        SPACE, "mesh-oidc", ["mesh"], [OIDC], to(MINE)
    ),
    "route within the mesh to an application": lambda _: virtual_service(
        SPACE, "mesh-kfp", ["mesh"], [KFP], to(MINE)
    ),
    "EnvoyFilter": lambda _: answering("all"),
    "EnvoyFilter of the workload": lambda _: answering(
        "selected", workloadSelector={"labels": istiod_world.LABELS}
    ),
    "AuthorizationPolicy that allows all": lambda _: made(
        "security.istio.io/v1", "AuthorizationPolicy", "allow", SPACE, ALLOWED
    ),
    "route at a path of ours": lambda _: virtual_service(
        SPACE, "ours", [OURS], [HOST], to(MINE, "/kfp/")
    ),
    "route at a path of ours of every host": lambda _: virtual_service(
        SPACE, "every", [OURS], ["*"], to(MINE, "/kfp/")
    ),
}
"""Objects that would lead requests to the tenant's server."""


def claiming(*hosts, **tls):
    """The tenant's Gateway on the shared workload."""
    return gateway(SPACE, "attack", server(80, hosts, **tls))


GATEWAYS = {
    "of every host": claiming("*"),
    "of our host": claiming(f"*/{HOST}"),
    "without hosts": claiming(),
    "that redirects all": claiming("*", httpsRedirect=True),
    "of our host in capitals": claiming(HOST.upper()),
    "of a wildcard": claiming("*.example.com"),
    "of 4,000 hosts": claiming(*(f"h{number}.mallory.example" for number in range(4000))),
}
TAKERS = {
    "redirects": [claiming(HOST, httpsRedirect=True)],
    "routes": [
        claiming(HOST, "*"),
        *(
            virtual_service(SPACE, name, ["attack"], [host], to(MINE, "/own/"))
            for name, host in (("ours", HOST), ("every", "*"))
        ),
    ],
}
"""Hosts that a tenant can take over on a shared workload, because Istio allows it."""


def rows(table, *quick):
    """Run a test for each row; all but the quick ones are for `make test-all`."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.long) for name in table]


@pytest.fixture(scope="module")
def evil(place):
    """A server of the tenant's, behind a Service in the tenant's namespace."""
    with echo.serving(echo.Application) as server:
        found: Any = server
        there = (namespace_of(SPACE), *service(SPACE, "web", found.server_port))
        with place.there(*there):
            found.address = place.api.get("Service", "oidc", MODEL)["spec"]["clusterIP"]
            yield found


@pytest.fixture
def guarded(place, evil):
    """The model behind its guard at a named gateway, with a neighbour's route on our Gateway."""
    place.options, place.auths = {"hosts": HOST}, [COMPLETE]
    place.reconcile()
    with place.there(ingress_world.notebook()):
        for path in GUARDED:
            place.eventually(200, path, Cookie=COOKIE)
        evil.asked.clear()
        yield place


def wait_until_pushed(place):
    """Wait until the gateway has got what was written by now."""
    path = f"/{uuid.uuid4()}"
    rule = {"match": [{"uri": {"prefix": path}}], "directResponse": {"status": 299}}
    with place.there(virtual_service("shop", "pushed", ["shop/web"], [TENANT], rule)):
        place.eventually(299, path, host=TENANT, Cookie=COOKIE)


def assert_nobody_passes(place):
    """Assert that no stranger reaches an application, and no claim the authorization service."""
    wait_until_pushed(place)
    for asked in (place.application, place.theirs, place.asked):
        asked.clear()
    for path in GUARDED:
        assert place.asked_once(path, **CLAIMED).status != 200, path
    assert place.application == place.theirs == []
    assert CLAIM not in json.dumps(place.asked)


def assert_guarded(place, evil):
    """Assert that each request is authenticated and served, and none by the tenant."""
    assert_nobody_passes(place)
    for path in GUARDED:
        answer = place.asked_once(path, Cookie=COOKIE, **CLAIMED)
        assert answer.status == 200, path
        assert answer.echo["headers"]["kubeflow-userid"] == echo.USER, path
    assert place.asked_once("/", host=TENANT).status == 200
    assert evil.asked == []


def assert_closed(place):
    """Assert that every request is rejected; a host may have the tenant's redirect."""

    def answers():
        asked = itertools.product(GUARDED, WHO)
        return {place.asked_once(path, **headers).status for path, headers in asked}

    assert waiting.eventually(lambda: answers() <= {301, 403, 404}), answers()
    place.application.clear()
    assert 200 not in answers()
    assert place.application == []


@pytest.mark.parametrize("attack", [*rows(LEADS), "all at once"])
def test_request_is_led_to_no_server_of_a_tenant(guarded, evil, attack):
    chosen = LEADS.values() if attack == "all at once" else [LEADS[attack]]
    with guarded.there(*(write(evil) for write in chosen)):
        assert_guarded(guarded, evil)


@pytest.mark.parametrize("gone", [1, 2], ids=["pods", "Service"])
def test_nobody_decides_in_place_of_an_authorization_service_that_is_not_there(
    guarded, evil, gone
):
    """istiod resolves the name of a missing Service by a ServiceEntry of any namespace."""
    objects = reversed(guarded.backends["oidc"])
    with (
        guarded.there(entry("oidc", OIDC, evil.server_port)),
        guarded.without(*itertools.islice(objects, gone)),
    ):
        said = guarded.reconcile()
        assert any("waiting for Service" in message for message in said) == (gone == 2)
        assert_closed(guarded)
        if gone == 2:
            # Until the hook, that ServiceEntry decided.
            evil.asked.clear()
            assert_closed(guarded)
        assert evil.asked == []
    guarded.reconcile()
    guarded.eventually(302)
    guarded.eventually(200, Cookie=COOKIE)
    assert_guarded(guarded, evil)


@pytest.mark.parametrize("attack", rows(GATEWAYS, "of every host", "of our host"))
def test_gateway_of_a_tenant_takes_no_guard_away(guarded, evil, attack):
    with guarded.there(GATEWAYS[attack]):
        assert_guarded(guarded, evil)
        guarded.reconcile()
        assert_guarded(guarded, evil)


@pytest.mark.parametrize("attack", rows(TAKERS, "redirects"))
def test_tenant_who_takes_a_host_passes_nobody_unasked(guarded, attack):
    """The routes close with their guard, and no neighbour is blamed."""
    before = set(guarded.reconcile())
    with guarded.there(*TAKERS[attack]):
        said = guarded.reconcile()
        assert_nobody_passes(guarded)
        assert [each for each in said if each not in before and SPACE not in each] == []
        guarded.auths = []
        guarded.reconcile()
        assert_closed(guarded)


def answer_at_port(place, labels):
    """Send a request with a claim to a port of the tenant's at a workload with these labels."""
    port = loopback.free_port()
    request = forged_requests.head("/kfp/x", more=[f"kubeflow-userid: {CLAIM}"])
    tcp = {"port": {"number": port, "name": "tcp", "protocol": "TCP"}, "hosts": ["*"]}
    spec = {"hosts": ["*"], "gateways": ["tcp"], "tcp": [{"route": lead(KFP)}]}

    def is_sent():
        # The end of a connection that is refused is an answer, too.
        with contextlib.suppress(ConnectionResetError):
            gateway_client.raw("127.0.0.1", request, port)
        return True

    with place.there(
        gateway("shop", "tcp", tcp, labels=labels),
        made(NETWORKING, "VirtualService", "tcp", "shop", spec),
    ):
        place.application.clear()
        assert waiting.eventually(is_sent)
        return len(place.application)


def test_port_of_a_tenant_at_a_named_gateway_leads_into_the_model(guarded, evil):
    """A TCP port bypasses authentication; only the model's own workload can deny such ports."""
    assert answer_at_port(guarded, istiod_world.LABELS) == 1
    assert_guarded(guarded, evil)


@pytest.mark.parametrize("kind", ["ServiceEntry", "Service"])
def test_shared_gateway_takes_a_route_to_an_address_at_its_word(guarded, kind):
    """Why a workload of our own is what keeps identities where tenants may write Gateways."""
    port = guarded.asked_once(Cookie=COOKIE).echo["port"]
    name = f"alias.{SPACE}.svc.{DOMAIN}"
    alias = [*service(SPACE, "alias", port)]
    if kind == "ServiceEntry":
        name, alias = "alias.example.com", [entry("alias", "alias.example.com", port)]
    steal = virtual_service(SPACE, "steal", ["attack"], [EVIL], to(name, "/steal/"))
    with guarded.there(*alias, claiming(EVIL), steal):
        assert CLAIM in guarded.eventually(200, "/steal/x", host=EVIL, **CLAIMED).text


def test_host_of_ours_is_closed_while_an_older_gateway_has_another_number_for_its_port(place):
    """istiod names virtual hosts by the port of the oldest Gateway, which may be the target's."""
    place.remove()
    objects = claimed("alias", server(place.port, [HOST]), hosts=[HOST])
    with place.there(*objects):
        place.eventually(200, "/of-the-tenant", host=HOST)
        place.options, place.auths = {"hosts": HOST}, [COMPLETE]
        place.reconcile()
        with place.there(virtual_service("shop", "third", [OURS], ["*"], to(WEB, "/third"))):
            dump = place.admin, "config_dump?resource=dynamic_route_configs"
            assert waiting.eventually(lambda: '"/third"' in istiod_world.administration(*dump))
            # That virtual host has no filter of ours, so our Gateway does not have the host.
            for path, headers in itertools.product(("/kfp/x", "/third"), WHO):
                answers = {place.asked_once(path, **headers).status for _ in range(10)}
                assert answers == {404}, (path, headers)
        assert place.asked_once("/", host=TENANT).status == 200

    def is_open():
        # The workload has a hook run for each change that it sees.
        place.reconcile()
        return place.status(Cookie=COOKIE) == 200

    assert waiting.eventually(is_open)
    place.remove()


def changes(place):
    """Count the route configurations that Envoy took and those that it refused."""
    lines = istiod_world.administration(place.admin, "stats?filter=\\.rds\\.").splitlines()
    return [
        sum(int(each.rpartition(" ")[2]) for each in lines if f".{name}:" in each)
        for name in ("update_success", "update_rejected")
    ]


ENVOYS = {
    name: obj
    for name, obj in test_tenant_policy.FREEZES.items()
    if obj["kind"] in ("VirtualService", "DestinationRule")
}


@pytest.mark.parametrize(
    "name",
    rows(ENVOYS, "'%FOO%' in a header", "a hash of a header with a line break", "1,001 headers"),
)
def test_what_the_tenant_policy_rejects_for_everyone_freezes_all_routes(guarded, name):
    """Without the policy: nobody's change arrives until the object goes."""
    text = json.dumps(ENVOYS[name]).replace("MODEL", MODEL).replace("NAMESPACE", "shop")
    obj = json.loads(text)
    _, before = changes(guarded)
    with guarded.there(obj):
        assert waiting.eventually(lambda: changes(guarded)[1] > before)
        path = f"/{uuid.uuid4()}"
        rule = {"match": [{"uri": {"prefix": path}}], "directResponse": {"status": 299}}
        _, before = changes(guarded)
        with guarded.there(virtual_service("shop", "pushed", ["shop/web"], [TENANT], rule)):
            assert waiting.eventually(lambda: changes(guarded)[1] > before)
            assert guarded.status(path, host=TENANT) == 200
    wait_until_pushed(guarded)


@pytest.fixture(scope="module")
def alone(place, tmp_path_factory):
    """The place with a gateway of the model's own, plain and with TLS, and a third one's route."""
    place.remove()
    folder = tmp_path_factory.mktemp("own")
    place.options = {"gateway_service": "", "hosts": "", "tls_secret": ingress_world.SECRET}
    place.auths = [COMPLETE]
    third = virtual_service("shop", "third", [OURS], [THIRD], {"route": lead(WEB)})
    with (
        ingress_world.own_gateway(place, folder),
        place.there(third, ingress_world.secret(folder, MODEL)),
    ):
        place.reconcile()
        place.eventually(200, host=THIRD, Cookie=COOKIE)
        place.eventually(200, host=THIRD, tls=THIRD, Cookie=COOKIE)
        yield place
        place.remove()


def test_port_of_a_tenant_leads_into_the_model_unless_the_workload_has_no_other(alone):
    assert answer_at_port(alone, OWN) == 0
    assert alone.asked_once("/kfp/x", Cookie=COOKIE).status == 200


TCP = {"port": {"number": 80, "name": "tcp", "protocol": "TCP"}, "hosts": ["*"]}


@pytest.mark.parametrize(
    "server", [{**TCP, "bind": "127.0.0.1"}, TCP], ids=["at an address", "that is older"]
)
def test_tcp_on_the_port_of_the_own_gateway_leads_nowhere_and_is_named(alone, server):
    request = forged_requests.head("/kfp/x", more=[f"kubeflow-userid: {CLAIM}"])
    spec = {"hosts": ["*"], "gateways": ["a-tcp"], "tcp": [{"route": lead(KFP)}]}
    # By this name istiod takes theirs for the older one also if both are created in one second.
    theirs = (
        gateway("shop", "a-tcp", server, labels=OWN),
        made(NETWORKING, "VirtualService", "a-tcp", "shop", spec),
    )

    def is_bound():
        # Envoy has a listener that leads to the application.
        dump = istiod_world.administration(alone.admin, "config_dump?resource=dynamic_listeners")
        return '"tcp_proxy"' in dump.replace("envoy.filters.network.", "")

    if "bind" not in server:
        alone.remove()
    with alone.there(*theirs):
        said = alone.reconcile()
        assert waiting.eventually(is_bound)
        alone.application.clear()
        for _ in range(10):
            with contextlib.suppress(ConnectionResetError):
                assert gateway_client.raw("127.0.0.1", request, alone.port) in (b"", "")
        assert alone.application == []
        assert any(each.startswith("blocked: Gateway shop/a-tcp takes port 80") for each in said)
    alone.reconcile()
    alone.eventually(200, "/kfp/x", Cookie=COOKIE)


def test_tls_that_a_tenant_forwards_from_the_own_gateway_leads_nowhere(alone):
    host = f"{uuid.uuid4()}.example.org"
    match = [{"port": 443, "sniHosts": [host]}]
    spec = {"hosts": [host], "gateways": ["tls"], "tls": [{"match": match, "route": lead(KFP)}]}
    with alone.there(
        gateway("shop", "tls", server(443, [host], mode="PASSTHROUGH"), labels=OWN),
        made(NETWORKING, "VirtualService", "tls", "shop", spec),
    ):
        dump = alone.admin, "config_dump?resource=dynamic_listeners"
        assert waiting.eventually(lambda: host in istiod_world.administration(*dump))
        # The application, which has no TLS, would answer in plain text.
        answer = alone.asked_once("/kfp/x", tls=host)
        assert "WRONG_VERSION_NUMBER" not in str(answer)
        assert isinstance(answer, OSError)


def both(hosts):
    return server(80, hosts), server(443, hosts, **HTTPS)


def claimed(name, *servers, hosts, labels=istiod_world.LABELS):
    """A Gateway of the tenant, and a route that hides nothing of the hosts that they claim."""
    yield gateway("shop", name, *servers, labels=labels)
    yield virtual_service("shop", name, [f"shop/{name}"], hosts, to(WEB, "/of-the-tenant"))


CLAIMS = [
    pytest.param("claim", both([THIRD]), [THIRD], id="the same host"),
    pytest.param("claim", both(["*.example.com"]), [THIRD, "*.example.com"], id="a wildcard"),
    pytest.param("claim", both(["*"]), [THIRD, "*.example.com"], id="every host"),
    pytest.param("claim", both(["Third.Example.Com"]), ["Third.Example.Com"], id="another case"),
    pytest.param("claim", both([f"shop/{THIRD}"]), [THIRD], id="routes of one namespace"),
    pytest.param("claim", both([f"./{THIRD}"]), [THIRD], id="routes of its own namespace"),
    pytest.param("kubeflow-gateway", both([THIRD]), [THIRD], id="the name of our Gateway"),
    pytest.param(f"kubeflow-gateway.{MODEL}", both([THIRD]), [THIRD], id="a dotted name"),
    pytest.param("claim", [server(80, [THIRD]), server(8080, [THIRD])], [THIRD], id="more ports"),
    pytest.param("claim", [server(443, [THIRD], mode="PASSTHROUGH")], [THIRD], id="passthrough"),
]


@pytest.mark.parametrize(("name", "servers", "hosts"), CLAIMS)
def test_third_ones_host_stays_guarded_whoever_claims_it(alone, name, servers, hosts):
    host = f"{uuid.uuid4()}.example.org"
    mark = gateway("shop", "mark", *both([host]), labels=OWN)
    marked = virtual_service("shop", "mark", ["shop/mark"], [host], {"route": lead(WEB)})
    with alone.there(*claimed(name, *servers, hosts=hosts, labels=OWN), mark, marked):
        alone.reconcile()
        # istiod has told the gateway of all of it.
        alone.eventually(200, "/", host=host, tls=host, Cookie=COOKIE)
        for tls in ("", host):
            alone.eventually(302, "/", host=host, tls=tls)
        for said in (THIRD, THIRD.upper(), f"{THIRD}:80", f"{THIRD}:9999"):
            assert alone.asked_once("/x", host=said).status == 302
            for sni in (THIRD, host, HOST):
                answer = alone.asked_once("/x", host=said, tls=sni)
                # A connection that is the tenant's has no such route, or ends with them.
                assert isinstance(answer, OSError) or answer.status in (302, 404)
        for tls in ("", host, HOST):
            answer = alone.asked_once("/kfp/x", tls=tls)
            assert isinstance(answer, OSError) or answer.status in (302, 404)


@pytest.mark.parametrize(
    ("times", "requests"), [(3, 20), pytest.param(6, 50, marks=pytest.mark.long)]
)
def test_guard_never_goes_while_a_neighbour_comes_and_goes(alone, times, requests):
    before, options = alone.options, {"hosts": "*.example.com", "https_redirect": True}
    alone.options = {**before, **options}
    alone.reconcile()
    alone.eventually(200, tls=HOST, Cookie=COOKIE)
    stranger = alone.visitor(tls=HOST)
    with gateway_client.Hammer(stranger, fresh=True, pause=0, path="/kfp/x") as hammer:
        for _ in range(times):
            comes = gateway("shop", "comes", server(80, ["comes.example.org"]), labels=OWN)
            with alone.there(comes):
                alone.reconcile()
                gateway_client.go_on([hammer], requests)
            alone.reconcile()
            gateway_client.go_on([hammer], requests)
    alone.options = before
    alone.reconcile()
    assert set(hammer.answers) == {302}
