"""The end of the application: all of it goes, and what it serves before what authenticates it."""

import contextlib
import dataclasses
import itertools
import json
import time

import ops
import pytest
from ops import testing

from integrator_contract import service
from tests import asked
from tests.unit.cases import cases
from tests.unit.charm import fake_cluster, ingress_world
from tests.unit.charm.charm_world import SETTINGS, state, told, workload
from tests.unit.charm.ingress_world import (
    OURS,
    OWN,
    OWNER,
    World,
    auth,
    authority,
    route,
    secret,
    sign,
)

INJECTION = "istio-injection"


@pytest.fixture
def served(fake, monkeypatch):
    """A cluster with an Istio and a gateway."""
    ingress_world.connect(fake, monkeypatch)
    return fake


def kept_by_the_workload(fake):
    """Add the object that the workload writes while it runs."""
    fake.put("ConfigMap", f"{OURS}-convergence")


def parts_in_order(writes, parts):
    """Say in which order the parts were first touched."""
    found = {
        part: n
        for n, write in reversed([*enumerate(writes)])
        for part in parts
        if write.startswith(part)
    }
    return sorted(found, key=lambda part: found[part])


def test_removal_takes_the_label_early_and_the_workload_last(served, fake, monkeypatch, tmp_path):
    world = World(fake, route(), auth())
    world.files = tmp_path
    world.run()
    kept_by_the_workload(fake)
    assert fake.labels("kf")[INJECTION] == "enabled"
    fake.writes.clear()
    push = ops.Container.push

    def write(*arguments, **named):
        fake.writes.append("write settings")
        push(*arguments, **named)

    monkeypatch.setattr(ops.Container, "push", write)

    world.remove()

    order = [
        # Without convergence, so that nothing is evicted while all of it goes.
        "write settings",
        "delete gateways",
        "patch namespaces",
        "delete mutatingwebhookconfigurations",
        "delete deployments",
        "delete configmaps mesh-2-admission",
        "delete secrets mesh-2-admission-tls",
        "delete virtualservices",
        "delete envoyfilters",
        "delete configmaps mesh-2-convergence",
    ]
    assert parts_in_order(fake.writes, order) == order
    assert INJECTION not in fake.labels("kf")


@pytest.mark.parametrize("kind", ["services", "namespaces"])
def test_evictions_end_whatever_the_api_server_answers(served, fake, tmp_path, kind):
    world = World(fake, route(), auth())
    world.files = tmp_path
    world.run()
    for verb in ("get", "list"):
        fake.broken[verb, kind] = 500
    with contextlib.suppress(testing.errors.UncaughtCharmError):
        world.remove()
    assert json.loads((tmp_path / SETTINGS.name).read_text())["joined"] is False


SECRET = "istio-integrator.kf.mesh-2"


@cases(
    ("labels", "owner", "stays"),
    ours=({OWNER: "kf.mesh-2"}, {}, False),
    forged=({OWNER: "kf.mesh-2"}, {"uid": "x"}, True),
    another_s=({OWNER: "other.mesh-2"}, {}, True),
    nobody_says=({}, {}, True),
)
def test_only_a_certificate_of_ours_goes_when_the_gateway_moves(
    served, fake, labels, owner, stays
):
    related = route(), auth(), authority()
    world = World(fake, *related, hosts="kf.example.com")
    world.run()
    sign(world)
    world.run()
    fake.delete("Secret", SECRET, "istio-ingress")
    found = secret(fake, SECRET, "istio-ingress", **labels)
    fake.may_change = {f"secrets istio-ingress {SECRET}"} if not labels else set()
    (guard,) = world.all("EnvoyFilter")
    (reference,) = guard["metadata"]["ownerReferences"]
    found["metadata"]["ownerReferences"] = [{"uid": "another"}, {**reference, **owner}]

    world.config |= OWN
    world.run()

    assert [gateway["spec"]["selector"] for gateway in world.all("Gateway")] != [
        {"istio": "ingressgateway"}
    ]
    assert (fake.find("Secret", SECRET, "istio-ingress") is not None) is stays


@pytest.fixture
def waits(served, fake, monkeypatch):
    """Write down between the writes how long the ingress waits; the gateway has no server then."""

    def wait(seconds):
        fake.writes.append(f"wait {seconds}")
        asked.SERVICE.closes()

    monkeypatch.setattr(time, "sleep", wait)


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("moves", [False, True], ids=["goes", "moves"])
def test_gateway_has_time_to_forget_the_routes_before_the_guard_goes(fake, moves):
    world = World(fake, route(), auth(), hosts="kf.example.com")
    world.run()
    fake.writes.clear()
    if moves:
        world.config |= OWN
        world.run()
        guarded = ["patch envoyfilters", "delete envoyfilters"]
        then = [*guarded, "patch virtualservices", "patch gateways"]
        first = ["delete virtualservices", "delete gateways"]
    else:
        world.remove()
        then = ["delete envoyfilters"]
        first = ["delete gateways", "delete virtualservices"]
    order = [*first, "wait 1", *then]
    assert parts_in_order(fake.writes, order) == order


def test_removal_does_not_fail_while_the_workload_is_silent(served, fake, monkeypatch):
    world = World(fake, route(), auth())
    world.run()
    monkeypatch.setattr(service, "LISTENER_PORT", 1)
    monkeypatch.setattr(time, "monotonic", itertools.count(step=0.5).__next__)
    world.remove()
    assert not [each for each in fake.objects.values() if fake_cluster.is_charms(each)]
    assert INJECTION not in fake.labels("kf")


