"""What `diagnose` says of what the charm itself stands on."""

import datetime
import json

import pytest

from istio_integrator import diagnosis
from istio_integrator.diagnosis import report
from tests import rights
from tests.functional.diagnosis.world import APP, NODE, restricted


@pytest.mark.parametrize(
    ("age", "level"), [pytest.param(5, "✓", id="held"), pytest.param(500, "✗", id="lost")]
)
def test_lease_that_nobody_renews(world, age, level):
    renewed = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    stamp = renewed.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": f"{APP}/1", "renewTime": stamp, "leaseDurationSeconds": 15}
    world.create("Lease", f"{APP}-lifecycle", spec=spec)
    assert world.worst("lease")[0] == level


def test_clocks_that_differ(world):
    assert world.worst("clock") == ("✓", "the clocks agree")
    now = datetime.datetime.now(datetime.UTC)
    world.now = now - datetime.timedelta(minutes=2)
    level, seen = world.worst("clock")
    assert (level, "from the API server's" in seen) == ("✗", True)
    world.now = None
    name = f"{world.model}-node"
    beat = (now + datetime.timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]
    world.create("Node", name, status={"conditions": conditions, "nodeInfo": NODE})
    level, seen = world.worst("clock")
    assert (level, f"the clock of node {name}" in seen) == ("✗", True)
    world.kubectl("delete", "node", name)


@pytest.mark.long
def test_right_that_is_missing_is_named_and_the_other_checks_go_on(world):
    roles = rights.roles(world.model)
    with restricted(world, roles) as api:
        assert world.worst("rights", api) == (
            "✓",
            "all rights that the charm needs are given",
        )
        assert not [
            e for e in diagnosis.diagnose(world.facts(api)).findings if "not known" in e.seen
        ]
    nodes = '- apiGroups: [""]\n  resources: [nodes]\n  verbs: [list]\n'
    assert nodes in roles
    with restricted(world, roles.replace(nodes, "")) as api:
        found = world.says("rights", api)[0]
        assert (found.level.value, found.seen) == ("✗", f"{APP} may not list nodes")
        found = diagnosis.diagnose(world.facts(api)).findings
        unknown = {
            each.check
            for each in found
            if each.seen == "not known: missing permission to list nodes"
        }
        assert unknown == {"versions", "clock"}


def test_application_without_any_right_is_told_so_by_every_check_that_reads(world):
    name = {"name": "nothing", "namespace": world.model}
    nothing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name}
    with restricted(world, json.dumps(nothing)) as api:
        found = diagnosis.diagnose(world.facts(api))
        unknown = {
            each.check for each in found.findings if "not known: missing permission" in each.seen
        }
        assert {"versions", "namespace", "admission", "others", "lease", "clock"} <= unknown
        rights = [each for each in found.findings if each.check == "rights"]
        assert rights
        assert all(each.level.value == "✗" and report.grant(APP) == each.next for each in rights)
