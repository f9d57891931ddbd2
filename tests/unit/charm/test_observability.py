"""Data bags for the observability stack, read with its own charm libraries."""

import dataclasses
import hashlib
import json
import pathlib
import re

import ops
import pytest
import yaml
from cosl import DashboardPath40UID, JujuTopology, LZMABase64
from ops import testing

from integrator_contract import names
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import APPLICATION, MODEL, state, workload
from tests.unit.charm.objects import make

SOURCE = pathlib.Path(__file__).parents[3] / "src"
DASHBOARD = SOURCE / "grafana_dashboards/istio-integrator.json"
UUID = "00000000-0000-4000-8000-000000000000"
TOPOLOGY = JujuTopology(
    model=MODEL,
    model_uuid=UUID,
    application=APPLICATION,
    unit=f"{APPLICATION}/3",
    charm_name="istio-integrator",
)


@pytest.fixture
def run(ctx, fake):
    """Run a hook with relations."""
    fake_cluster.install_istio(fake)

    def run(*relations, leader=True, container=None, event=None, **more) -> testing.State:
        given = dataclasses.replace(
            state(container, leader=leader),
            relations=frozenset(relations),
            model=testing.Model(MODEL, uuid=UUID, type="kubernetes"),
            **more,
        )
        return ctx.run(event or ctx.on.update_status(), given)

    return run


def bags(out: testing.State, relation: testing.Relation) -> tuple[dict, dict]:
    """Return what the application and the unit told a relation."""
    found = out.get_relation(relation.id)
    return dict(found.local_app_data), dict(found.local_unit_data)


def pod(name: str, labels: dict[str, str], address: str | None) -> dict:
    status = {"podIP": address} if address else {}
    return make("Pod", name, labels=labels, status=status)


def test_every_unit_tells_prometheus_its_address(run):
    relations = testing.Relation("metrics-endpoint"), testing.Relation("metrics-endpoint")
    out = run(*relations, leader=False)
    for application, unit in (bags(out, each) for each in relations):
        assert application == {}
        assert unit["prometheus_scrape_unit_name"] == f"{APPLICATION}/3"
        assert unit["prometheus_scrape_unit_address"] == "192.0.2.0"
    nowhere = testing.Network("metrics-endpoint", bind_addresses=[])
    _, unit = bags(run(*relations, leader=False, networks={nowhere}), relations[0])
    assert "prometheus_scrape_unit_address" not in unit


@pytest.mark.parametrize("may_list", [True, False])
def test_leader_tells_prometheus_what_to_scrape_once(run, ctx, fake, may_list):
    labels = names.make_labels(MODEL, APPLICATION, "admission-webhook")
    fake.add(pod("admission-b", labels, "10.1.0.9"))
    fake.add(pod("admission-a", labels, "fd00::9"))
    fake.add(pod("admission-starting", labels, None))
    fake.put("Pod", "forged", "kf-user", labels=labels, status={"podIP": "10.1.0.8"})
    fake.add(pod("gateway", {**labels, names.COMPONENT: "own-gateway"}, "10.1.0.7"))
    if not may_list:
        fake.forbidden.add(("list", "pods"))
    relation = testing.Relation("metrics-endpoint")
    out = run(relation)
    application, _ = bags(out, relation)
    assert json.loads(application["scrape_metadata"]) == TOPOLOGY.as_dict()
    lifecycle, *admission = json.loads(application["scrape_jobs"])
    assert lifecycle == {
        "job_name": "lifecycle",
        "metrics_path": "/metrics",
        "static_configs": [{"targets": ["*:8080"]}],
    }
    servers = [
        {"targets": ["[fd00::9]:8080"], "labels": {"pod": "admission-a"}},
        {"targets": ["10.1.0.9:8080"], "labels": {"pod": "admission-b"}},
    ]
    job = {"job_name": "admission", "metrics_path": "/metrics", "static_configs": servers}
    assert admission == ([job] if may_list else [])
    assert bags(ctx.run(ctx.on.update_status(), out), relation)[0] == application


def test_every_expression_reads_this_application_alone(run):
    relation = testing.Relation("metrics-endpoint")
    application, _ = bags(run(relation), relation)
    groups = json.loads(application["alert_rules"])["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        selectors = re.findall(r"\{([^}]*)\}", rule["expr"])
        assert selectors, rule["alert"]
        own = f'juju_model="kf", juju_model_uuid="{UUID}", juju_application="mesh-2"'
        assert all(own in selector for selector in selectors), rule["alert"]


def test_alert_says_what_happened_and_what_to_type():
    for path in (SOURCE / "prometheus_alert_rules").glob("*.rules"):
        for rule in yaml.safe_load(path.read_text())["groups"][0]["rules"]:
            said = rule["annotations"]
            assert said.keys() == {"summary", "description", "runbook"}
            assert re.search(r"`(juju|kubectl) .+`", said["runbook"]), rule["alert"]
            assert not re.search(r"\]\(", said["runbook"]), "a link leads nowhere from a pager"


