"""A charm and an image of different revisions notice each other, and break nothing."""

import dataclasses

import ops
import pytest
from ops import testing

from integrator_contract import schema
from tests import asked
from tests.unit.charm import charm_world
from tests.unit.charm.charm_world import state

pytestmark = pytest.mark.usefixtures("installed")
OURS = schema.SCHEMA
OLD = f"{asked.PROGRAM} run --model kf --old true"
IMAGE = "lifecycle-image=IMAGE"
OTHER = (
    "lifecycle-image does not fit the charm; run: juju refresh mesh-2; or add "
    f"--resource {IMAGE}, the image of the charm's revision (contract {{}}, here {OURS})"
)
OTHERS = [
    pytest.param(None, OTHER.format("none"), id="none"),
    pytest.param("1", OTHER.format("1"), id="numbered"),
    pytest.param("0" * 8, OTHER.format("0" * 8), id="another"),
]


def container(contract, service=""):
    """Run an image of a contract, with a service of an earlier charm."""
    made = asked.of_image(charm_world.workload(), contract)
    if not service:
        return made
    plan = {"override": "replace", "command": service, "startup": "enabled"}
    layer = ops.pebble.Layer({"services": {"lifecycle": plan}})
    active = {"lifecycle": ops.pebble.ServiceStatus.ACTIVE}
    return dataclasses.replace(made, layers={"lifecycle": layer}, service_statuses=active)


@pytest.mark.parametrize("service", ["", OLD], ids=["new", "running"])
@pytest.mark.parametrize(("contract", "words"), OTHERS)
def test_other_image_is_said_and_nothing_is_started_or_stopped(  # noqa: PLR0917 - a table
    ctx, fake, caplog, contract, words, service
):
    given = container(contract, service)
    out = ctx.run(ctx.on.config_changed(), state(given))
    assert isinstance(out.unit_status, ops.BlockedStatus)
    assert "juju refresh mesh-2" in out.unit_status.message
    assert f"blocked: {words}" in caplog.text
    after = out.get_container("lifecycle")
    assert [each.command for each in after.plan.services.values()] == [OLD][: bool(service)]
    assert after.service_statuses == given.service_statuses
    # Nor are the webhook's servers replaced.
    server = ("Deployment", "mesh-2-admission", "kf")
    assert fake.find(*server) is None
    ctx.run(ctx.on.config_changed(), state(container(OURS)))
    assert fake.find(*server)


def test_action_says_that_the_image_is_another(ctx):
    words = "lifecycle-image does not fit the charm; run: juju refresh"
    with pytest.raises(testing.ActionFailed, match=words):
        ctx.run(ctx.on.action("list-uninjected"), state(container(None)))


def test_image_is_asked_once_until_the_service_is_told(ctx):
    def commands(given):
        ctx.exec_history.clear()
        out = ctx.run(ctx.on.config_changed(), state(given))
        asked = ctx.exec_history.get("lifecycle", ())
        # The image's user has no home directory.
        return [(*one.command[1:], one.working_dir) for one in asked], out.get_container(
            "lifecycle"
        )

    first, told = commands(container(OURS))
    assert (first, commands(told)[0]) == ([("--version", "/")], [])


def test_refreshed_image_is_put_to_work(ctx):
    out = ctx.run(ctx.on.config_changed(), state(container(None)))
    fitting = asked.of_image(out.get_container("lifecycle"), OURS)
    out = ctx.run(ctx.on.config_changed(), state(fitting))
    assert "--contract" in out.get_container("lifecycle").plan.services["lifecycle"].command
    assert not isinstance(out.unit_status, ops.BlockedStatus)


def test_image_that_does_not_answer_is_waited_for(ctx):
    broken = testing.Exec((asked.PROGRAM, "--version"), return_code=1, stderr="no python")
    silent = dataclasses.replace(container(OURS), execs={broken})
    out = ctx.run(ctx.on.config_changed(), state(silent, mesh_mode="none"))
    assert isinstance(out.unit_status, ops.WaitingStatus)
    assert "stderr='no python'" in out.unit_status.message
