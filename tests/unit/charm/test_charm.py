"""The charm at every event, with its workload and a cluster."""

import dataclasses
import json

import ops
import pytest
from ops import testing

from integrator_contract import names
from tests.unit.charm import fake_cluster, ingress_world
from tests.unit.charm.charm_world import context, joins, results, state, status, workload
from tests.unit.charm.diagnosis.world import diagnose

pytestmark = pytest.mark.usefixtures("installed")


def test_status_is_active_when_all_is_true(ctx, fake):
    assert status(ctx, state()) == testing.ActiveStatus(
        "istio-system/istiod 1.31 · admission: webhook · classic sidecars, native in Jobs · "
        "14/14 pods in mesh"
    )
    assert fake.labels("kf")["istio-injection"] == "enabled"


@pytest.mark.parametrize(
    "said", [testing.WaitingStatus("waiting for istiod"), testing.ActiveStatus("14/14 pods")]
)
@pytest.mark.parametrize("event", ["relation_joined", "stop"])
def test_event_that_asks_for_nothing_leaves_the_status_as_it_is(ctx, event, said):
    relation = testing.Relation("ingress")
    given = dataclasses.replace(state(), unit_status=said, relations={relation})
    arguments = () if event == "stop" else (relation,)
    assert status(ctx, given, getattr(ctx.on, event)(*arguments)) == said


@pytest.mark.parametrize(
    "event", ["upgrade_charm", "config_changed", "start", "leader_elected", "update_status"]
)
def test_every_event_brings_about_the_same_and_the_next_one_writes_nothing(ctx, fake, event):
    out = ctx.run(getattr(ctx.on, event)(), state())
    assert isinstance(out.unit_status, testing.ActiveStatus)
    assert joins(ctx, out) == (True, "istio-system", "default")
    assert fake.labels("kf")["istio-injection"] == "enabled"
    fake.writes.clear()
    ctx.run(ctx.on.update_status(), state())
    assert fake.writes == []


def test_istiod_that_went_away_is_named_before_what_it_keeps_from_being_replaced(ctx, fake):
    converging = state(workload(in_mesh=10, converging=4))
    assert status(ctx, converging).name == "maintenance"
    fake_cluster.set_istiod(fake, alive=False)
    shown = status(ctx, converging)
    assert shown.name == "waiting"
    assert "does not inject" in shown.message


URLS = {name: {"url": f"http://localhost:8080/{name}z"} for name in ("live", "other")}
CHECKS = {name: {"override": "replace", "threshold": 3, "http": url} for name, url in URLS.items()}


def test_pebble_events_bring_about_the_same(ctx, fake):
    notice = testing.Notice("istio-integrator.charmhub.io/mesh")
    check = testing.CheckInfo("live", failures=3, status=ops.pebble.CheckStatus.UP)
    failed = testing.CheckInfo("other", failures=3, status=ops.pebble.CheckStatus.DOWN)
    container = dataclasses.replace(
        workload(),
        notices=[notice],
        check_infos={check, failed},
        layers={"x": ops.pebble.Layer({"checks": CHECKS})},
    )
    for event in (
        ctx.on.pebble_ready(container),
        ctx.on.pebble_custom_notice(container, notice),
        ctx.on.pebble_check_recovered(container, check),
        ctx.on.pebble_check_failed(container, failed),
    ):
        fake_cluster.uninstall_istio(fake)
        out = ctx.run(event, state(container))
        assert (out.unit_status.name, joins(ctx, out)[0]) == ("waiting", False)
        fake_cluster.install_istio(fake)
        assert isinstance(status(ctx, state(container), event), testing.ActiveStatus)


def test_notices_before_relation_hooks_and_hooks_that_run_twice_do_no_harm(fake, monkeypatch):
    """Juju 4.0 runs config-changed twice, and notices overtake the hooks of relations."""
    ingress_world.connect(fake, monkeypatch)
    related = ingress_world.route()
    notice = testing.Notice("istio-integrator.charmhub.io/mesh")
    container = dataclasses.replace(workload(), notices=[notice])
    gateway = {"gateway_service": "istio-ingress/istio-ingressgateway", "hosts": "a.example"}
    given = state(container, require_authentication=False, **gateway)
    out = dataclasses.replace(given, relations={related})
    ctx = context()
    for _ in range(4):
        container = out.get_container("lifecycle")
        out = ctx.run(ctx.on.pebble_custom_notice(container, notice), out)
    (served,) = [each for each in fake.objects.values() if each["kind"] == "VirtualService"]
    assert [entry["name"] for entry in served["spec"]["http"]]
    shown = out.unit_status
    fake.writes.clear()
    for event in (ctx.on.relation_created, ctx.on.relation_changed, ctx.on.relation_changed):
        out = ctx.run(event(out.get_relation(related.id)), out)
    for _ in range(2):
        out = ctx.run(ctx.on.config_changed(), out)
    assert fake.writes == []
    assert out.unit_status == shown


def test_without_trust_it_is_blocked_with_the_command(ctx, fake):
    fake.forbidden.add(("*", "*"))
    assert status(ctx, state()) == testing.BlockedStatus(
        "missing permission: list mutatingwebhookconfigurations; "
        "run: juju trust mesh-2 --scope=cluster"
    )


