"""The option mtls, on a small API server, event after event."""

import ops
import pytest

from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state, status, workload
from tests.unit.charm.security import members

STRICT = "istio-integrator-strict"


@pytest.fixture
def world(ctx, fake):
    fake_cluster.install_istio(fake)
    members.member(fake, "minio")
    members.member(fake, "katib")
    fake.add(members.service("katib", 443, 8443))
    fake.add(members.webhook("katib", "katib"))
    return fake


def policies(fake):
    """Our policies: the selected application, its ports and their modes."""
    return {
        obj["metadata"]["name"]: obj["spec"]
        for obj in fake.objects.values()
        if obj["kind"] == "PeerAuthentication"
    }


def strict(**options):
    return state(mtls="strict", **options)


EXCEPTION = {
    "selector": {"matchLabels": {"app.kubernetes.io/name": "katib"}},
    "portLevelMtls": {"8443": {"mode": "PERMISSIVE"}},
}


def is_strict(fake):
    return policies(fake).get(STRICT) == {"mtls": {"mode": "STRICT"}}


def test_by_default_nothing_is_written_and_nothing_more_is_read(ctx, world):
    ctx.run(ctx.on.config_changed(), state())
    assert policies(world) == {}
    read = {kind for verb, kind in world.asked if verb in ("get", "list")}
    assert not read & {"customresourcedefinitions", "apiservices"}


def test_strict_is_the_whole_model_but_for_what_the_api_server_calls(ctx, world):
    said = status(ctx, strict())
    assert is_strict(world)
    (name,) = set(policies(world)) - {STRICT}
    assert name.startswith("istio-integrator-plain-katib-")
    assert policies(world)[name] == EXCEPTION
    assert isinstance(said, ops.ActiveStatus)
    assert "strict mutual TLS, 1 port open to plain text" in said.message


def test_what_is_excepted_is_there_first_and_goes_last(ctx, world):
    ctx.run(ctx.on.config_changed(), strict())
    written = [each for each in world.writes if "peerauthentications" in each]
    assert "katib" in written[0]
    assert STRICT in written[1]
    world.writes.clear()
    ctx.run(ctx.on.config_changed(), state())
    gone = [each for each in world.writes if "peerauthentications" in each]
    assert STRICT in gone[0]
    assert "katib" in gone[1]
    assert policies(world) == {}


def test_nothing_is_written_again_and_removal_leaves_what_others_wrote(ctx, world):
    theirs = members.peers("theirs", selector={"app": "x"}, mode="DISABLE")
    world.add(theirs)
    ctx.run(ctx.on.config_changed(), strict())
    world.writes.clear()
    ctx.run(ctx.on.update_status(), strict())
    assert not [each for each in world.writes if "peerauthentications" in each]
    ctx.run(ctx.on.remove(), strict(units=0))
    assert policies(world) == {"theirs": theirs["spec"]}


def test_known_victim_keeps_strict_off_until_it_is_named(ctx, world):
    world.add(members.service("minio", 9000, type="LoadBalancer"))
    said = status(ctx, strict())
    assert isinstance(said, ops.BlockedStatus)
    assert "preview-security mtls=strict; Service minio (LoadBalancer) leads to minio:9000" in (
        said.message
    )
    assert "add minio:9000 to juju config istio-integrator mtls-exceptions" in said.message
    assert policies(world) == {}
    said = status(ctx, strict(mtls_exceptions="minio:9000"))
    assert "strict mutual TLS, 2 ports open" in said.message
    assert is_strict(world)


def test_victim_that_comes_later_is_told_and_strict_stays(ctx, world):
    ctx.run(ctx.on.config_changed(), strict())
    world.add(members.service("minio", 9000, type="NodePort"))
    said = status(ctx, strict())
    assert isinstance(said, ops.BlockedStatus)
    assert said.message.startswith("mtls=strict cuts off callers; run: juju run istio-integrator/")
    assert "; Service minio (NodePort)" in said.message
    assert is_strict(world)


def test_several_victims_are_counted(ctx, world):
    world.add(members.service("minio", 9000, type="NodePort"))
    world.add(members.destination_rule("minio"))
    said = status(ctx, strict())
    assert "preview-security mtls=strict; " in said.message
    assert said.message.endswith("; and 1 more")


