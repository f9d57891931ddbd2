"""The meaning of AuthorizationPolicies, which test_istio_oracle.py compares with istiod."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.istio import authorization_policy
from istio_integrator.istio.authorization_policy import InboundRequest, Truth, principal

ROOT, MODEL = "istio-system", "kf"
MINIO = principal(MODEL, "minio")
OUTSIDE = ""
LABELS = {"app": "web"}
GET = InboundRequest(port=80)
YES, MAYBE, NO = Truth.YES, Truth.MAYBE, Truth.NO


def policy(*rules, namespace=MODEL, name="p", annotations=None, **spec):
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    spec = {"rules": list(rules), **spec}
    return {"kind": "AuthorizationPolicy", "metadata": metadata, "spec": spec}


def by(**source):
    return {"from": [{"source": source}]}


def to(**operation):
    return {"to": [{"operation": operation}]}


def when(key, *values, **excluded):
    return {"when": [{"key": key, "values": list(values), **excluded}]}


def answer(
    *policies,
    caller=MINIO,
    request=GET,
    labels=LABELS,
    namespace=MODEL,
    domains=("cluster.local",),
):
    found = authorization_policy.read_all(policies, domains)
    held = [each for each in found if each.selects(labels, namespace, ROOT)]
    return authorization_policy.decide(held, caller, request).answer


@pytest.mark.parametrize(
    ("rule", "of_minio", "of_outside"),
    [
        pytest.param({}, YES, YES, id="everybody"),
        pytest.param(by(principals=["*"]), YES, NO, id="any-principal"),
        pytest.param(by(principals=[principal(MODEL, "minio")]), YES, NO, id="principal"),
        pytest.param(by(principals=["*/sa/minio"]), YES, NO, id="principal-end"),
        pytest.param(by(principals=["cluster.local/ns/kf/*"]), YES, NO, id="start"),
        pytest.param(by(principals=["other.local/ns/kf/sa/minio"]), NO, NO, id="domain"),
        pytest.param(by(notPrincipals=["*/sa/minio"]), NO, YES, id="not-principal"),
        pytest.param(by(serviceAccounts=["minio"]), YES, NO, id="account"),
        pytest.param(by(serviceAccounts=["other/minio"]), NO, NO, id="account-elsewhere"),
        pytest.param(by(serviceAccounts=["min"]), NO, NO, id="account-whole"),
        pytest.param(by(notServiceAccounts=["minio"]), NO, YES, id="not-account"),
        pytest.param(by(namespaces=["k*"]), YES, NO, id="namespace-start"),
        pytest.param(by(namespaces=["*f"]), YES, NO, id="namespace-end"),
        pytest.param(by(namespaces=["k*f"]), YES, NO, id="namespace-middle"),
        pytest.param(by(namespaces=["kube"]), NO, NO, id="namespace-whole"),
        pytest.param(by(namespaces=["kubeflo?"]), NO, NO, id="namespace-with-a-sign"),
        pytest.param(by(namespaces=["[k]ubeflow"]), NO, NO, id="namespace-in-brackets"),
        pytest.param(by(notNamespaces=["kf"]), NO, YES, id="not-namespace"),
        pytest.param(by(trustDomains=["cluster.*"]), YES, NO, id="trust-domain"),
        pytest.param(by(ipBlocks=["10.1.0.0/16"]), MAYBE, MAYBE, id="block"),
        pytest.param(by(notIpBlocks=["10.1.2.3"]), MAYBE, MAYBE, id="not-block"),
        pytest.param(by(remoteIpBlocks=["10.1.2.3"]), MAYBE, MAYBE, id="forwarded"),
        pytest.param(by(requestPrincipals=["*"]), MAYBE, MAYBE, id="token"),
        pytest.param(by(comesLater=["x"]), MAYBE, MAYBE, id="field-of-later"),
        pytest.param(by(principals=["*"], notNamespaces=["kf"]), NO, NO, id="both"),
        pytest.param(when("source.namespace", "kf"), YES, NO, id="when-namespace"),
        pytest.param(when("destination.ip", "10.0.0.1"), MAYBE, MAYBE, id="when-unknown"),
    ],
)
def test_rule_takes_callers(rule, of_minio, of_outside):
    for caller, want in ((MINIO, of_minio), (OUTSIDE, of_outside)):
        assert answer(policy(rule), caller=caller) is want
        assert answer(policy(rule, action="DENY"), caller=caller) is Truth(YES - want)


@pytest.mark.parametrize(
    ("rule", "known", "unknown"),
    [
        pytest.param(to(ports=["80"]), YES, MAYBE, id="port"),
        pytest.param(to(ports=["8080"]), NO, MAYBE, id="another-port"),
        pytest.param(to(notPorts=["80"]), NO, MAYBE, id="not-port"),
        pytest.param(to(methods=["GET"]), MAYBE, MAYBE, id="method"),
        pytest.param(to(hosts=["web"]), MAYBE, MAYBE, id="host"),
        pytest.param(to(ports=["8080"], paths=["/a"]), NO, MAYBE, id="path-at-another-port"),
        pytest.param(to(paths=["*"], methods=["*"]), YES, YES, id="any"),
        pytest.param(to(notPaths=["/a"]), MAYBE, MAYBE, id="not-path"),
        pytest.param(when("request.headers[user]", "*"), MAYBE, MAYBE, id="header"),
        pytest.param(when("request.headers[user]", notValues=["*"]), MAYBE, MAYBE, id="unset"),
        pytest.param({**by(), **to(ports=["80"])}, YES, MAYBE, id="empty-source"),
    ],
)
def test_rule_takes_requests(rule, known, unknown):
    assert answer(policy(rule)) is known
    assert answer(policy(rule), request=InboundRequest()) is unknown


@pytest.mark.parametrize(
    ("policies", "want"),
    [
        pytest.param([], YES, id="none"),
        pytest.param([policy()], NO, id="nothing-allowed"),
        pytest.param([policy(), policy({})], YES, id="one-allows"),
        pytest.param([policy({}), policy({}, action="DENY")], NO, id="deny-first"),
        pytest.param([policy(action="DENY")], YES, id="deny-nothing"),
        pytest.param([policy({}, action="CUSTOM")], MAYBE, id="custom"),
        pytest.param([policy({}, action="CUSTOM"), policy()], NO, id="custom-and-denied"),
        pytest.param([policy({}, action="AUDIT")], YES, id="audit"),
        pytest.param([policy(namespace=ROOT)], NO, id="mesh"),
        pytest.param([policy(namespace="other")], YES, id="elsewhere"),
        pytest.param([policy(selector={"matchLabels": {"app": "web"}})], NO, id="selected"),
        pytest.param([policy(selector={"matchLabels": {"app": "db"}})], YES, id="other-pods"),
        pytest.param([policy(targetRefs=[{"kind": "Service", "name": "w"}])], YES, id="waypoint"),
        pytest.param([policy(targetRef={"kind": "Service", "name": "w"})], YES, id="older"),
        pytest.param([policy(annotations={"istio.io/dry-run": "T"})], YES, id="dry-run"),
        pytest.param([{"kind": "AuthorizationPolicy", "metadata": 7}], YES, id="unreadable"),
    ],
)
def test_policies_decide_together(policies, want):
    assert answer(*policies) is want
    assert answer(*reversed(policies)) is want


def test_policy_of_a_gateway_is_held_by_its_pods_alone():
    named = policy(targetRefs=[{"kind": "Gateway", "name": "gw"}])
    labels = {"gateway.networking.k8s.io/gateway-name": "gw"}
    assert answer(named, labels=labels) is NO
    assert answer(named, labels=labels, namespace="other") is YES


@pytest.mark.parametrize(
    ("rule", "allows", "denies"),
    [
        pytest.param(by(principals=["*"]), YES, NO, id="connection"),
        pytest.param(to(methods=["POST"]), NO, NO, id="request"),
        pytest.param({**by(principals=["a"]), **to(methods=["POST"])}, NO, YES, id="both"),
        pytest.param(
            {"from": [*by(principals=["*"])["from"], *by(requestPrincipals=["*"])["from"]]},
            NO,
            NO,
            id="one-source-of-two",
        ),
    ],
)
@pytest.mark.parametrize("seen_by", ["tcp", "ztunnel"])
def test_proxy_without_requests_leaves_out_what_allows_by_them(rule, allows, denies, seen_by):
    request = InboundRequest(port=80, seen_by=seen_by)
    assert answer(policy(rule), request=request) is allows
    assert answer(policy(rule, action="DENY"), request=request) is denies


@pytest.mark.parametrize(
    ("named", "want"),
    [
        pytest.param("cluster.local/ns/a/sa/b", YES, id="pointer"),
        pytest.param("td1/ns/a/sa/b", YES, id="own"),
        pytest.param("td2/ns/a/sa/b", YES, id="alias"),
        pytest.param("td3/ns/a/sa/b", NO, id="another"),
        pytest.param("*/ns/a/sa/b", YES, id="any"),
        pytest.param("*1/ns/a/sa/b", YES, id="end"),
    ],
)
def test_principal_of_an_alias_of_the_trust_domain_is_that_of_the_mesh(named, want):
    caller = "td1/ns/a/sa/b"
    domains = ("td1", "td2")
    assert answer(policy(by(principals=[named])), caller=caller, domains=domains) is want
    assert (
        answer(policy(by(trustDomains=["td2"])), caller=caller, domains=domains)
        is answer(policy(by(trustDomains=["td1"])), caller=caller, domains=domains)
        is YES
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@given(JSON, st.lists(JSON, max_size=2), st.lists(JSON, max_size=2))
def test_policy_may_be_anything(spec, rules, sources):
    stated = policy(*rules, {"from": [{"source": each} for each in sources], "to": sources})
    answer({**stated, "spec": spec}, stated)


def test_namespace_with_many_wildcards_is_matched_in_linear_time():
    caller = principal("a" * 60, "b")
    assert answer(policy(by(namespaces=["*a" * 50 + "c"])), caller=caller) is NO
