"""What another renderer costs who asks all the time, and that it lets nobody in."""

import collections
import contextlib
import http.client
import threading
import time

import pytest

from testbed import loopback
from tests import echo, gateway_client, waiting
from tests.functional import gateway_api_world as world
from tests.functional import ingress_world, istiod_world

# A minute, and what it measures is worth most on a machine to itself.
pytestmark = pytest.mark.long

RATE = 50
"""Requests in a second."""
AWAY = 10.0
"""Seconds without routes that docs/how-to/gateway-api.md speaks of, beside the start of a pod."""


class Stream(threading.Thread):
    """Asks at a steady rate at the address that is announced, whatever becomes of it."""

    def __init__(self, place, port):
        super().__init__(daemon=True)
        self.port = port
        self.answers = collections.Counter()
        self._host = place.options["hosts"]
        self._ended = threading.Event()

    def run(self):
        """Ask, each time on a connection of its own, until it is ended."""
        began, sent = time.monotonic(), 0
        while not self._ended.wait(max(0, began + sent / RATE - time.monotonic())):
            sent += 1
            client = gateway_client.Client(port=self.port, timeout=2)
            with contextlib.closing(client):
                try:
                    what = client.get("/kfp/x", host=self._host, Cookie=echo.COOKIE).status
                except (OSError, http.client.HTTPException):
                    what = "no answer"
            self.answers[what] += 1

    @property
    def failed(self):
        """How many requests were not served."""
        return sum(self.answers.values()) - self.answers[200]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    """A model with its own Gateway and an Envoy for it, beside a shared gateway and its Envoy."""
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("istiod")
        found = stack.enter_context(world.serving(client, kubeconfig, folder))
        found.options["hosts"] = gateway_client.HOST
        port, admin = loopback.free_ports(2)
        found.shared_port = port
        namespace = ingress_world.namespace(istiod_world.GATEWAY_NAMESPACE)
        there = (namespace, *ingress_world.gateway_workload((("http2", 80, port),)))
        for obj in there:
            found.api.create(obj)
        stack.callback(ingress_world.leave, found.api, istiod_world.GATEWAY_NAMESPACE)
        token = istiod_world.gateway_token(client)
        shared = tmp_path_factory.mktemp("shared")
        stack.enter_context(istiod_world.gateway(shared, found.xds, admin, token))
        yield found
        found.part().remove()


def switched(place, stream, routing, announced):
    """Set the option, lead the stream where it is announced; the failed requests come back."""
    before = stream.failed
    place.options["routing"] = routing
    place.reconcile()
    # On a cluster the operator leads names there; here it takes no time.
    stream.port = announced()
    served = stream.answers[200]
    assert waiting.eventually(lambda: stream.answers[200] > served + 2 * RATE, 60)
    return stream.failed - before


def test_switch_costs_what_the_page_says_and_lets_nobody_in(place, client):
    def managed():
        # What a node and a load balancer do.
        place.run(client, 80)
        assert waiting.eventually(lambda: any("203.0.113.7" in said for said in place.reconcile()))
        return place.port

    place.options["routing"] = "virtualservice"
    place.reconcile()
    with contextlib.closing(gateway_client.Client(port=place.shared_port)) as shared:
        assert waiting.eventually(lambda: shared.get("/kfp/x", Cookie=echo.COOKIE).status == 200)
    strangers = [
        gateway_client.Hammer(
            gateway_client.Client(port=port), fresh=True, pause=1 / RATE, path="/kfp/x"
        )
        for port in (place.port, place.shared_port)
    ]
    with contextlib.ExitStack() as stack:
        for stranger in strangers:
            stack.enter_context(stranger)
        stream = stack.enter_context(Stream(place, place.shared_port))
        assert waiting.eventually(lambda: stream.answers[200] > RATE)
        there = switched(place, stream, "gateway-api", managed)
        back = switched(place, stream, "virtualservice", lambda: place.shared_port)
        total = sum(stream.answers.values())
    print(f"\n{total} requests, {RATE}/s: {there} failed on the way there, {back} on the way back")
    assert 0 < there < AWAY * RATE
    assert 0 < back < AWAY * RATE
    for stranger in strangers:
        assert 200 not in stranger.answers, stranger.answers
        assert stranger.answers.get(302, 0) > 0, stranger.answers