def test_older_policy_of_somebody_else_for_the_model_keeps_strict_off(ctx, world):
    world.add(members.peers("default", mode="PERMISSIVE"))
    said = status(ctx, strict())
    assert isinstance(said, ops.BlockedStatus)
    assert (
        "PeerAuthentication kubeflow/default, which this charm did not make, is older"
        in said.message
    )
    assert set(policies(world)) == {"default"}


def test_older_policy_of_somebody_else_for_an_excepted_pod_keeps_strict_off(ctx, world):
    chosen = {"app.kubernetes.io/name": "katib"}
    world.add(members.peers("theirs", selector=chosen, ports={1: "PERMISSIVE"}))
    said = status(ctx, strict())
    assert (
        "kubeflow/theirs, which this charm did not make, is older and decides about katib:8443"
        in (said.message)
    )
    assert set(policies(world)) == {"theirs"}


def test_older_policy_that_opens_the_port_itself_is_no_obstacle(ctx, world):
    chosen = {"app.kubernetes.io/name": "katib"}
    world.add(members.peers("theirs", selector=chosen, ports={8443: "PERMISSIVE"}))
    ctx.run(ctx.on.config_changed(), strict())
    assert is_strict(world)


def test_pods_that_lack_their_sidecar_keep_strict_off(ctx, world):
    said = status(ctx, strict(container=workload(in_mesh=12)))
    assert policies(world) == {}
    assert isinstance(said, ops.BlockedStatus)
    assert "2 pods that should have a sidecar have none" in said.message


def test_pods_that_are_replaced_later_do_not_switch_it_off(ctx, world):
    ctx.run(ctx.on.config_changed(), strict())
    ctx.run(ctx.on.update_status(), strict(container=workload(in_mesh=12)))
    assert is_strict(world)


@pytest.mark.parametrize(
    "kind",
    [
        "validatingwebhookconfigurations",
        "customresourcedefinitions",
        "apiservices",
        "destinationrules",
    ],
)
def test_right_that_is_missing_is_named_and_nothing_is_switched_on(ctx, world, kind):
    world.forbidden.add(("list", kind))
    said = status(ctx, strict())
    assert isinstance(said, ops.BlockedStatus)
    assert f"missing permission: list {kind}" in said.message
    assert policies(world) == {}


def test_exception_stays_while_the_only_pod_is_replaced(ctx, world):
    members.member(world, "odd", members.probed(8080))
    ctx.run(ctx.on.config_changed(), strict())
    before = policies(world)
    assert len(before) == 3
    world.delete("Pod", "odd-0", "kubeflow")
    ctx.run(ctx.on.update_status(), strict())
    assert policies(world) == before
    world.delete("StatefulSet", "odd", "kubeflow")
    ctx.run(ctx.on.update_status(), strict())
    assert len(policies(world)) == 2


def test_withdrawn_exception_of_a_workload_without_pods_is_closed(ctx, world):
    world.add(members.stateful_set("idle"))
    ctx.run(ctx.on.config_changed(), strict(mtls_exceptions="idle:9000"))
    assert len(policies(world)) == 3
    ctx.run(ctx.on.config_changed(), strict())
    assert len(policies(world)) == 2


def test_name_of_the_option_that_is_not_there_is_waited_for(ctx, world):
    said = status(ctx, strict(mtls_exceptions="minoi:9000"))
    assert isinstance(said, ops.WaitingStatus)
    assert "mtls-exceptions: waiting for a Service or workload minoi:9000" in said.message
    assert is_strict(world)


def test_without_an_istio_strict_stays_as_it_is(ctx, world):
    ctx.run(ctx.on.config_changed(), strict())
    fake_cluster.uninstall_istio(world)
    ctx.run(ctx.on.update_status(), strict())
    assert is_strict(world)


def test_followers_write_nothing(ctx, world):
    ctx.run(ctx.on.config_changed(), strict(leader=False))
    assert policies(world) == {}


def test_two_workloads_that_share_pods_each_have_the_ports_of_both(ctx, world):
    wide = members.stateful_set("wide")
    wide["spec"]["selector"] = {"matchLabels": {"tier": "x"}}
    world.add(wide)
    world.add(members.pod("wide", labels={"tier": "x"}))
    world.add(members.pod("both", labels={"tier": "x", "app.kubernetes.io/name": "katib"}))
    ctx.run(ctx.on.config_changed(), strict(mtls_exceptions="wide:1"))
    opened = [set(spec["portLevelMtls"]) for spec in policies(world).values() if len(spec) == 2]
    assert opened == [{"1", "8443"}, {"1", "8443"}]
