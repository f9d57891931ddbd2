"""The model's own gateway serves every host for it, whoever comes to it: real Envoy."""

import pytest

from tests.functional import tenant_envoy
from tests.functional import tenant_parts as parts
from tests.functional import tenant_routes as routes

pytestmark = pytest.mark.usefixtures("unreachable_node")


@pytest.fixture(scope="module")
def world(control_plane, client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tenants")
    with tenant_envoy.serving(control_plane, client, folder) as made:
        yield made


@pytest.fixture(autouse=True)
def running(world):
    world.rest()


@pytest.mark.parametrize(
    "attack",
    parts.long_but(
        routes.GATEWAYS,
        "Gateway without hosts",
        "Gateway of every host",
        "Gateway of a third one's host",
    ),
)
def test_gateway_of_a_tenant_takes_no_guard_away(world, attack):
    with world.attacked(attack):
        world.charm.hook()
        world.assert_guarded()


@pytest.mark.parametrize("attack", parts.long_but(routes.TAKERS, "Gateway that redirects all"))
def test_tenant_who_takes_a_host_passes_nobody_unasked(world, attack):
    with world.attacked(attack):
        said = world.charm.hook()
        world.assert_nobody_passes_unasked()
        world.assert_blames_nobody_else(said)
