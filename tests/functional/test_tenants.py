"""What a tenant makes in a namespace of its own harms neither model nor neighbour."""

import pytest

from tests.functional import tenant_attacks as attacks
from tests.functional import tenant_parts as parts
from tests.functional import tenant_world

pytestmark = pytest.mark.usefixtures("unreachable_node")


@pytest.fixture(scope="module")
def world(control_plane, client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tenants")
    with tenant_world.serving(control_plane, client, folder) as made:
        yield made


@pytest.fixture(autouse=True)
def running(world):
    """Start what a former attack has ended."""
    world.reconciler.start(world.charm.settings)


@pytest.mark.parametrize(
    "attack",
    parts.long_but(
        [
            *attacks.PODS,
            *attacks.FORGERIES,
            *attacks.IMPOSTORS,
            *attacks.ISTIO,
            *attacks.FLOODS,
        ],
        "pod with a status of brackets",
        "pod with 600 containers",
        "pod with the unit's labels",
        "objects by our names, with our labels",
        "fake gateway",
        "copied labels",
        "EnvoyFilter of a thousand nested lists",
    ),
)
def test_object_of_a_tenant_harms_nobody(world, attack):
    with world.attacked(attack):
        world.assert_unharmed()


@pytest.mark.parametrize(
    "attack", parts.long_but(attacks.IMPOSTORS, "fake gateway", "copied labels")
)
def test_gateway_of_a_tenant_gets_neither_guard_nor_key_while_the_real_one_is_away(world, attack):
    with world.attacked(attack), world.without_gateway():
        said = world.charm.hook()
        world.assert_guarded()
        world.assert_nothing_of_ours_is_in_the_profile()
        assert any(level == "waiting" for level, _ in said - world.baseline)
    world.assert_unharmed()


@pytest.mark.long
def test_proxies_that_hang_keep_no_neighbour_waiting(world):
    """Each four of them on a node may delay others there by a second."""
    world.reconciler.stopper.deaf.add(world.profile)
    try:
        with world.attacked(attacks.pods_that_hang(40)):
            world.assert_honest_job_completes()
    finally:
        world.reconciler.stopper.deaf.clear()


def test_application_is_removed_whatever_a_tenant_says_is_ours(world):
    """The last test of the world: it takes the application away."""
    with world.attacked(attacks.everything_said_to_be_ours):
        world.leave()
        assert world.ours() == {}
        world.assert_nothing_of_ours_is_in_the_profile()
