"""The order in which the charm's parts are reconciled, removed and withdrawn."""

import pytest
from ops import testing

import charm
from istio_integrator import order
from tests.unit.charm import charm_world, fake_cluster
from tests.unit.charm.charm_world import state

RECONCILED = [
    "Claims",
    "Admission",
    "Membership",
    "Lifecycle",
    "Authorization",
    "Ingress",
    "MutualTls",
    "Concerns",
    "Observability",
]
REMOVED = [
    "Lifecycle.stop_convergence",
    "Lifecycle.give_notice",
    "MutualTls.remove",
    "Ingress.remove",
    "Authorization.remove",
    "Membership.remove",
    "Admission.remove",
    "Manifests.prune_retired",
    "Lifecycle.remove",
    "Claims.remove",
]


@pytest.fixture
def ctx(fake, monkeypatch) -> testing.Context[charm.IstioIntegrator]:
    charm_world.connect(fake, monkeypatch)
    fake_cluster.install_istio(fake)
    return testing.Context(charm.IstioIntegrator)


def parts_of(ctx, **options) -> order.Parts:
    with ctx(ctx.on.update_status(), state(**options)) as manager:
        subject = manager.charm
        return order.Parts(subject, subject._context_without_mesh(), subject._related)


@pytest.fixture
def taken(ctx, monkeypatch) -> list[str]:
    """Write down each step as it is taken."""
    steps: list[str] = []

    def follow(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def step(subject):
            steps.append(f"{owner.__name__}.{name}")
            return real(subject)

        monkeypatch.setattr(owner, name, step)

    parts = parts_of(ctx)
    for part in parts.reconciled:
        follow(type(part), "reconcile")
    for step in parts.removal:
        follow(type(step.__self__), step.__name__)
    steps.clear()
    return steps


@pytest.mark.parametrize("event", ["config_changed", "upgrade_charm", "leader_elected"])
def test_each_event_reconciles_every_part_in_order(ctx, taken, event):
    ctx.run(getattr(ctx.on, event)(), state())
    pruned = [] if event == "config_changed" else ["Manifests.prune_retired"]
    assert taken == [
        *(f"{name}.reconcile" for name in RECONCILED),
        *pruned,
    ]


def test_removal_takes_every_step_in_order(ctx, taken):
    ctx.run(ctx.on.remove(), state(units=0))
    assert taken == REMOVED


def test_step_that_the_cluster_refuses_keeps_no_later_one_from_being_taken(ctx, taken, fake):
    ctx.run(ctx.on.config_changed(), state())
    taken.clear()
    fake.broken["patch", "namespaces"] = 500
    with pytest.raises(testing.errors.UncaughtCharmError):
        ctx.run(ctx.on.remove(), state(units=0))
    assert taken == REMOVED


def test_every_part_that_makes_something_is_removed(ctx):
    parts = parts_of(ctx)
    removing = [part for part in parts.reconciled if hasattr(part, "remove")]
    assert {part.remove for part in removing} <= {*parts.removal}
    assert [type(part).__name__ for part in parts.reconciled] == RECONCILED


def test_follower_withdraws_its_own_workload_alone(ctx):
    steps = parts_of(ctx, leader=False).withdrawal
    assert [step.__qualname__ for step in steps] == ["Lifecycle.stop"]


def test_leader_withdraws_what_units_share_too(ctx):
    steps = parts_of(ctx).withdrawal
    assert [step.__qualname__ for step in steps] == [
        "Lifecycle.stop",
        "MutualTls.remove",
        "Admission.remove",
    ]
