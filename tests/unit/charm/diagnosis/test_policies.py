"""What others wrote that is in the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis import policies
from tests.unit.charm.diagnosis.test_entry import TARGET

ROOT = "istio-system"


def pod(name="web", *, proxy=True, **labels):
    containers = [{"name": "main"}, *([{"name": "istio-proxy"}] if proxy else [])]
    marks = {key.replace("_", "."): value for key, value in labels.items()}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "labels": marks or {"app": name}},
        "spec": {"containers": containers},
    }


def obj(kind, namespace, name="x", labels=None, **spec):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"kind": kind, "metadata": metadata, "spec": spec}


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
    found = list(policies.others([one], [], [pod()], TARGET, root=ROOT))
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
    (found,) = policies.others([], [one], [pod()], None, root=ROOT)
    assert words in found.seen
    assert found.level.value == ("!" if "caller" in words or "another" in words else "✓")


def test_policy_that_is_only_tried_is_in_nobodys_way():
    one = obj("AuthorizationPolicy", "a")
    one["metadata"]["annotations"] = {"istio.io/dry-run": "true"}
    (found,) = policies.others([], [one], [pod()], None, root=ROOT)
    assert found.level.value == "✓"


def test_pods_outside_of_the_mesh_are_not_hit():
    one = obj("AuthorizationPolicy", "a")
    (found,) = policies.others([], [one], [pod(proxy=False)], None, root=ROOT)
    assert found.level.value == "✓"


STRICT = obj("PeerAuthentication", ROOT, mtls={"mode": "STRICT"})


def backend(one, port=443):
    return policies.Backend("katib.kubeflow.org", one, port)


@pytest.mark.parametrize(
    ("one", "found", "level", "command"),
    [
        pytest.param(pod(), [], "✓", "", id="nothing-in-the-way"),
        pytest.param(
            pod(), [STRICT], "✗", "juju config app excluded-pods=app=web", id="strict-mesh"
        ),
        pytest.param(pod(proxy=False), [STRICT], "✓", "", id="outside"),
        pytest.param(pod(), [obj("AuthorizationPolicy", "a")], "✗", "excluded-pods", id="deny"),
        pytest.param(
            pod(operator_juju_is_name="x", **{"operator.juju.is/name": "modeloperator"}),
            [STRICT],
            "✗",
            "kubectl -n a delete pod web",
            id="modeloperator",
        ),
    ],
)
def test_webhook_that_api_servers_can_not_call_is_named(one, found, level, command):
    (said,) = policies.cut_off([backend(one)], found, root=ROOT, application="app")
    assert (said.level.value, said.next.startswith(command) or command in said.next) == (
        level,
        True,
    )
    assert ("katib.kubeflow.org" in said.seen) == (level == "✗")


def rule(*principals, header="kubeflow-userid"):
    return {
        "when": [{"key": f"request.headers[{header}]", "values": ["user"]}],
        "from": [{"source": {"principals": list(principals)}}],
    }


def judged(*rules, **spec):
    one = obj("AuthorizationPolicy", "alice", rules=list(rules), **spec)
    (found,) = policies.profiles([one], namespace="istio-ingress", account="gw")
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
        pytest.param([rule("*/sa/gw")], "✓", id="any-namespace"),
        pytest.param([rule("cluster.local/ns/istio-ingress/*")], "✓", id="any-account"),
        pytest.param([rule("cluster.local/ns/istio-system/*")], "✗", id="any-of-another"),
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
    (found,) = policies.profiles([one], namespace=real, account=own)
    assert (found.level.value == "✓") == ((namespace, account) == (real, own))
