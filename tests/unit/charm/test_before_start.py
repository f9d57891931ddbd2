"""What a new unit does before Juju has started it: nothing that start does anyway."""

import dataclasses

import ops
import pytest
from ops import testing

import charm
from tests.unit.charm import charm_world, fake_cluster
from tests.unit.charm.charm_world import state

MESH = testing.Relation("service-mesh", remote_app_name="kfp-api")


@pytest.fixture
def ctx(fake, monkeypatch, tmp_path) -> testing.Context[charm.IstioIntegrator]:
    """Run hooks in one and the same folder of the charm, as in a pod."""
    charm_world.connect(fake, monkeypatch)
    fake_cluster.install_istio(fake)
    return testing.Context(charm.IstioIntegrator, charm_root=charm_world.root(tmp_path))


def related():
    return dataclasses.replace(state(), relations=[MESH])


def test_events_between_install_and_start_leave_the_cluster_to_start(ctx, fake):
    out = ctx.run(ctx.on.install(), related())
    for event in (ctx.on.relation_created(MESH), ctx.on.config_changed()):
        out = ctx.run(event, out)
    assert fake.requests == []
    assert out.unit_status == testing.UnknownStatus()
    out = ctx.run(ctx.on.start(), out)
    assert isinstance(out.unit_status, ops.ActiveStatus)
    assert fake.labels("kubeflow")["istio-injection"] == "enabled"


@pytest.mark.parametrize("event", ["relation_changed", "leader_elected", "update_status"])
def test_other_events_before_start_are_dealt_with(ctx, fake, event):
    out = ctx.run(ctx.on.install(), related())
    given = (MESH,) if event == "relation_changed" else ()
    ctx.run(getattr(ctx.on, event)(*given), out)
    assert fake.requests


@pytest.mark.parametrize("event", ["relation_created", "config_changed"])
def test_events_after_start_are_dealt_with(ctx, fake, event):
    out = ctx.run(ctx.on.install(), related())
    out = ctx.run(ctx.on.start(), out)
    fake.requests.clear()
    given = out.relations if event == "relation_created" else ()
    ctx.run(getattr(ctx.on, event)(*given), out)
    assert fake.requests


def test_pod_that_replaces_one_which_never_started_waits_for_no_install(ctx, fake):
    """Juju runs no install there, and the mark went with the folder."""
    ctx.run(ctx.on.config_changed(), related())
    assert fake.requests
