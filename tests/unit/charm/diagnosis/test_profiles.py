"""Policies of profile namespaces that name a gateway."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import profiles
from istio_integrator.istio import authorization_policy
from tests.unit.charm.diagnosis.objects import obj


def rule(*principals, header="kubeflow-userid"):
    return {
        "when": [{"key": f"request.headers[{header}]", "values": ["user"]}],
        "from": [{"source": {"principals": list(principals)}}],
    }


def judge(obj, namespace, account):
    policies = authorization_policy.read_all([obj])
    domain = authorization_policy.OWN_TRUST_DOMAIN
    return profiles.judge(policies, namespace=namespace, account=account, trust_domain=domain)


def judged(*rules, **spec):
    one = obj("AuthorizationPolicy", "alice", rules=list(rules), **spec)
    (found,) = judge(one, "istio-ingress", "gw")
    return found


REAL = "cluster.local/ns/istio-ingress/sa/gw"

OTHER = "cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account"

UI = "cluster.local/ns/kubeflow/sa/ml-pipeline-ui"


@pytest.mark.parametrize(
    ("rules", "level"),
    [
        pytest.param([rule(REAL, UI)], "✓", id="the-real-one"),
        pytest.param([rule(OTHER, UI)], "✗", id="another"),
        pytest.param([rule(OTHER), rule(REAL)], "✗", id="one-of-two"),
        pytest.param([rule("*")], "✓", id="anybody"),
        pytest.param([rule("cluster.local/ns/istio-ingress/*")], "✓", id="a-wildcard"),
        pytest.param([rule("cluster.local/ns/istio-system/*")], "✗", id="another-wildcard"),
        pytest.param([rule(REAL.replace("cluster.local", "td2"))], "✗", id="another-domain"),
        pytest.param([{"from": [{"source": {"principals": [OTHER]}}]}], "✓", id="not-users"),
        pytest.param([rule()], "✓", id="no-principal"),
    ],
)
def test_profile_policy_must_let_the_real_gateway_in(rules, level):
    found = judged(*rules)
    assert found.level.value == level
    if level == "✗":
        assert "alice" in found.seen
        assert found.next == (
            "juju config kubeflow-profiles istio-gateway-namespace=istio-ingress "
            "istio-gateway-service-account=gw"
        )


def test_policy_that_denies_says_nothing_about_the_gateway():
    assert judged(rule(OTHER), action="DENY").level.value == "✓"


NAMES = st.from_regex(r"[a-z]{1,4}", fullmatch=True)


@given(NAMES, NAMES, NAMES, NAMES)
def test_principal_is_the_gateways_exactly_when_both_names_are(namespace, account, real, own):
    one = obj(
        "AuthorizationPolicy", "p", rules=[rule(f"cluster.local/ns/{namespace}/sa/{account}")]
    )
    (found,) = judge(one, real, own)
    assert (found.level.value == "✓") == ((namespace, account) == (real, own))
