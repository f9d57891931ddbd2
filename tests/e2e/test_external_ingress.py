"""Applications behind the guard on a gateway whose istiod is outside of the cluster.

A tenant of the gateway, intruders and a visitor who has signed in ask without a pause while istiod
is cut off, killed and replaced; afterwards every object is as it was before the charm.
"""

import asyncio

import pytest

from testbed import kubernetes, mesh
from testbed.kit import objects
from tests import echo, waiting
from tests.e2e import external_world
from tests.e2e import ingress_world as world

pytestmark = [
    pytest.mark.cluster("external"),
    pytest.mark.long,
    pytest.mark.timeout(500),
]

MODEL = "ai"
CONSUMERS = ("kubeflow-dashboard", world.AUTH, "kfp-ui")
PATH = "/pipeline/apis"


def with_api(node, act):
    """Run something that asks the API server."""

    async def run():
        async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
            return await act(api)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def place(node):
    """A model of applications, and its gateway with a tenant and intruders."""
    with world.shared(node, MODEL) as found:
        found.serve(CONSUMERS)
        found.before = with_api(node, objects.snapshot)
        found.deploy(node.charms.integrator)
        with world.Watch(found) as found.watch:
            found.relate(CONSUMERS)
            # Until then the applications' pod may be replaced.
            found.says("1/1 pods in mesh")
            yield found


def test_anonymous_is_refused_and_who_has_signed_in_is_served(place):
    assert place.browser().get(PATH).status == 302
    answer = place.browser().get(PATH, Cookie=echo.COOKIE)
    assert (answer.status, answer.echo["port"]) == (200, world.port_of("kfp-ui"))
    assert answer.echo["headers"]["kubeflow-userid"]
    place.watch.go_on()
    place.watch.assert_that_all_is_well()


def test_it_stays_so_while_istiod_is_cut_off_killed_and_replaced(place, node):
    signed_in = {"path": PATH, "Cookie": echo.COOKIE, "pause": 0.05}
    with place.hammer(**signed_in) as visitor, place.hammer(fresh=True, **signed_in) as newcomer:
        mesh.stop(node.testbed)
        try:
            place.touch()
            place.says("does not inject")
            place.watch.go_on(20)
        finally:
            mesh.start(node.testbed)
        place.touch()
        place.says(f"{len(CONSUMERS)} routes served by")
        for _ in range(2):
            asyncio.run(external_world.killed(node.testbed))
            place.watch.go_on(20)
        place.juju.remove_relation(f"{world.APP}:ingress", "kubeflow-dashboard:ingress")
        # The gateway hears of it from the istiod that came.
        place.says(f"{len(CONSUMERS) - 1} routes served by")
        browser = place.browser()
        assert waiting.eventually(
            lambda: browser.get("/some/page", Cookie=echo.COOKIE).status == 404, 60
        )
    assert (set(visitor.answers), set(newcomer.answers)) == ({200}, {200})
    place.watch.assert_that_all_is_well()


def test_removal_leaves_every_object_as_it_was(place, node):
    place.juju.remove_application(world.APP)
    place.juju.wait_gone(world.APP)
    with_api(node, lambda api: objects.until_same(api, place.before, 90))
    place.watch.go_on()
    place.watch.assert_that_all_is_well()
