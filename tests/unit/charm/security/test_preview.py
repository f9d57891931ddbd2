"""What `preview-security` says, and that it changes nothing."""

import dataclasses
import json
import pathlib
import re
import shlex

import pytest
import yaml
from ops import testing

from tests.unit.charm import fake_cluster, ingress_world
from tests.unit.charm.charm_world import state
from tests.unit.charm.security import members

ROOT = pathlib.Path(__file__).parents[4]


@pytest.fixture
def world(ctx, fake):
    fake_cluster.install_istio(fake)
    members.member(fake, "minio")
    fake.add(members.pod("loose", inside=False))
    fake.add(members.service("minio", 9000, type="LoadBalancer"))
    for obj in fake.objects.values():
        if obj["kind"] == "Pod":
            obj["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    return fake


def asked(ctx, given=None, **params):
    ctx.run(ctx.on.action("preview-security", params=params), given or state())
    report = ctx.action_results["report"]
    return report if params.get("format") == "json" else " ".join(report.split())


def test_loss_is_named_with_its_remedy_and_nothing_is_written(ctx, world):
    ctx.run(ctx.on.config_changed(), state())
    world.writes.clear()
    said = asked(ctx, mtls="strict")
    assert "✗ mtls Service minio (LoadBalancer) leads to minio:9000 past the gateway" in said
    assert "→ make it a ClusterIP, or add minio:9000 to juju config istio-integrator" in said
    assert "! mtls loose-0 has no sidecar" in said
    assert "! mtls calls in plain text from outside of the model are not known" in said
    assert not [each for each in world.writes if "peerauthentications" in each]


def test_exceptions_can_be_tried_and_json_has_the_same_lines(ctx, world):
    said = json.loads(
        asked(ctx, mtls="strict", format="json", **{"mtls-exceptions": "minio:9000"})
    )
    assert not [each for each in said if each["level"] == "broken"]
    seen = [each["seen"] for each in said]
    assert "minio:9000 stays open to plain text for mtls-exceptions" in seen
    assert all(each["next"] for each in said if each["level"] != "fine")


def test_what_is_not_given_is_as_the_application_has_it(ctx, world):
    assert "mtls=inherit: this application writes no PeerAuthentication" in asked(ctx)
    assert "minio:9000 stays open" in asked(
        ctx, state(mtls="strict", mtls_exceptions="minio:9000")
    )


def test_off_is_asked_about_in_quotes_since_juju_reads_what_is_typed_as_yaml(ctx, world):
    actions = yaml.safe_load((ROOT / "actions.yaml").read_text())
    said = actions["preview-security"]["params"]["authorization"]
    (typed,) = re.findall(r"authorization=('.*?')", said["description"])
    (value,) = shlex.split(typed)
    # Juju itself refuses what the schema does not take (juju/charm, ActionSpec.ValidateParams).
    assert (said["type"], yaml.safe_load("off")) == ("string", False)
    report = asked(ctx, state(authorization="closed"), authorization=yaml.safe_load(value))
    assert "authorization=off: this application writes no AuthorizationPolicy" in report
    guide = (ROOT / "docs/how-to/keep-users-apart.md").read_text()
    assert f"preview-security authorization={typed}" in guide


def test_option_is_off_as_text_which_juju_config_keeps(ctx, world):
    options = yaml.safe_load((ROOT / "config.yaml").read_text())["options"]
    assert (options["authorization"]["type"], options["authorization"]["default"]) == (
        "string",
        "off",
    )
    ctx.run(ctx.on.config_changed(), state(authorization="off"))
    assert not [each for each in world.writes if "authorizationpolicies" in each]


def test_policy_of_others_that_keeps_pods_open_is_named(ctx, world):
    chosen = {"app.kubernetes.io/name": "minio"}
    world.add(members.peers("theirs", selector=chosen, mode="PERMISSIVE"))
    assert (
        "PeerAuthentication kubeflow/theirs, which this charm did not make, keeps minio open"
        in asked(ctx, mtls="strict")
    )


def test_call_with_the_host_of_a_browser_is_named_until_its_port_is_excepted(ctx, world):
    for name, port in (("kfp-ui", 3000), ("mlmd", 8080), ("undeclared", 9000)):
        members.member(world, name)
        world.add(members.service(name, port))
    world.find("Service", "mlmd", "kubeflow")["spec"]["ports"][0]["name"] = "grpc-api"
    routed = dataclasses.replace(state(), relations={ingress_world.route()})
    line = "kfp-ui could no longer call mlmd:8080 with the Host of a browser"
    said = asked(ctx, routed, mtls="strict")
    assert line in said
    assert "if one does: add what it calls to juju config istio-integrator mtls-exc" in said
    excepted = {"mtls": "strict", "mtls-exceptions": "mlmd"}
    assert "Host of a browser" not in asked(ctx, routed, **excepted)
    assert "Host of a browser" not in asked(ctx, mtls="strict")


def test_value_that_is_none_fails_the_action(ctx, world):
    with pytest.raises(testing.ActionFailed, match="mtls-exceptions='a b'"):
        asked(ctx, **{"mtls-exceptions": "a b"})


def test_right_that_is_missing_is_a_line_and_no_failure(ctx, world):
    world.forbidden.add(("list", "customresourcedefinitions"))
    assert "! mtls not known: missing permission to list customresourcedefinitions" in asked(
        ctx, mtls="strict"
    )


def test_diagnose_says_it_of_the_options_as_they_are(ctx, world):
    with pytest.raises(testing.ActionFailed):
        ctx.run(ctx.on.action("diagnose"), state(mtls="strict"))
    assert "Service minio (LoadBalancer) leads to minio:9000" in ctx.action_results["report"]
