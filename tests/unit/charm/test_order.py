"""All of the charm's parts are removed, whatever becomes of one."""

import pytest
from ops import testing

import charm
from istio_integrator import order
from tests.unit.charm import charm_world, fake_cluster
from tests.unit.charm.charm_world import state


@pytest.fixture
def ctx(fake, monkeypatch) -> testing.Context[charm.IstioIntegrator]:
    charm_world.connect(fake, monkeypatch)
    fake_cluster.install_istio(fake)
    return testing.Context(charm.IstioIntegrator)


def parts_of(ctx, **options) -> order.Parts:
    with ctx(ctx.on.update_status(), state(**options)) as manager:
        subject = manager.charm
        return order.Parts(subject, subject._situation_without_mesh(), subject._related)


def test_step_that_the_cluster_refuses_keeps_no_later_one_from_being_taken(ctx, fake, monkeypatch):
    taken: list[str] = []

    def follow(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def step(subject):
            taken.append(f"{owner.__name__}.{name}")
            return real(subject)

        monkeypatch.setattr(owner, name, step)

    ctx.run(ctx.on.config_changed(), state())
    steps = parts_of(ctx).removal
    for step in steps:
        follow(type(step.__self__), step.__name__)
    fake.broken["patch", "namespaces"] = 500
    with pytest.raises(testing.errors.UncaughtCharmError):
        ctx.run(ctx.on.remove(), state(units=0))
    assert taken == [f"{type(step.__self__).__name__}.{step.__name__}" for step in steps]


def test_every_part_that_makes_something_is_removed(ctx):
    parts = parts_of(ctx)
    removing = [part for part in parts.reconciled if hasattr(part, "remove")]
    assert {part.remove for part in removing} <= {*parts.removal}