def test_object_whose_deletion_has_begun_keeps_no_other(ctx, fake, installed):
    ctx.run(ctx.on.start(), state())
    fake.find("Deployment", f"{OURS}-admission", "kf")["metadata"]["deletionTimestamp"] = "2026"
    ctx.run(ctx.on.remove(), state(units=0))
    left = [each["kind"] for each in fake.objects.values() if fake_cluster.is_charms(each)]
    assert left == ["Deployment"]


def test_removal_with_wrong_options_is_done(ctx, fake, installed):
    ctx.run(ctx.on.start(), state())
    ctx.run(ctx.on.remove(), state(revision="1.31", units=0))
    assert "istio-injection" not in fake.labels("kf")


def test_application_that_was_removed_by_force_recovers_when_it_is_deployed_again(
    ctx, fake, installed
):
    """Juju 4.0.15 runs no hook then, and leaves the StatefulSet and the ClusterRole."""
    before = _objects(fake)
    ctx.run(ctx.on.start(), state())
    left = _objects(fake)
    for event in (ctx.on.install(), ctx.on.config_changed(), ctx.on.start()):
        out = ctx.run(event, state())
    assert out.unit_status.name == "active"
    assert _objects(fake) == left
    kept_by_the_workload(fake)
    ctx.run(ctx.on.remove(), state(leader=False, units=0))
    assert _objects(fake) == before


def _objects(fake) -> list[str]:
    found = []
    for obj in fake.objects.values():
        metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion" and v}
        found.append(json.dumps({**obj, "metadata": metadata}, sort_keys=True))
    return sorted(found)


@pytest.mark.parametrize("event", ["stop", "remove"])
def test_scaling_down_removes_nothing(ctx, fake, installed, event):
    ctx.run(ctx.on.start(), state())
    fake.requests.clear()
    ctx.run(getattr(ctx.on, event)(), state(units=1))
    assert fake.requests == []


EVENTS = [
    *("stop", "config_changed", "update_status", "leader_elected", "upgrade_charm"),
    *("relation_departed", "relation_broken", "pebble_ready", "pebble_custom_notice"),
]


@pytest.mark.parametrize("event", EVENTS)
def test_removal_begins_in_the_first_hook_without_planned_units(
    ctx, fake, installed, tmp_path, event
):
    """Juju 4.0.15 may not run the last hook to its end."""
    before, container = _objects(fake), workload(files=tmp_path)
    given = dataclasses.replace(state(container), relations={testing.Relation("logging")})
    out = ctx.run(ctx.on.start(), given)
    (logging,) = out.relations
    container, notice = out.get_container("lifecycle"), testing.Notice("example.org/pods")
    container = dataclasses.replace(container, notices=[notice])
    ending = dataclasses.replace(out, planned_units=0, leader=False, containers={container})
    about = {
        "relation_departed": (logging,),
        "relation_broken": (logging,),
        "pebble_ready": (container,),
        "pebble_custom_notice": (container, notice),
    }.get(event, ())
    out = ctx.run(getattr(ctx.on, event)(*about), ending)
    assert _objects(fake) == before
    assert told(ctx, out).joined is False
    written = [*fake.writes]
    fake.requests.clear()
    ctx.run(ctx.on.relation_broken(logging), out)
    assert fake.requests == []
    ctx.run(ctx.on.remove(), out)
    assert fake.requests
    assert fake.writes == written


def test_hook_before_the_last_does_not_fail_for_what_the_next_one_repeats(ctx, fake, installed):
    out = ctx.run(ctx.on.start(), state())
    fake.broken["patch", "namespaces"] = 500
    out = ctx.run(ctx.on.stop(), dataclasses.replace(out, planned_units=0))
    assert ("patch", "namespaces") in fake.asked
    assert fake.labels("kf")[INJECTION] == "enabled"
    fake.broken.clear()
    ctx.run(ctx.on.remove(), out)
    assert INJECTION not in fake.labels("kf")


def test_missing_right_hides_no_failure_of_a_removal(ctx, fake, installed):
    """Juju runs the hook again, which may then succeed."""
    ctx.run(ctx.on.start(), state())
    fake.forbidden.add(("delete", "mutatingwebhookconfigurations"))
    fake.broken["patch", "namespaces"] = 500
    with pytest.raises(testing.errors.UncaughtCharmError):
        ctx.run(ctx.on.remove(), state(units=0))


def test_removal_without_rights_does_not_fail_and_says_what_stays(ctx, fake, installed, caplog):
    before = _objects(fake)
    fake.forbidden.add(("*", "*"))
    ctx.run(ctx.on.remove(), state(units=0))
    assert _objects(fake) == before
    assert "Not removed, for want of a right: deployments is forbidden: " in caplog.text
    logged = [line.message.partition(" is forbidden")[0] for line in ctx.juju_log]
    assert "Not removed, for want of a right: secrets" in logged


def test_step_that_the_cluster_refuses_keeps_no_other_from_being_taken(ctx, fake, installed):
    before = _objects(fake)
    ctx.run(ctx.on.start(), state())
    kept_by_the_workload(fake)
    fake.broken["patch", "namespaces"] = 500
    with pytest.raises(testing.errors.UncaughtCharmError):
        ctx.run(ctx.on.remove(), state(units=0))
    assert fake.labels("kf")[INJECTION] == "enabled"
    del fake.labels("kf")[INJECTION]
    fake.find("Namespace", "kf")["metadata"].pop("annotations")
    assert _objects(fake) == before