def test_dashboard_declares_every_variable_that_it_uses():
    text = DASHBOARD.read_text()
    variables = {one["name"] for one in json.loads(text)["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w+)", text))
    assert used - {"__rate_interval", "__all"} == variables


def test_dashboard_arrives_as_the_library_reads_it_and_stays(run, ctx):
    relation = testing.Relation("grafana-dashboard")
    assert bags(run(relation, leader=False), relation)[0] == {}
    out = run(relation)
    application, _ = bags(out, relation)
    assert bags(ctx.run(ctx.on.update_status(), out), relation)[0] == application
    sent = json.loads(application["dashboards"])
    (template,) = sent["templates"].values()
    board = json.loads(LZMABase64.decompress(template["content"]))
    source = json.loads(DASHBOARD.read_text())
    assert board["panels"] == source["panels"]
    # Where there are none, the consumer puts its own in.
    assert "templating" not in board
    path = "src/grafana_dashboards/istio-integrator.json"
    assert board["uid"] == DashboardPath40UID.generate("istio-integrator", path)
    assert len(source["tags"]) > 1
    assert board["tags"] == [*source["tags"], "charm: istio-integrator"]
    assert (template["inject_dropdowns"], template["charm"]) == (True, "istio-integrator")
    assert template["juju_topology"] == TOPOLOGY.as_dict(excluded_keys=["charm_name"])
    alternative = hashlib.shake_256(b"istio-integrator-file:istio-integrator").hexdigest(8)
    assert template["dashboard_alt_uid"] == alternative
    text = json.dumps(sent["templates"], sort_keys=True)
    assert sent["uuid"] == hashlib.sha256(text.encode()).hexdigest()[:32]


def loki(*addresses: str) -> testing.Relation:
    said = [{"endpoint": json.dumps({"url": url})} if url else {} for url in addresses]
    units = dict(enumerate(said))
    return testing.Relation("logging", remote_app_name="loki", remote_units_data=units)


def targets(out: testing.State) -> dict[str, ops.pebble.LogTarget]:
    return out.get_container("lifecycle").plan.log_targets


def test_logs_go_to_every_unit_of_loki(run):
    out = run(loki("http://loki-0:3100/loki/api/v1/push", "http://loki-1:3100/loki/api/v1/push"))
    assert sorted(targets(out)) == ["loki-loki-0", "loki-loki-1"]
    first = targets(out)["loki-loki-0"].to_dict()
    assert first["location"] == "http://loki-0:3100/loki/api/v1/push"
    assert first["services"] == ["all"]
    assert first["labels"] == {
        "charm": "istio-integrator",
        "juju_application": APPLICATION,
        "juju_model": MODEL,
        "juju_model_uuid": UUID,
        "juju_unit": f"{APPLICATION}/3",
        "product": "Juju",
    }


def test_units_of_loki_without_a_url_are_all_named_and_cost_no_other_its_logs(run):
    urls = ("http://a:0/", "https://loki-1/push", "http://:80/", "http://a b/", "", "ftp://a/")
    out = run(loki(*urls))
    assert [*targets(out)] == ["loki-loki-1"]
    assert "logging: loki/0, loki/2, loki/3, loki/5 sends no URL" in out.unit_status.message


def test_logs_no_longer_go_to_a_unit_that_went(run, ctx):
    before = run(loki("http://loki-0:3100/push", "http://loki-1:3100/push"))
    left = loki("http://loki-0:3100/push")
    event = ctx.on.relation_departed(left, remote_unit=1, departing_unit=1)
    kept = before.get_container("lifecycle")
    theirs = {"override": "replace", "type": "loki", "location": "http://x/", "services": ["all"]}
    layers = {**kept.layers, "theirs": ops.pebble.Layer({"log-targets": {"other": theirs}})}
    after = run(left, container=dataclasses.replace(kept, layers=layers), event=event)
    assert targets(after)["other"].services == ["all"]
    assert targets(after)["loki-loki-0"].services == ["all"]
    assert targets(after)["loki-loki-1"].services == ["-all"]
    back = run(
        loki("http://loki-0:3100/push", "http://loki-1:3100/push"),
        container=after.get_container("lifecycle"),
    )
    assert targets(back)["loki-loki-1"].services == ["all"]


def test_pebble_that_fails_while_logs_are_forwarded_fails_no_hook(run, monkeypatch):
    add_layer = ops.Container.add_layer

    def fail(container, label, *layer, **how):
        if label == "log-forwarding":
            raise ops.pebble.ConnectionError("no socket")
        add_layer(container, label, *layer, **how)

    monkeypatch.setattr(ops.Container, "add_layer", fail)
    out = run(loki("http://loki-0:3100/push"))
    assert out.unit_status == testing.WaitingStatus("logs are not forwarded: no socket")


def test_without_a_container_logs_wait(run):
    out = run(loki("http://loki-0:3100/push"), container=workload(can_connect=False))
    assert targets(out) == {}
