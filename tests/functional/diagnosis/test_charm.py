"""What `diagnose` says of what the charm itself stands on."""

import json

import pytest

from istio_integrator import diagnosis
from istio_integrator.diagnosis import report
from tests import rights
from tests.functional.diagnosis.world import APP, restricted


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
    injectors = "  resources: [mutatingwebhookconfigurations]\n  verbs: [list, watch]\n"
    assert injectors in roles
    with restricted(world, roles.replace(injectors, injectors.replace("list, ", ""))) as api:
        lacking = "list mutatingwebhookconfigurations.admissionregistration.k8s.io"
        found = world.says("rights", api)[0]
        assert (found.level.value, found.seen) == ("✗", f"{APP} may not {lacking}")
        found = diagnosis.diagnose(world.facts(api)).findings
        unknown = {each.check for each in found if "not known: missing permission" in each.seen}
        assert unknown == {"webhooks"}


def test_application_without_any_right_is_told_so_by_every_check_that_reads(world):
    name = {"name": "nothing", "namespace": world.model}
    nothing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name}
    with restricted(world, json.dumps(nothing)) as api:
        found = diagnosis.diagnose(world.facts(api))
        unknown = {
            each.check for each in found.findings if "not known: missing permission" in each.seen
        }
        assert {"namespace", "admission", "others", "lease"} <= unknown
        rights = [each for each in found.findings if each.check == "rights"]
        assert rights
        assert all(each.level.value == "✗" and report.grant(APP) == each.next for each in rights)
