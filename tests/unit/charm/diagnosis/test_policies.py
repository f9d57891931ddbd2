"""Policies that deny every call, name another gateway, or trust any caller."""

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import policies
from istio_integrator.istio import authorization_policy
from istio_integrator.kube import cluster
from istio_integrator.messages import Said
from tests.unit.charm.diagnosis.objects import ALIVE, obj, pod
from tests.unit.charm.security.callers import NAME, sa, service

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
    (found,) = policies.judge(authorization_policy.read_all([one]), [pod()], root=ROOT)
    assert found.said is (Said.CALLS_DENIED if is_named else Said.CALLS_NOT_DENIED)
    assert not is_named or found.about["count"] == 1


def test_policy_of_ours_or_one_that_is_only_tried_is_not_named():
    tried = obj("AuthorizationPolicy", "a")
    tried["metadata"]["annotations"] = {"istio.io/dry-run": "true"}
    listed = [tried, obj("AuthorizationPolicy", "a", labels=OURS)]
    (found,) = policies.judge(authorization_policy.read_all(listed), [pod()], root=ROOT)
    assert found == Said.CALLS_NOT_DENIED()


def rule(*principals, header="kubeflow-userid"):
    return {
        "when": [{"key": f"request.headers[{header}]", "values": ["user"]}],
        "from": [{"source": {"principals": list(principals)}}],
    }


def judge(obj, namespace, account):
    found = authorization_policy.read_all([obj])
    domain = authorization_policy.OWN_TRUST_DOMAIN
    return policies.judge_profiles(
        found, namespace=namespace, account=account, trust_domain=domain
    )


def judged(*rules, **spec):
    one = obj("AuthorizationPolicy", "alice", rules=list(rules), **spec)
    (found,) = judge(one, "istio-ingress", "gw")
    return found


REAL = "cluster.local/ns/istio-ingress/sa/gw"
OTHER = "cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account"
UI = "cluster.local/ns/kubeflow/sa/ml-pipeline-ui"


@pytest.mark.parametrize(
    ("rules", "is_fine"),
    [
        pytest.param([rule(REAL, UI)], True, id="the-real-one"),
        pytest.param([rule(OTHER, UI)], False, id="another"),
        pytest.param([rule(OTHER), rule(REAL)], False, id="one-of-two"),
        pytest.param([rule("*")], True, id="anybody"),
        pytest.param([rule("cluster.local/ns/istio-ingress/*")], True, id="a-wildcard"),
        pytest.param([rule("cluster.local/ns/istio-system/*")], False, id="another-wildcard"),
        pytest.param([rule(REAL.replace("cluster.local", "td2"))], False, id="another-domain"),
        pytest.param([{"from": [{"source": {"principals": [OTHER]}}]}], True, id="not-users"),
        pytest.param([rule()], True, id="no-principal"),
    ],
)
def test_profile_policy_must_let_the_real_gateway_in(rules, is_fine):
    found = judged(*rules)
    assert found.said is (Said.PROFILES_ADMIT_GATEWAY if is_fine else Said.PROFILES_REJECT_GATEWAY)
    if not is_fine:
        assert found.about["namespaces"] == "alice"
        assert found.command.endswith(
            "istio-gateway-namespace=istio-ingress istio-gateway-service-account=gw"
        )


def test_policy_that_denies_says_nothing_about_the_gateway():
    assert judged(rule(OTHER), action="DENY").said is Said.PROFILES_ADMIT_GATEWAY


NAMES = st.from_regex(r"[a-z]{1,4}", fullmatch=True)


@given(NAMES, NAMES, NAMES, NAMES)
def test_principal_is_the_gateways_exactly_when_both_names_are(namespace, account, real, own):
    one = obj(
        "AuthorizationPolicy", "p", rules=[rule(f"cluster.local/ns/{namespace}/sa/{account}")]
    )
    (found,) = judge(one, real, own)
    assert (found.said is Said.PROFILES_ADMIT_GATEWAY) == ((namespace, account) == (real, own))


CLAIM = {"when": [{"key": "request.headers[kubeflow-userid]", "values": ["alice@example.com"]}]}


def sources(**source):
    return {**CLAIM, "from": [{"source": source}]}


@pytest.mark.parametrize(
    ("rules", "is_named"),
    [
        pytest.param([CLAIM], True, id="anybody"),
        pytest.param([{**CLAIM, "from": []}], True, id="no source"),
        pytest.param([sources(principals=["*"])], True, id="whoever has a certificate"),
        pytest.param([sources(principals=[sa("gateway")]), CLAIM], True, id="one of two"),
        pytest.param([sources(principals=[sa("gateway")])], False, id="the gateway"),
        pytest.param([sources(namespaces=["kubeflow"])], False, id="the model"),
        pytest.param([{"from": [{"source": {"namespaces": ["alice"]}}]}], False, id="no claim"),
        pytest.param(
            [{"when": [{"key": "request.headers[kubeflow-userid]", "notValues": ["*"]}]}],
            False,
            id="who claims nothing",
        ),
        pytest.param(
            [{"when": [{"key": "request.headers[x]", "values": ["a"]}]}], False, id="other header"
        ),
        pytest.param([5], False, id="no rule"),
    ],
)
def test_policy_that_believes_whoever_claims_is_found(rules, is_named):
    one = obj("AuthorizationPolicy", "alice", rules=rules)
    found = policies.judge_claims([one], "remedy")
    named = Said.HEADER_TRUSTED(policies="alice/x", command="remedy")
    assert found == (named if is_named else Said.HEADER_NOT_TRUSTED())


def test_policy_that_denies_believes_nobody():
    one = obj("AuthorizationPolicy", "alice", rules=[CLAIM], action="DENY")
    assert policies.judge_claims([one], "remedy") == Said.HEADER_NOT_TRUSTED()


SERVICES = [service("kfp-api", 8888), service("minio", 9000), service("mlmd", 8080)]


@pytest.mark.parametrize(
    ("covered", "named"),
    [
        (["kfp-api"], []),
        (["minio"], ["kfp-api"]),
        ([], ["kfp-api"]),
    ],
)
def test_service_that_believes_any_caller_is_named(covered, named):
    found = policies.trusting(SERVICES, [frozenset({(NAME, each)}) for each in covered])
    assert [each.name for each in found] == named


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("off", "juju config app authorization=related"),
        ("related", "juju integrate kfp-api:service-mesh app:service-mesh"),
    ],
)
def test_remedy_is_the_option_or_the_relation(option, remedy):
    spec = {"selector": {NAME: "kfp-api"}, "ports": [{"port": 8888}]}
    api = obj("Service", "kubeflow", "kfp-api", **spec)
    facts = types.SimpleNamespace(
        mesh=ALIVE,
        profiles=["alice"],
        model="kubeflow",
        application="app",
        config=types.SimpleNamespace(authorization=option),
        manifests=types.SimpleNamespace(is_ours=lambda _: True),
        objects=lambda kind, _="": [api] if kind == cluster.SERVICE else [],
    )
    _, found = policies.users_apart(facts)
    assert found == Said.USERS_FROM_ANY_POD(services="kfp-api", command=remedy)
