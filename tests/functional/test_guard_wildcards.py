"""Hosts within a wildcard of ours that others' Gateways on the workload have, in a real Envoy."""

import contextlib

import pytest

from tests import echo, gateway_client, waiting
from tests.functional import ingress_world, istiod_world
from tests.functional.ingress_world import MODEL, WEB, gateway, lead, server, virtual_service

COOKIE = echo.COOKIE
OURS = f"{MODEL}/kubeflow-gateway"
WILDCARD = "*.kf.example.org"
ANY = "any.kf.example.org"
THEIRS = "theirs.kf.example.org"
"""A host that the tenant's Gateway has, with one route of the tenant's."""
BOTH = "both.kf.example.org"
"""One that it has, too, while a third one's route to it is bound to our Gateway."""
PATH = "/of-the-tenant"
ASKED = [
    (ANY, "/kfp/x"),
    (f"{ANY.upper()}:80", "/kfp/x"),
    (BOTH, "/third"),
    (f"{BOTH.upper()}:9999", "/third"),
]
"""What is served by our Gateway, each a host and a path."""
FROM_A_PROXY = {"X-Forwarded-Proto": "https"}
HTTPS_ALONE = {"tls_secret": ingress_world.SECRET, "https_redirect": True}

BEHIND_A_PROXY = {
    "apiVersion": "networking.istio.io/v1alpha3",
    "kind": "EnvoyFilter",
    "metadata": {"name": "behind-a-proxy", "namespace": istiod_world.GATEWAY_NAMESPACE},
    "spec": {
        "workloadSelector": {"labels": istiod_world.LABELS},
        "configPatches": [
            {
                "applyTo": "NETWORK_FILTER",
                "match": {
                    "context": "GATEWAY",
                    "listener": {
                        "filterChain": {
                            "filter": {"name": "envoy.filters.network.http_connection_manager"}
                        }
                    },
                },
                "patch": {
                    "operation": "MERGE",
                    "value": {
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.filters.network."
                            "http_connection_manager.v3.HttpConnectionManager",
                            "xff_num_trusted_hops": 1,
                        }
                    },
                },
            }
        ],
    },
}
"""What `gatewayTopology.numTrustedProxies: 1` of the mesh makes: the proxy's word counts."""


def tenants():
    """The tenant's Gateway, with a route to one of its hosts."""
    yield gateway("shop", "claim", server(80, [THEIRS, BOTH]))
    route = {"match": [{"uri": {"prefix": PATH}}], "route": lead(WEB)}
    yield virtual_service("shop", "claim", ["shop/claim"], [THEIRS, BOTH], route)


def bound():
    """A third one's route, as KServe's are, on our Gateway."""
    third = {"match": [{"uri": {"prefix": "/third"}}], "route": lead(WEB)}
    yield virtual_service("shop", "bound", [OURS], [BOTH], third)


@contextlib.contextmanager
def served(place, *, tenant_first, **options):
    """Our wildcard beside the tenant's hosts, whichever Gateway is the older one."""
    place.part().remove()
    place.options = {"hosts": WILDCARD, **options}
    with contextlib.ExitStack() as stack:
        if tenant_first:
            stack.enter_context(place.there(*tenants()))
            place.eventually(200, PATH, host=THEIRS)
        place.reconcile()
        place.reconcile()
        if not tenant_first:
            stack.enter_context(place.there(*tenants()))
            place.eventually(200 if options else 302, PATH, host=THEIRS)
        stack.enter_context(place.there(*bound()))
        stack.callback(place.part().remove)
        yield place


@pytest.fixture
def plain(place):
    """A Gateway of ours in plain HTTP, to which the tenant came later."""
    with served(place, tenant_first=False):
        place.eventually(200, "/third", host=BOTH, Cookie=COOKIE)
        yield place


def test_wildcard_in_plain_http_is_asked_about_in_every_virtual_host(plain):
    for host, path in ASKED:
        assert plain.asked_once(path, host=host).status == 302, (host, path)
    assert plain.asked_once("/kfp/x", host=ANY, Cookie=COOKIE).status == 200
    assert plain.asked_once("/", host=gateway_client.TENANT).status == 200


def test_who_has_a_host_within_our_wildcard_in_plain_http_is_guarded_with_us(plain):
    assert waiting.eventually(lambda: plain.asked_once(PATH, host=THEIRS).status == 302)


@pytest.fixture(scope="module", params=[True, False], ids=["theirs-older", "theirs-younger"])
def redirecting(place, request):
    """A Gateway of ours that answers plain HTTP with redirects alone."""
    with served(place, tenant_first=request.param, **HTTPS_ALONE):
        place.eventually(200, tls=ANY, host=ANY, Cookie=COOKIE)
        place.eventually(301, "/third", host=BOTH)
        yield place


def test_host_within_our_wildcard_that_is_another_gateways_is_served_by_its_routes_alone(
    redirecting,
):
    """istiod attaches our routes to hosts of our Gateway, and no narrower one is a host of it."""
    assert redirecting.asked_once(PATH, host=THEIRS).status == 200
    for path in ("/", "/kfp/x", "/kfp/nested/x"):
        assert redirecting.asked_once(path, host=THEIRS).status == 404


@pytest.mark.parametrize("host", [ANY, BOTH])
@pytest.mark.parametrize("path", ["/kfp/x", "/third", PATH])
def test_what_is_on_our_gateway_is_redirected_whoever_has_the_host_too(redirecting, host, path):
    assert redirecting.asked_once(path, host=host).status == 301


def test_request_that_a_proxy_says_came_by_https_is_asked_about_within_our_wildcard(redirecting):
    with redirecting.there(BEHIND_A_PROXY):
        want = {"Cookie": COOKIE, **FROM_A_PROXY}
        redirecting.eventually(200, "/third", host=BOTH, **want)
        for host, path in ASKED:
            answer = redirecting.asked_once(path, host=host, **FROM_A_PROXY)
            assert answer.status == 302, (host, path)
        # Envoy can't tell theirs from what is bound to our Gateway, unless it came as plain HTTP.
        assert redirecting.asked_once(PATH, host=THEIRS, **FROM_A_PROXY).status == 302
        assert redirecting.asked_once(PATH, host=THEIRS).status == 200
        outside = {"host": gateway_client.TENANT, **FROM_A_PROXY}
        assert redirecting.asked_once("/", **outside).status == 200
    redirecting.eventually(301, "/third", host=BOTH, **FROM_A_PROXY)
