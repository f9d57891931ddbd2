"""The report of `preview-security` for both options; it changes nothing."""

import dataclasses
import json
import pathlib
import re
import shlex

import pytest
import yaml
from ops import testing

from istio_integrator.messages import Template
from tests.unit.cases import cases
from tests.unit.charm import ambient_objects, charm_world, fake_cluster, ingress_world
from tests.unit.charm.charm_world import state
from tests.unit.charm.security import members

ROOT = pathlib.Path(__file__).parents[4]
OUTSIDE = [members.pod(name, inside=False) for name in ("lost", "loose")]


@pytest.fixture
def world(ctx, fake, monkeypatch):
    charm_world.search(monkeypatch)
    fake_cluster.install_istio(fake)
    for each in (*members.member("minio"), members.stateful_set("lost"), *OUTSIDE):
        fake.add({**each, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    fake.add(members.service("minio", 9000, type="LoadBalancer"))
    return fake


def asked(ctx, given=None, **params):
    """The lines of a preview, by their messages."""
    action = ctx.on.action("preview-security", params={**params, "format": "json"})
    ctx.run(action, given or state())
    found = {}
    for each in json.loads(ctx.action_results["report"]):
        before = found.get(each["message"], {}).get("seen")
        found[each["message"]] = {**each, "seen": "\n".join(filter(None, (before, each["seen"])))}
    return found


def test_loss_is_named_with_its_remedy_as_in_diagnose_and_nothing_is_written(ctx, world):
    ctx.run(ctx.on.config_changed(), state())
    world.add(members.pod("bare", members.probed(80), labels={}))
    world.writes.clear()
    ctx.run(ctx.on.action("preview-security", params={"mtls": "strict"}), state())
    report = " ".join(ctx.action_results["report"].split())
    assert "✗ mtls Service minio (LoadBalancer) leads to minio:9000 past the gateway" in report
    assert "→ make it a ClusterIP, or add minio:9000 to juju config mesh-2" in report
    assert "✗ mtls the kubelet's probes calls bare-0:80, whose pods have no labels" in report
    assert "bare-0:80 stays open" not in report
    assert "! mtls loose-0 has no sidecar" in report
    assert "! mtls plain-text callers outside the model, for example Prometheus" in report
    assert not [each for each in world.writes if "peerauthentications" in each]
    with pytest.raises(testing.ActionFailed):
        ctx.run(ctx.on.action("diagnose"), state(mtls="strict"))
    assert "Service minio (LoadBalancer) leads to minio:9000" in ctx.action_results["report"]


def test_exceptions_can_be_tried_and_every_problem_has_a_next_step(ctx, world):
    world.put("Service", "odd", spec={"ports": 5})
    tried = {"mtls-exceptions": "minio:9000, nothing, nought"}
    found = asked(ctx, mtls="strict", **tried)
    assert not [each for each in found.values() if each["level"] == "broken"]
    assert found[Template.PORT_EXCEPTED.name]["seen"] == (
        "minio:9000 stays open to plain text for mtls-exceptions"
    )
    awaited = found[Template.MTLS_EXCEPTION_AWAITED.name]["seen"].splitlines()
    assert [each.partition("workload ")[2].split()[0] for each in awaited] == ["nothing", "nought"]
    assert found[Template.MTLS_EXCEPTION_AWAITED.name]["next"] == "juju status --relations"
    outside = found[Template.CALLER_OUTSIDE_MESH.name]["seen"].splitlines()
    assert [each.partition(" ")[0] for each in outside] == ["loose-0", "lost"]
    assert all(each["next"] for each in found.values() if each["level"] != "fine")
    assert "Service kf/odd is passed over" in found[Template.OBJECT_PASSED_OVER.name]["seen"]


def test_what_is_not_given_is_as_the_application_has_it(ctx, world):
    (line,) = asked(ctx).values()
    assert line["seen"].splitlines() == [
        "authorization=off: this application writes no AuthorizationPolicy",
        "mtls=inherit: this application writes no PeerAuthentication",
    ]
    own = state(mtls="strict", mtls_exceptions="minio:9000")
    unknown = Template.PLAIN_TEXT_UNKNOWN.name
    assert unknown in asked(ctx, mtls="strict", **{"mtls-exceptions": "minio:9000"})
    found = asked(ctx, own)
    assert Template.PORT_EXCEPTED.name in found
    # Strict mode has been switched on.
    assert unknown not in found
    assert Template.PORT_EXCEPTED.name not in asked(ctx, own, **{"mtls-exceptions": ""})


def test_off_is_asked_about_in_quotes_since_juju_reads_what_is_typed_as_yaml(ctx, world):
    actions = yaml.safe_load((ROOT / "actions.yaml").read_text())
    said = actions["preview-security"]["params"]["authorization"]
    (typed,) = re.findall(r"authorization=('.*?')", said["description"])
    (value,) = shlex.split(typed)
    # Juju itself refuses what the schema does not take (juju/charm, ActionSpec.ValidateParams).
    assert (said["type"], yaml.safe_load("off")) == ("string", False)
    found = asked(
        ctx, state(authorization="closed", mtls="strict"), authorization=yaml.safe_load(value)
    )
    assert found[Template.OPTION_WRITES_NOTHING.name]["check"] == "authorization"
    guide = (ROOT / "docs/how-to/keep-users-apart.md").read_text()
    assert f"preview-security authorization={typed}" in guide


@cases(
    ("objects", "said", "words"),
    policy_of_others_keeps_pods_open=(
        [*members.member("db"), *members.member("web"), members.peers("a", mode="PERMISSIVE",
        selector={"app.kubernetes.io/name": "web"}), members.peers("theirs", mode="PERMISSIVE",
        selector={"apps.kubernetes.io/pod-index": "0"})], Template.POLICY_KEEPS_OPEN,
        "PeerAuthentication kf/theirs, which this charm did not make, keeps db, minio open",
    ),
    scraped_port=(
        members.member("db", notes={"prometheus.io/scrape": "true", "prometheus.io/port": "9"}),
        Template.PORT_EXCEPTED, "db:9 stays open to plain text for Prometheus, by annotation",
    ),
    rule_of_a_user=(
        [members.profile("kf-user"),
        members.destination_rule(f"minio.kf.svc.{charm_world.DOMAIN}", namespace="kf-user")],
        Template.CLIENTS_WITHOUT_CERTIFICATE,
        "DestinationRule kf-user/theirs has clients call minio:9000 without",
    ),
    sidecar_of_a_user=(
        [members.profile("kf-user"), members.sidecar("./*", namespace="kf-user")],
        Template.SERVICE_HIDDEN,
        "Sidecar kf-user/theirs hides minio:9000 from proxies, which then call it in plain",
    ),
    sidecar_of_the_mesh=(
        [members.sidecar("./*", namespace=fake_cluster.ROOT)], Template.SERVICE_HIDDEN,
        f"Sidecar {fake_cluster.ROOT}/theirs hides minio:9000 from proxies",
    ),
    webhooks=(
        [members.webhook(name, "minio", 9000) for name in ("bait", "lure")],
        Template.PORT_EXCEPTED,
        "minio:9000 stays open to plain text for ValidatingWebhookConfiguration bait, Validat",
    ),
    webhook_in_a_closed_model=(
        [members.webhook("a", "absent"), members.webhook("lure", "minio", 9000)],
        Template.PORT_OPEN_TO_ALL,
        "minio:9000 is open to every caller, for ValidatingWebhookConfiguration lure",
    ),
)  # fmt: skip
def test_what_stays_open_is_named(ctx, world, objects, said, words):
    for each in objects:
        world.add(each)
    line = asked(ctx, mtls="strict", authorization="closed")[said.name]
    assert any(each.startswith(words) for each in line["seen"].splitlines())
    assert line["level"] != "broken"


def test_call_with_the_host_of_a_browser_is_named_until_its_port_is_excepted(ctx, world):
    declared = {"kfp-ui": 3000, "mlmd": 8080, "store": 8081}
    # A backend of the gateway without a sidecar keeps its callers.
    world.add(members.service("loose", 80))
    for name, port in {**declared, "undeclared": 9000}.items():
        for each in (*members.member(name), members.service(name, port)):
            world.add(each)
    for name in declared:
        world.find("Service", name, "kf")["spec"]["ports"][0]["name"] = "grpc-api"
    routes = {ingress_world.route("store", port=8081), ingress_world.route("loose", port=80)}
    routed = dataclasses.replace(state(), relations={*routes, ingress_world.route()})
    by_host = Template.CALLS_BY_HOST.name
    line = asked(ctx, routed, mtls="strict")[by_host]
    assert line["seen"].startswith(
        "kfp-ui, store could no longer call kfp-ui:3000, mlmd:8080, store:8081 with the H"
    )
    assert "add what it calls to juju config mesh-2 mtls-exc" in line["next"]
    assert by_host not in asked(
        ctx, routed, mtls="strict", **{"mtls-exceptions": "kfp-ui, mlmd, store"}
    )
    assert by_host not in asked(ctx, mtls="strict")
    only = dataclasses.replace(state(), relations={ingress_world.route()})
    line = asked(ctx, only, mtls="strict")[by_host]
    assert line["seen"].startswith("kfp-ui could no longer call mlmd:8080, store:8081 with the H")
    ambient_objects.into_ambient(world)
    assert by_host not in asked(ctx, only, mtls="strict")


def test_without_an_istio_nothing_is_known(ctx, world):
    fake_cluster.uninstall_istio(world)
    for option in ({"mtls": "strict"}, {"authorization": "related"}):
        assert Template.PREVIEW_WITHOUT_ISTIO.name in asked(ctx, **option)


def test_value_that_is_none_fails_the_action(ctx, world):
    with pytest.raises(testing.ActionFailed, match="mtls-exceptions='a b'"):
        asked(ctx, **{"mtls-exceptions": "a b"})


def test_right_that_is_missing_is_a_line_and_no_failure(ctx, world):
    world.forbidden.add(("list", "customresourcedefinitions"))
    line = asked(ctx, mtls="strict")[Template.CHECK_FORBIDDEN.name]
    assert (line["check"], "customresourcedefinitions" in line["seen"]) == ("mtls", True)
