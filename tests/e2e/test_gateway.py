"""A gateway workload of the model's own and its certificate, with exactly the shipped roles."""

import datetime
import functools
import time

import pytest
from cryptography import x509

from testbed import istio
from tests import echo, gateway_client, rights, waiting
from tests.e2e import ingress_world as world

MODEL = "edge"
APP = world.APP
OWN = f"{APP}-gateway"
pytestmark = [pytest.mark.cluster("tomorrow"), pytest.mark.long, pytest.mark.timeout(600)]


# A hook takes half a minute on a busy machine.
eventually = functools.partial(waiting.eventually, timeout=120)


def roles():
    """The shipped roles, and the policy that holds to what they are for."""
    elsewhere = rights.gateway_namespace(MODEL, istio.INGRESS, istio.GATEWAY)
    return "\n---\n".join((rights.roles(MODEL), elsewhere, rights.admission_policy(MODEL)))


@pytest.fixture(scope="module")
def place(node):
    """The charm without trust beside Kubeflow's applications, with a gateway of its own."""
    # So that nothing but what wakes the charm can be what it noticed a change by.
    with world.Place(node, MODEL, settings={"update-status-hook-interval": "1h"}) as found:
        node.testbed.kubectl("apply", "-f", "-", text=roles())
        found.deploy(node.charms.integrator, trust=False, gateway_service="")
        found.serve(world.CONSUMERS)
        # Nobody has an event for it but the one that the workload's notice of the pods is.
        found.integrate(world.CONSUMERS, f"{MODEL}/{OWN}")
        found.says("active:")
        yield found
    node.testbed.kubectl("delete", "-f", "-", text=roles(), check=False)


@pytest.fixture(scope="module")
def secured(place):
    """HTTPS beside HTTP, by the relation."""
    place.juju.fake_app(world.AUTHORITY, {"certificates": world.SIGNS})
    place.juju.integrate(f"{APP}:certificates", f"{world.AUTHORITY}:certificates")
    place.sign()
    # By chance or by the next pod: each of the two has to have heard of it.
    assert eventually(lambda: all(place.shown() for _ in range(12))), place.message()
    return place


def test_certificate_of_a_related_charm_is_rotated_without_a_dropped_connection(secured):
    first = secured.shown()
    names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [gateway_client.HOST]
    assert "authority" in first.issuer.rfc4514_string()
    assert secured.is_open()
    request = {"path": "/pipeline/x", "Cookie": echo.COOKIE, "pause": 0.03}
    visitor = gateway_client.Client(secured.address, tls=True)
    one = gateway_client.Hammer(visitor, **request)
    many = secured.hammer(tls=True, fresh=True, **request)
    with one, many:
        assert secured.shows(secured.sign())
        # Ours asks for another one when two thirds of its life are over.
        asked = secured.requested()
        assert secured.shows(secured.sign(datetime.timedelta(seconds=45)))
        due = secured.shown().not_valid_before_utc + datetime.timedelta(seconds=32)
        time.sleep(max(0, (due - datetime.datetime.now(datetime.UTC)).total_seconds()))
        secured.touch()
        assert eventually(lambda: secured.requested() not in ("", asked))
        assert secured.shows(secured.sign())
    assert (set(one.answers), set(many.answers)) == ({200}, {200})
    assert visitor.opened == 1
    assert secured.shown().public_key() == first.public_key()
