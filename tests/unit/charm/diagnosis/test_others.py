"""What others wrote that is in the way."""

import pytest

from istio_integrator.diagnosis.checks import others
from tests.unit.charm.diagnosis.objects import TARGET, obj, pod

ROOT = "istio-system"

OURS = {"istio-integrator.charmhub.io/owner": "a.app"}

EGRESS = {"workloadSelector": {"labels": {"istio": "egressgateway"}}}

INGRESS = {"workloadSelector": {"labels": {"istio": "ingressgateway"}}}


@pytest.mark.parametrize(
    ("one", "hits"),
    [
        pytest.param(obj("EnvoyFilter", "a"), "1 pods of the model", id="model"),
        pytest.param(obj("EnvoyFilter", ROOT), "1 pods of the model", id="mesh"),
        pytest.param(obj("EnvoyFilter", "istio-ingress", **INGRESS), "gateway", id="gateway"),
        pytest.param(obj("EnvoyFilter", "istio-ingress", **EGRESS), "", id="another-gateway"),
        pytest.param(obj("EnvoyFilter", "a", labels=OURS), "", id="ours"),
        pytest.param(obj("EnvoyFilter", ROOT, "stats-filter-1.18"), "", id="istio's"),
        pytest.param(
            obj("EnvoyFilter", "a", workloadSelector={"labels": {"app": "none"}}), "", id="nobody"
        ),
    ],
)
def test_filter_of_others_that_hits_us_is_named(one, hits):
    found = list(others.judge([one], [], [pod()], TARGET, root=ROOT))
    assert [each.level.value for each in found] == (["!"] if hits else ["✓"])
    assert hits in found[0].seen


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({}, "lets nobody be a caller", id="deny-all"),
        pytest.param({"action": "DENY", "rules": [{}]}, "denies every caller", id="deny"),
        pytest.param({"action": "CUSTOM", "rules": [{}]}, "another service decide", id="custom"),
        pytest.param({"rules": [{"from": []}]}, "1 policies allow or deny some", id="some"),
        pytest.param({"selector": {"matchLabels": {"app": "z"}}}, "in the way", id="nobody"),
    ],
)
def test_policy_of_others_that_hits_us_is_named(spec, words):
    one = obj("AuthorizationPolicy", "a", **spec)
    (found,) = others.judge([], [one], [pod()], None, root=ROOT)
    assert words in found.seen
    assert found.level.value == ("!" if "caller" in words or "another" in words else "✓")


def test_policy_that_is_only_tried_is_in_nobodys_way():
    one = obj("AuthorizationPolicy", "a")
    one["metadata"]["annotations"] = {"istio.io/dry-run": "true"}
    (found,) = others.judge([], [one], [pod()], None, root=ROOT)
    assert found.level.value == "✓"


def test_pods_outside_of_the_mesh_are_not_hit():
    one = obj("AuthorizationPolicy", "a")
    (found,) = others.judge([], [one], [pod(proxy=False)], None, root=ROOT)
    assert found.level.value == "✓"
