"""What the charm tells its workload, and what it says of the workload's answers."""

import dataclasses

import ops
import pytest
from ops import testing

from istio_integrator.lifecycle import command_line
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import POD, command, state, status, workload


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("proxy_shutdown", False, "--proxy-shutdown false"),
        ("wait_for_containers", "main, wait", "--wait-for-containers main,wait"),
        ("ignore_containers", "vault-agent", "--ignore-containers vault-agent"),
        ("delete_broken_pods", True, "--replace-broken-pods true"),
        ("served_namespaces", "model", "--lifecycle-namespaces model"),
        ("excluded_pods", "app in (a, b)", "--excluded-pods 'app in (a, b)'"),
        ("restart_pods", "manual", "--convergence manual"),
        ("restart_max_unavailable", "5", "--restart-max-unavailable 5"),
        ("restart_max_unavailable", " 10% ", "--restart-max-unavailable 10%"),
    ],
)
def test_options_reach_the_workload(ctx, fake, option, value, expected):
    fake_cluster.install_istio(fake)
    assert expected in command(ctx.run(ctx.on.config_changed(), state(**{option: value})))


def test_level_of_the_log_reaches_the_workload_without_a_restart(ctx, fake):
    fake_cluster.install_istio(fake)
    before = ctx.run(ctx.on.config_changed(), state())
    after = ctx.run(ctx.on.config_changed(), state(log_level="debug"))
    assert command(after) == command(before)
    files = after.get_container("lifecycle").get_filesystem(ctx)
    assert (files / command_line.LEVEL_FILE.lstrip("/")).read_text() == "debug"


def test_membership_none_looks_after_pods_without_joining(ctx, fake):
    fake_cluster.install_istio(fake)
    out = ctx.run(ctx.on.start(), state(mesh_mode="none"))
    assert out.unit_status == testing.ActiveStatus(
        "istio-system/istiod 1.31 · admission: not needed · native sidecars"
    )
    assert "istio-injection" not in fake.labels("kubeflow")
    assert "--convergence off" in command(out)


def test_membership_of_selected_pods_leaves_the_namespace(ctx, fake):
    fake_cluster.install_istio(fake)
    options = {"included_pods": "app=ui"}
    out = ctx.run(ctx.on.start(), state(**options))
    assert isinstance(out.unit_status, testing.ActiveStatus)
    assert "istio-injection" not in fake.labels("kubeflow")
    assert "--membership selected" in command(out)
    assert "--included-pods app=ui" in command(out)


def test_follower_runs_its_workload_and_writes_nothing(ctx, fake):
    fake_cluster.install_istio(fake)
    out = ctx.run(ctx.on.start(), state(leader=False))
    assert "--unit istio-integrator/0" in command(out)
    assert fake.writes == []


def test_container_that_is_not_there_yet_is_waited_for(ctx, fake):
    fake_cluster.install_istio(fake)
    assert status(ctx, state(workload(can_connect=False))) == testing.WaitingStatus(
        "admission: waiting for the lifecycle container"
    )


def test_pods_being_replaced_are_maintenance(ctx, fake):
    fake_cluster.install_istio(fake)
    container = workload(POD, eligible=15, converging=1)
    assert status(ctx, state(container)) == testing.MaintenanceStatus(
        "14/15 pods in mesh, 1 being replaced; run: juju config istio-integrator "
        "restart-pods=manual; this stops it"
    )


def test_workload_that_again_has_no_sidecar_blocks_with_the_reason(ctx, fake):
    fake_cluster.install_istio(fake)
    troubles = [{"workload": "StatefulSet/minio", "reason": "x", "message": "again no sidecar"}]
    container = workload(POD, eligible=15, troubles=troubles)
    assert status(ctx, state(container)) == testing.BlockedStatus(
        "StatefulSet/minio: again no sidecar; "
        "run: juju run istio-integrator/leader list-uninjected"
    )


def test_workload_without_an_answer_is_waited_for(ctx, fake):
    fake_cluster.install_istio(fake)
    said = status(ctx, state(workload(code=1, stderr="no connection")))
    assert said == testing.WaitingStatus("the workload can't tell: no connection")


def test_check_that_is_down_is_waited_for(ctx, fake):
    fake_cluster.install_istio(fake)
    check = testing.CheckInfo("ready", failures=3, status=ops.pebble.CheckStatus.DOWN)
    layer = ops.pebble.Layer(
        {
            "checks": {
                "ready": {
                    "override": "replace",
                    "threshold": 3,
                    "http": {"url": "http://localhost:8080/readyz"},
                }
            }
        }
    )
    container = dataclasses.replace(workload(), check_infos={check}, layers={"x": layer})
    assert status(ctx, state(container)) == testing.WaitingStatus(
        "waiting for lifecycle to watch the cluster"
    )


def test_old_proxies_are_counted_and_leave_the_unit_active(ctx, fake):
    fake_cluster.install_istio(fake)
    assert status(ctx, state(workload(stale=3))) == testing.ActiveStatus(
        "istio-system/istiod 1.31 · admission: webhook · native sidecars · 14/14 pods in mesh, "
        "3 with an old proxy: restart-stale"
    )
