"""The end of the application, as the whole charm brings it about."""

import json

import pytest
from ops import testing

from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state, told


def test_removal_with_wrong_options_is_done(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.start(), state())
    ctx.run(ctx.on.remove(), state(revision="1.31", units=0))
    assert "istio-injection" not in fake.labels("kubeflow")


def test_removal_leaves_the_cluster_as_it_was(ctx, fake):
    fake_cluster.install_istio(fake)
    before = _objects(fake)
    ctx.run(ctx.on.start(), state())
    metadata = {"name": "istio-integrator-convergence", "namespace": "kubeflow"}
    fake.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    out = ctx.run(ctx.on.remove(), state(leader=False, units=0))
    assert _objects(fake) == before
    assert told(ctx, out).restart_pods == "off"
    ctx.run(ctx.on.remove(), state(leader=False, units=0))
    assert _objects(fake) == before


def test_application_that_was_removed_by_force_recovers_when_it_is_deployed_again(ctx, fake):
    """Juju 4.0.15 runs no hook then, and leaves the StatefulSet and the ClusterRole."""
    fake_cluster.install_istio(fake)
    before = _objects(fake)
    ctx.run(ctx.on.start(), state())
    left = _objects(fake)
    for event in (ctx.on.install(), ctx.on.config_changed(), ctx.on.start()):
        out = ctx.run(event, state())
    assert out.unit_status.name == "active"
    assert _objects(fake) == left
    ctx.run(ctx.on.remove(), state(units=0))
    assert _objects(fake) == before


def _objects(fake) -> list[str]:
    found = []
    for obj in fake.objects.values():
        metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion" and v}
        found.append(json.dumps({**obj, "metadata": metadata}, sort_keys=True))
    return sorted(found)


def test_scaling_down_removes_nothing(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.start(), state())
    ctx.run(ctx.on.remove(), state(units=1))
    assert fake.labels("kubeflow")["istio-injection"] == "enabled"


def test_event_during_the_removal_brings_nothing_back(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.update_status(), state(units=0))
    assert fake.writes == []


def test_missing_right_hides_no_failure_of_a_removal(ctx, fake):
    """Juju runs the hook again, which may then succeed."""
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.start(), state())
    fake.forbidden.add(("delete", "mutatingwebhookconfigurations"))
    fake.broken["patch", "namespaces"] = 500
    with pytest.raises(testing.errors.UncaughtCharmError):
        ctx.run(ctx.on.remove(), state(units=0))


def test_removal_without_rights_does_not_fail(ctx, fake):
    fake_cluster.install_istio(fake)
    before = _objects(fake)
    fake.forbidden.add(("*", "*"))
    ctx.run(ctx.on.remove(), state(units=0))
    assert _objects(fake) == before
