"""Policies of other teams that deny every call."""

import pytest

from istio_integrator.diagnosis.checks import policies as checked
from istio_integrator.istio import authorization_policy
from tests.unit.charm.diagnosis.objects import obj, pod

ROOT = "istio-system"
PORT = {"to": [{"operation": {"ports": ["1"]}}]}
OURS = {"istio-integrator.charmhub.io/owner": "a.app"}


@pytest.mark.parametrize(
    ("namespace", "spec", "is_named"),
    [
        pytest.param("a", {}, True, id="allows-nobody"),
        pytest.param(ROOT, {}, True, id="in-the-whole-mesh"),
        pytest.param("b", {}, False, id="in-another-namespace"),
        pytest.param("a", {"action": "DENY", "rules": [{}]}, True, id="denies-everybody"),
        pytest.param("a", {"action": "DENY", "rules": [PORT]}, False, id="denies-some"),
        pytest.param("a", {"rules": [PORT]}, False, id="allows-some"),
        pytest.param("a", {"action": "AUDIT"}, False, id="audits"),
        pytest.param("a", {"selector": {"matchLabels": {"app": "z"}}}, False, id="no-pod"),
    ],
)
def test_policy_of_another_team_that_denies_every_call_is_named(namespace, spec, is_named):
    one = obj("AuthorizationPolicy", namespace, **spec)
    (found,) = checked.judge(authorization_policy.read_all([one]), [pod()], root=ROOT)
    assert found.level.value == ("!" if is_named else "✓")
    assert not is_named or "denies every caller of 1 pods" in found.seen


def test_policy_of_ours_or_one_that_is_only_tried_is_not_named():
    tried = obj("AuthorizationPolicy", "a")
    tried["metadata"]["annotations"] = {"istio.io/dry-run": "true"}
    policies = [tried, obj("AuthorizationPolicy", "a", labels=OURS)]
    (found,) = checked.judge(authorization_policy.read_all(policies), [pod()], root=ROOT)
    assert found.level.value == "✓"
