"""Routes of today's charms, through a real istiod and a real Envoy, beside those of the older."""

import contextlib
import json
import urllib.request
from http import client as http_client

import pytest
from charmlibs.interfaces import istio_ingress_route as library

from tests import echo, gateway_client, waiting
from tests.functional import ingress_world
from tests.functional.ingress_world import COMPLETE, MODEL, request
from tests.functional.newer_routes import (
    CHARMS,
    bag,
    matched,
    rewritten,
    wish,
)

COOKIE = {"Cookie": echo.COOKIE}
HOST = gateway_client.HOST
OTHER = "ml.example.com"


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(echo.serving(echo.Application)).server_port
            for name in CHARMS
        }
        folder = tmp_path_factory.mktemp("istiod")
        served = ingress_world.serving(client, kubeconfig, folder, servers)
        found = stack.enter_context(served)
        found.ports = servers
        yield found


@pytest.fixture(autouse=True)
def related(place):
    """Nobody but who is asked about requests, and HTTPS beside HTTP."""
    place.requests, place.newer, place.auths = [], [], [COMPLETE]
    place.options = {"hosts": f"{HOST},{OTHER}", "tls_secret": ingress_world.SECRET}


def test_longer_prefix_of_a_newer_charm_lies_within_the_older_ones(place):
    place.requests = [
        request(1, "kubeflow-dashboard", "/", "/"),
        request(2, "kfp-ui", "/pipeline", None),
    ]
    place.newer = [bag(3, "envoy", wish("envoy", matched("/pipeline/inner")))]
    place.reconcile()
    place.eventually(200, "/pipeline/inner", **COOKIE)
    for path, name in (
        ("/pipeline/inner", "envoy"),
        ("/pipeline/inner/x", "envoy"),
        ("/pipeline/innermost", "kfp-ui"),
        ("/pipelines", "kfp-ui"),
        ("/x", "kubeflow-dashboard"),
    ):
        assert waiting.eventually(lambda p=path, n=name: reached(place, p) == place.ports[n]), path


def reached(place, path, method="GET", host=HOST, **headers):
    """The port of the application that answers; the status where none does."""
    connection = http_client.HTTPConnection("127.0.0.1", place.port, timeout=15)
    with contextlib.closing(connection):
        connection.request(method, path, headers={"Host": host, **COOKIE, **headers})
        answer = connection.getresponse()
        text = answer.read()
        return json.loads(text)["port"] if answer.status == 200 else answer.status


def test_every_condition_is_kept_by_envoy(place):
    exact = library.HTTPPathMatchType.Exact
    a, b, c = list(CHARMS)[:3]
    place.newer = [
        bag(1, a, wish(a, matched("/"))),
        bag(2, b, wish(b, matched("/x", exact))),
        bag(3, c, wish(c, matched("/x"))),
    ]
    place.reconcile()
    for want, path in (
        (b, "/x"),
        (b, "/x?a=b"),
        (c, "/x/"),
        (c, "/x/z"),
        (a, "/xx"),
        (a, "/z"),
    ):

        def is_reached(want=want, path=path):
            return reached(place, path) == place.ports[want]

        assert waiting.eventually(is_reached), (want, path)


def test_rewrites_and_grpc_are_kept_by_envoy(place):
    a, b = list(CHARMS)[:2]
    full, exact = library.PathModifierType.ReplaceFullPath, library.HTTPPathMatchType.Exact
    calls = library.GRPCRoute(
        name="calls",
        listener=library.Listener(port=80, protocol=library.ProtocolType.GRPC),
        backends=[library.BackendRef(service=b, port=80)],
        matches=[
            library.GRPCRouteMatch(method=library.GRPCMethodMatch(service="ml.Store", method=name))
            for name in ("Get", None)
        ],
    )
    place.newer = [
        bag(1, a, wish(a, matched("/full", exact), filters=[rewritten("/all", full)])),
        bag(2, a, wish(a, matched("/part"), filters=[rewritten("/")])),
        bag(6, b, grpc=[calls]),
    ]
    assert not [text for text in place.reconcile() if "istio-ingress-route" in text]
    # What was served before is served until Envoy has all of it.
    for path, want in (("/full", "/all"), ("/part/x", "/x"), ("/part", "/")):
        assert waiting.eventually(
            lambda path=path, want=want: place.eventually(200, path, **COOKIE).echo["path"] == want
        )
    for path in ("/ml.Store/Get", "/ml.Store/Put"):
        assert waiting.eventually(lambda p=path: reached(place, p) == place.ports[b])
    # Only what is there for gRPC is spoken to as the client speaks.
    assert waiting.eventually(lambda: speaks_as_the_client(place, b))
    assert not speaks_as_the_client(place, a)


def speaks_as_the_client(place, service):
    address = f"http://127.0.0.1:{place.admin}/config_dump?resource=dynamic_active_clusters"
    with urllib.request.urlopen(address) as answer:
        found = json.load(answer)["configs"]
    name = f"outbound|80||{service}.{MODEL}.svc.{ingress_world.DOMAIN}"
    (cluster,) = [one for one in found if one["cluster"]["name"] == name]
    return "use_downstream_protocol_config" in json.dumps(cluster)
