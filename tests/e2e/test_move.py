"""docs/how-to/move-from-istio-pilot.md, followed while a user sends requests.

The two charms are scripted applications. What they run and write is here the gateway of the node
and objects for one application, which go when their removal hooks would delete them.
"""

import contextlib
import threading
import time

import pytest

from testbed import mesh
from testbed.kit import workloads
from tests import echo, gateway_client, waiting
from tests.e2e import ingress_world as world
from tests.e2e import pages_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), pytest.mark.cluster("tomorrow")]

MODEL = "moving"
FORMER = ("istio-pilot", "istio-gateway")
KATIB = "katib-ui"
PATH = "/katib/x"
GATEWAY = f"{world.APP}-gateway"
TYPED = "istioctl install --set profile=default"
DONE = '"$PYTHON" -m testbed --name "$TESTBED" istio install'
"""The same with the images of the testbed."""


class Name(gateway_client.Client):
    """Sends requests to a name, which DNS leads elsewhere in the end."""

    def lead(self, address):
        self._place = (address, 80)


def written_before():
    """What istio-pilot writes for an application."""
    server = {"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}
    gateway = {"selector": {"istio": "ingressgateway"}, "servers": [server]}
    http = [world.lead("/katib/", f"{KATIB}.{MODEL}", world.port_of(KATIB))]
    routes = {"gateways": [f"{MODEL}/kubeflow-gateway"], "hosts": ["*"], "http": http}
    return (
        workloads.istio("Gateway", "kubeflow-gateway", MODEL, **gateway),
        workloads.istio("VirtualService", KATIB, MODEL, **routes),
    )


@pytest.fixture(scope="module")
def place(node):
    """A model whose applications are served as istio-pilot and istio-gateway serve them."""
    with pages_world.Place(node, MODEL, {TYPED: DONE}) as found:
        found.serve(world.CONSUMERS)
        for name in FORMER:
            script = {"role": "provides", "interface": "ingress", "application": {}, "unit": {}}
            found.juju.fake_app(name, {"ingress": script})
        found.apply(*written_before())
        yield found
    mesh.install(node.testbed, mesh.installation(classic_sidecars=not node.kind.native))


@contextlib.contextmanager
def followed(place, *names):
    """Have DNS follow the new gateway's Service while the block runs."""
    ended = threading.Event()

    def follow():
        while not ended.wait(0.5):
            if service := place.read("service", GATEWAY):
                for name in names:
                    name.lead(service["spec"]["clusterIP"])

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def remove_former(place):
    """Do what the removal hooks of both charms do."""
    for obj in written_before():
        kind = f"{obj['kind'].lower()}s.networking.istio.io"
        place.kubectl("delete", kind, obj["metadata"]["name"], "-n", MODEL)
    mesh.uninstall(place.node.testbed)


def test_page_about_istio_pilot_moves_a_model(place, blocks, record_property):
    """docs/how-to/move-from-istio-pilot.md."""
    removed, installed, deployed, related, addressed = blocks
    place.script([related])
    names = [Name(place.address, timeout=2) for _ in range(2)]
    user = gateway_client.Hammer(names[0], fresh=True, pause=0.1, path=PATH, Cookie=echo.COOKIE)
    stranger = gateway_client.Hammer(names[1], fresh=True, pause=0.1, path=PATH)

    def is_served():
        count = user.answers.get(200, 0)
        return waiting.eventually(lambda: user.answers.get(200, 0) >= count + 20, 120)

    with user:
        assert is_served(), user.answers
        place.run(removed)
        remove_former(place)
        place.run(installed)
        with followed(place, *names), stranger:
            place.run(deployed)
            place.run(related)
            place.says(f"8 routes served by {MODEL}/{GATEWAY}", 400)
            place.says("3/3 pods in mesh", 400)
            assert is_served(), user.answers
        ended = time.monotonic()
    assert place.said_to("ANY-APPLICATION-THAT-HAD-IT", "istio-pilot")
    assert GATEWAY in place.run(addressed)
    assert 200 not in stranger.answers, stranger.answers
    begins = [since for _, _, since in user.runs[1:]] + [ended]
    failed = seconds = 0
    for (what, count, since), end in zip(user.runs, begins, strict=True):
        print(f"{end - since:7.1f} s {count:5} x {what}")
        failed += count * (what != 200)
        seconds += (end - since) * (what != 200)
    record_property("move from istio-pilot: failed requests", failed)
    record_property("move from istio-pilot: not served, s", round(seconds, 1))
    print(f"{failed} requests failed, in {seconds:.1f} s without an answer of the application")
