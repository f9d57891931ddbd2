"""Kubeflow's applications behind a shared gateway of a real Istio, closed until somebody is asked.

The model is not called `kubeflow`; the gateway is in a namespace of its own and serves somebody
else's host all the time. From before the charm is deployed until after it is gone, a tenant and
several intruders ask without a pause; the last test counts.
"""

import pytest
import yaml

from testbed.juju.client import JujuError
from tests import echo, waiting
from tests.e2e import ingress_world as world

MODEL = "ai"
APP = world.APP
AUTH = world.AUTH
ROUTES = len(world.CONSUMERS)
REQUESTS = 10_000
pytestmark = [
    pytest.mark.cluster("tomorrow"),
    pytest.mark.long,
    pytest.mark.timeout(500),
]


@pytest.fixture(scope="module")
def integrator(node):
    """The charm that is deployed."""
    return node.charms.integrator


@pytest.fixture(scope="module")
def place(node, integrator):
    """A tenant's host that answers, and the charm in a model beside it."""
    with world.shared(node, MODEL) as found:
        # What comes before it would be replaced for its sidecar's sake.
        found.deploy(integrator)
        found.serve(world.CONSUMERS)
        with world.Watch(found) as found.watch:
            yield found


@pytest.fixture(scope="module")
def opened(place):
    """The ingress in the order that a bundle brings it up in."""
    place.relate(world.CONSUMERS)
    place.watch.go_on()
    place.watch.assert_that_all_is_well()
    return place


@pytest.mark.parametrize(("path", "consumer", "asked"), world.PATHS)
def test_consumer_is_reached_by_its_path_with_its_rewrite(opened, path, consumer, asked):
    answer = opened.browser().get(path, Cookie=echo.COOKIE)
    assert (answer.status, answer.echo["port"]) == (200, world.port_of(consumer))
    assert answer.echo["path"] == asked


def relate_again(opened, ours, theirs):
    """Relate two applications once the units of both have left the relation that was removed."""

    def is_related():
        try:
            opened.juju.integrate(ours, theirs)
        except JujuError:
            return False
        return True

    assert waiting.eventually(is_related, 60)


def test_broken_relation_closes_and_a_removed_one_takes_its_route(opened):
    opened.juju.remove_relation(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
    opened.says("ingress is closed: integrate ingress-auth")
    assert waiting.eventually(lambda: not opened.is_open())
    relate_again(opened, f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
    opened.says(f"{ROUTES} routes")
    assert waiting.eventually(opened.is_open)
    opened.juju.remove_relation(f"{APP}:ingress", "katib-ui:ingress")
    opened.says(f"{ROUTES - 1} routes")
    opened.watch.go_on()
    relate_again(opened, f"{APP}:ingress", "katib-ui:ingress")
    opened.says(f"{ROUTES} routes")
    opened.watch.go_on()
    opened.watch.assert_that_all_is_well()


def test_removal_leaves_the_gateway_as_it_was(opened):
    opened.juju.remove_application(APP)
    opened.juju.wait_gone(APP)
    opened.watch.go_on()
    opened.watch.assert_that_all_is_well()
    kinds = "virtualservices,gateways,envoyfilters,authorizationpolicies"
    left = yaml.safe_load(opened.kubectl("get", kinds, "-A", "-o", "yaml"))["items"]
    assert {item["metadata"]["namespace"] for item in left} == {"shop"}


def test_no_intruder_was_served_and_no_tenant_harmed_in_all_that_time(opened):
    assert waiting.eventually(lambda: opened.watch.asked_in_vain >= REQUESTS, 300)
    for who, hammers in (("tenant", opened.watch.tenants), ("intruder", opened.watch.intruders)):
        for hammer in hammers:
            print(who, hammer.answers)
    opened.watch.assert_that_all_is_well()
