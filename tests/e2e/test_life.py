"""The life of the application: units come and go, hooks are cut short, revisions follow.

Each test has a model of its own, which in the end holds what it held before the charm.
"""

import pytest

from testbed.kit import istiod, juju
from tests.e2e import life_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.mark.cluster("today")
async def test_units_come_and_go(world):
    await world.deploy()
    await world.active()
    await world.all_watch(1)
    await world.juju.do("add_unit", juju.APPLICATION, 2)
    await world.active()
    await world.all_watch(3)
    await world.juju.do("lead", f"{juju.APPLICATION}/2")
    await world.mark("by-2")
    await world.settings_arrive("by-2")
    await world.active()
    await world.kill(0)
    await world.all_watch(3)
    await world.active()
    await world.kill(2)
    await world.active()
    await world.all_watch(3)
    await world.juju.do("remove_unit", juju.APPLICATION, 2)
    await world.active()
    await world.all_watch(1)
    await world.mark("by-0")
    await world.settings_arrive("by-0")
    await world.juju.do("remove_unit", juju.APPLICATION, 1)
    await world.outside()
    await world.juju.do("add_unit", juju.APPLICATION, 1)
    await world.active()
    await world.juju.remove(juju.APPLICATION)
    await world.is_clean()


@pytest.mark.cluster("today")
async def test_option_that_is_changed_runs_no_hook_but_config_changed(world):
    """What the charm changed itself, the settings of the workload included, runs no further hook.

    Juju 4.0 runs config-changed twice.
    """
    await world.deploy()
    await world.active()
    changes = (
        {"log_level": "debug"},
        {"wait_for_containers": "main"},
        {"pod_annotations": f"{{{life_world.MARK}: one}}"},
        {"excluded_pods": "app=nobody"},
        {"restart_max_unavailable": "3"},
    )
    for change in changes:
        await world.quiet()
        before = await world.hooks()
        await world.juju.config(juju.APPLICATION, **change)
        await world.quiet()
        assert await world.hooks() - before == {"config-changed": 2}, change


@pytest.mark.cluster("today")
async def test_removal_when_istiod_has_gone_before_leaves_nothing(world, api):
    await world.deploy()
    await world.active()
    mesh_away = istiod.Istiod(api)
    await mesh_away.remove()
    try:
        await world.juju.wait_for("waiting", 60, words="istiod")
        await world.juju.remove(juju.APPLICATION)
    finally:
        await mesh_away.install()
    await world.is_clean(mesh_away.keys)