def test_api_server_that_does_not_answer_is_waited_for_and_the_workload_goes_on(
    ctx, fake, tmp_path
):
    before = ctx.run(ctx.on.start(), state(workload(files=tmp_path)))
    was = joins(ctx, before)
    fake.unreachable = True
    after = ctx.run(ctx.on.update_status(), before)
    assert isinstance(after.unit_status, testing.WaitingStatus)
    assert joins(ctx, after) == was


def test_charm_outside_of_kubernetes_waits(ctx, monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    said = status(ctx, state())
    assert isinstance(said, testing.WaitingStatus)
    assert "no access to the Kubernetes API" in said.message


def test_change_in_between_is_tried_again_at_once(ctx, fake):
    fake.interference.append(lambda: fake.namespace("kf", team="x"))
    assert isinstance(status(ctx, state()), testing.ActiveStatus)
    assert fake.labels("kf")["istio-injection"] == "enabled"


def test_wrong_options_block_and_change_nothing(ctx, fake):
    said = status(ctx, state(revision="1.31", log_level="x"))
    assert isinstance(said, testing.BlockedStatus)
    assert "revision='1.31'" in said.message
    assert "log-level='x'" in said.message
    warned = [line.message for line in ctx.juju_log if "ConfigError" in line.message]
    assert [line.partition("=")[0] for line in warned] == [
        "ConfigError: revision",
        "ConfigError: log-level",
    ]
    assert fake.writes == []


def test_revision_that_does_not_exist_blocks(ctx):
    assert status(ctx, state(revision="x")) == testing.BlockedStatus(
        "revision x does not exist; there is default"
    )


def test_related_istio_says_which_of_several_it_is(ctx, fake):
    fake_cluster.install_istio(fake, namespace="mesh-b")
    alone = state()
    assert "istiod-namespace=" in status(ctx, alone).message
    relation = testing.Relation("istio-metadata", remote_app_data={"root_namespace": "mesh-b"})
    related = dataclasses.replace(alone, relations={relation})
    assert status(ctx, related, ctx.on.relation_changed(relation)).message.startswith("mesh-b/")
    configured = dataclasses.replace(related, config={"istiod-namespace": "istio-system"})
    assert status(ctx, configured).message.startswith("istio-system/")
    told = status(ctx, related, ctx.on.relation_broken(relation)).message
    assert "istiod-namespace=" in told


def take(fake):
    """Make another integrator of the model its owner."""
    fake.application("first")
    first = {"owner": "kf.first", "set": {}, "before": {}}
    model = fake.find("Namespace", "kf")["metadata"]
    model["annotations"] = {"istio-integrator.charmhub.io/membership": json.dumps(first)}


def test_integrator_that_served_before_another_withdraws_until_that_is_gone(ctx, fake):
    member = {names.PART_OF: names.PROFILE, "istio-injection": "enabled"}
    fake.namespace("kf-user", **member)
    out = ctx.run(ctx.on.start(), state(mtls="strict", pod_networks="10.1.0.0/16"))
    for is_taken in (True, False):
        if is_taken:
            take(fake)
            fake.writes.clear()
            ctx.run(ctx.on.update_status(), dataclasses.replace(out, leader=False))
            assert fake.writes == []
            fake.broken["list", "peerauthentications"] = 500
            ctx.run(ctx.on.update_status(), out)
            assert not any(map(fake_cluster.is_webhooks, fake.objects.values()))
            fake.broken.clear()
        else:
            fake.delete("StatefulSet", "first", "kf")
        out = ctx.run(ctx.on.update_status(), out)
        assert ("kf.first" in out.unit_status.message) is is_taken
        if is_taken:
            assert "OPTION_WRITES_NOTHING" not in {
                row.message for row in diagnose(ctx, "security", out)
            }
            with pytest.raises(
                testing.ActionFailed, match="; run: juju remove-application mesh-2"
            ):
                ctx.run(ctx.on.action("list-uninjected"), out)
        (running,) = out.get_container("lifecycle").service_statuses.values()
        assert (running is ops.pebble.ServiceStatus.ACTIVE) is not is_taken
        assert any(map(fake_cluster.is_webhooks, fake.objects.values())) is not is_taken
        owned = {obj["kind"] for obj in fake.objects.values() if fake_cluster.is_charms(obj)}
        shared = {"EnvoyFilter", "PeerAuthentication"}
        assert owned & shared == (set() if is_taken else shared)


def test_controller_model_is_left_alone(ctx, fake):
    fake.labels("kf")["controller.juju.is/id"] = "x"
    out = ctx.run(ctx.on.start(), state(pod_labels="{a: b}"))
    assert out.unit_status == testing.BlockedStatus(
        "a controller model never joins a mesh: deploy into another model"
    )
    assert not out.get_container("lifecycle").plan.services
    assert [each.part for each in results(ctx, out).facts.problems] == ["membership"]
    assert fake.writes == []


def test_related_charms_hear_of_versions_beside_an_invalid_option(ctx, installed):
    related = ingress_world.route()
    given = dataclasses.replace(state(revision="1.31"), relations={related})
    out = ctx.run(ctx.on.config_changed(), given)
    assert out.unit_status.name == "blocked"
    assert "_supported_versions" in out.get_relation(related.id).local_app_data
