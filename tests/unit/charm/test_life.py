"""The life of the application: whatever fails becomes a status, and the next event repairs it."""

import dataclasses
import functools
import itertools

import ops
import pytest
from ops import testing

import charm
from tests.unit.charm import charm_world, fake_cluster, ingress_world
from tests.unit.charm.charm_world import state
from tests.unit.charm.fake_cluster import TIMEOUT

APP = "mesh-2"
FOLLOWS_ISTIO = ("security.istio.io/v1", "networking.istio.io/v1", "networking.istio.io/v1alpha3")


@pytest.fixture(autouse=True)
def deployed(fake):
    fake.application()


@pytest.fixture
def ctx(fake, monkeypatch) -> testing.Context[charm.IstioIntegrator]:
    charm_world.connect(fake, monkeypatch)
    fake_cluster.install_istio(fake)
    return charm_world.context()


def fresh(monkeypatch):
    """Connect to a cluster to which nothing has happened yet."""
    fake = charm_world.model()
    charm_world.connect(fake, monkeypatch)
    fake_cluster.install_istio(fake)
    fake.application()
    return fake


def run(ctx, event="config_changed", **options) -> ops.StatusBase:
    return ctx.run(getattr(ctx.on, event)(), state(**options)).unit_status


@functools.cache
def requests() -> list[tuple[str, str]]:
    """List what the charm asks of a cluster in which nothing fails, by verb and resource."""
    with pytest.MonkeyPatch.context() as patch:
        fake = fresh(patch)
        run(charm_world.context())
        return sorted(fake.asked)


SHARPENS = {
    ("list", "validatingwebhookconfigurations"),
    ("list", "peerauthentications"),
    ("list", "authorizationpolicies"),
}
"""Requests for the diagnosis of other teams' objects; the status may stay active if they fail."""


def may_be_active(verb, resource, code):
    """Tell whether all is well although the request has failed: there may be no such object."""
    return (code == 404 and verb in ("get", "list")) or (verb, resource) in SHARPENS


CODES = [403, 404, 409, 429, 500, TIMEOUT]


@pytest.mark.parametrize(
    ("codes", "every"),
    [
        pytest.param(CODES, 13, id="some"),
        *(pytest.param([code], 1, id=f"{code}", marks=pytest.mark.long) for code in CODES),
    ],
)
def test_whatever_request_fails_is_a_status_and_is_repaired(ctx, monkeypatch, codes, every):
    asked = requests()[::every]
    assert len(asked) > 1
    for (verb, resource), code in zip(asked, itertools.cycle(codes), strict=False):
        fake = fresh(monkeypatch)
        if code == TIMEOUT:
            fake.timeouts.add((verb, resource))
        else:
            fake.broken[verb, resource] = code
        said = run(ctx)
        fine = {"active"} if may_be_active(verb, resource, code) else set()
        assert said.name in {"blocked", "waiting"} | fine, (verb, resource, said)
        fake.timeouts.clear()
        fake.broken.clear()
        said = run(ctx, "update_status")
        assert said.name == "active", (verb, resource, said)


def test_units_that_leave_at_once_do_not_fail_each_other(ctx, fake):
    run(ctx)
    fake.interference.append(lambda: fake.add(fake.find("Namespace", "kf")))
    ctx.run(ctx.on.remove(), state(units=0))
    assert "istio-injection" not in fake.labels("kf")


OF_AN_INGRESS = {
    *("authorizationpolicies", "destinationrules", "envoyfilters", "gateways", "httproutes"),
    *("rolebindings", "roles", "serviceaccounts", "validatingadmissionpolicies"),
    *("validatingadmissionpolicybindings", "virtualservices"),
}
OF_OTHER_TEAMS = {
    "authorizationpolicies",
    "peerauthentications",
    "sidecars",
    "validatingwebhookconfigurations",
}
"""Without them the charm knows less, and does all that it does."""
GOES_WITH_US = {"clusterroles"}
"""Without it a removal by force leaves what the model's end takes away."""


@pytest.mark.parametrize("first", range(5))
def test_whatever_right_is_missing_is_named(ctx, monkeypatch, first):
    for verb, resource in requests()[first::5]:
        fake = fresh(monkeypatch)
        fake.forbidden.add((verb, resource))
        said = run(ctx)
        if resource in OF_AN_INGRESS | OF_OTHER_TEAMS | GOES_WITH_US:
            assert said.name != "blocked"
        else:
            assert isinstance(said, testing.BlockedStatus), (verb, resource, said)
            assert f"missing permission: {verb} {resource}" in said.message


def test_istios_own_kinds_may_be_absent_and_appear(ctx, fake):
    fake.absent.update(FOLLOWS_ISTIO)
    assert isinstance(run(ctx), testing.ActiveStatus)
    fake.absent.clear()
    assert isinstance(run(ctx, "update_status"), testing.ActiveStatus)
    fake.absent.update(FOLLOWS_ISTIO)
    ctx.run(ctx.on.remove(), state(units=0))
    assert "istio-injection" not in fake.labels("kf")


def test_kind_that_a_route_needs_and_the_cluster_lacks_is_named(ctx, fake):
    fake.absent.add("networking.istio.io/v1")
    given = dataclasses.replace(
        state(require_authentication=False), relations={ingress_world.route()}
    )
    said = ctx.run(ctx.on.config_changed(), given).unit_status
    assert said.name == "waiting"
    path = "/apis/networking.istio.io/v1/namespaces/kf/"
    assert path in said.message
    logged = [line.message for line in ctx.juju_log if path in line.message]
    assert any(each.startswith("KindAbsentError: ") for each in logged)
