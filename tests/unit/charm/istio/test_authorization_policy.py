"""The meaning of AuthorizationPolicies, which test_istio_oracle.py compares with istiod."""

from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.istio import authorization_policy
from istio_integrator.istio.authorization_policy import InboundRequest, Truth, make_principal
from tests.unit.cases import cases, row
from tests.unit.hostile_texts import JSON

ROOT, MODEL, DOMAIN = "mesh-root", "kf", "cluster.local"
MINIO = make_principal(MODEL, "minio")
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
    *policies, caller=MINIO, request=GET, labels=LABELS, namespace=MODEL, domains=(DOMAIN,)
):
    found = authorization_policy.read_all(policies, domains)
    held = [each for each in found if each.selects(labels, namespace, ROOT)]
    return authorization_policy.decide(held, caller, request).answer


@cases(
    ("rule", "of_minio", "of_outside"),
    everybody=({}, YES, YES),
    any_principal=(by(principals=["*"], namespaces=[]), YES, NO),
    principal=(by(principals=[make_principal(MODEL, "minio")]), YES, NO),
    principal_whole=(by(principals=[make_principal(MODEL, "mini")]), NO, NO),
    principal_end=(by(principals=["*/sa/minio"]), YES, NO),
    start=(by(principals=["cluster.local/ns/kf/*"]), YES, NO),
    domain=(by(principals=["other.local/ns/kf/sa/minio"]), NO, NO),
    not_principal=(by(notPrincipals=["*/sa/minio"]), NO, YES),
    account=(by(serviceAccounts=["minio"]), YES, NO),
    account_of_the_namespace=(by(serviceAccounts=["kf/minio"]), YES, NO),
    account_elsewhere=(by(serviceAccounts=["other/minio"]), NO, NO),
    account_whole=(by(serviceAccounts=["min"]), NO, NO),
    not_account=(by(notServiceAccounts=["minio"]), NO, YES),
    namespace_start=(by(namespaces=["k*"]), YES, NO),
    namespace_end=(by(namespaces=["*f"]), YES, NO),
    namespace_middle=(by(namespaces=["k*f"]), YES, NO),
    namespace_whole=(by(namespaces=["kube"]), NO, NO),
    namespace_with_a_sign=(by(namespaces=["kubeflo?"]), NO, NO),
    namespace_in_brackets=(by(namespaces=["[k]ubeflow"]), NO, NO),
    not_namespace=(by(notNamespaces=["kf"]), NO, YES),
    trust_domain=(by(trustDomains=["cluster.*"]), YES, NO),
    block=(by(ipBlocks=["10.1.0.0/16"]), MAYBE, MAYBE),
    not_block=(by(notIpBlocks=["10.1.2.3"]), MAYBE, MAYBE),
    forwarded=(by(remoteIpBlocks=["10.1.2.3"]), MAYBE, MAYBE),
    token=(by(requestPrincipals=["*"]), MAYBE, MAYBE),
    field_of_later=(by(comesLater=["x"]), MAYBE, MAYBE),
    both=(by(principals=["*"], notNamespaces=["kf"]), NO, NO),
    when_namespace=(when("source.namespace", "kf"), YES, NO),
    when_unknown=(when("destination.ip", "10.0.0.1"), MAYBE, MAYBE),
)
def test_rule_takes_callers(rule, of_minio, of_outside):
    for caller, want in ((MINIO, of_minio), (OUTSIDE, of_outside)):
        assert answer(policy(rule), caller=caller) is want
        assert answer(policy(rule, action="DENY"), caller=caller) is Truth(YES - want)


@cases(
    ("rule", "known", "unknown"),
    port=(to(ports=["80"]), YES, MAYBE),
    another_port=(to(ports=["8080"]), NO, MAYBE),
    port_whole=(to(ports=["8"]), NO, MAYBE),
    not_port=(to(notPorts=["80"]), NO, MAYBE),
    method=(to(methods=["GET"]), MAYBE, MAYBE),
    host=(to(hosts=["web"]), MAYBE, MAYBE),
    path_at_another_port=(to(ports=["8080"], paths=["/a"]), NO, MAYBE),
    any=(to(paths=["*"], methods=["*"]), YES, YES),
    not_path=(to(notPaths=["/a"]), MAYBE, MAYBE),
    header=(when("request.headers[user]", "*"), MAYBE, MAYBE),
    unset=(when("request.headers[user]", notValues=["*"]), MAYBE, MAYBE),
    empty_source=({**by(), **to(ports=["80"])}, YES, MAYBE),
)
def test_rule_takes_requests(rule, known, unknown):
    assert answer(policy(rule)) is known
    assert answer(policy(rule), request=InboundRequest()) is unknown


IN_KF, OUTSIDE_KF = when("source.namespace", "kf"), when("source.namespace", "other")


@cases(
    ("policies", "want"),
    none=([], YES),
    nothing_allowed=([policy()], NO),
    nothing_allowed_by_default=([policy(action="")], NO),
    conditions=([policy({"when": [each["when"][0] for each in (IN_KF, OUTSIDE_KF)]})], NO),
    one_allows=([policy(), policy({})], YES),
    deny_first=([policy({}), policy({}, action="DENY")], NO),
    deny_nothing=([policy(action="DENY")], YES),
    custom=([policy({}, action="CUSTOM")], MAYBE),
    custom_and_allowed=([policy({}, action="CUSTOM"), policy({})], MAYBE),
    custom_and_denied=([policy({}, action="CUSTOM"), policy()], NO),
    audit=([policy({}, action="AUDIT")], YES),
    mesh=([policy(namespace=ROOT)], NO),
    elsewhere=([policy(namespace="other")], YES),
    selected=([policy(selector={"matchLabels": {"app": "web"}})], NO),
    other_pods=([policy(selector={"matchLabels": {"app": "web", "role": "db"}})], YES),
    waypoint=([policy(targetRefs=[{"kind": "Service", "name": "w"}])], YES),
    older=([policy(targetRef={"kind": "Service", "name": "w"})], YES),
    dry_run=([policy(annotations={"istio.io/dry-run": "T"})], YES),
    no_dry_run=([policy(annotations={"istio.io/dry-run": "false"})], NO),
    unreadable=([{"kind": "AuthorizationPolicy", "metadata": 7}], YES),
)
def test_policies_decide_together(policies, want):
    assert answer(*policies) is want
    assert answer(*reversed(policies)) is want


def test_policy_of_a_gateway_is_held_by_its_pods_alone():
    named = policy(targetRefs=[{"kind": "Gateway", "name": each} for each in ("other", "gw")])
    labels = {"gateway.networking.k8s.io/gateway-name": "gw"}
    assert answer(named, labels=labels) is NO
    assert answer(named, labels=labels, namespace="other") is YES
    assert answer(policy(targetRef={"kind": "Service", "name": "gw"}), labels=labels) is YES
    of_root = policy(namespace=ROOT, targetRefs=[{"kind": "Gateway", "name": "gw"}])
    assert answer(of_root, labels=labels) is YES


@cases(
    ("rule", "allows", "denies", "seen_by"),
    {"seen_by": ("tcp", "ztunnel")},
    connection=row(rule=by(principals=["*"]), allows=YES, denies=NO),
    names=row(rule=by(namespaces=["kf"], serviceAccounts=["minio"]), allows=YES, denies=NO),
    address=row(rule=by(ipBlocks=["10.0.0.0/8"]), allows=MAYBE, denies=MAYBE),
    own_address=row(rule=when("destination.ip", "10.1.2.3"), allows=MAYBE, denies=MAYBE),
    request=row(rule=to(methods=["POST"]), allows=NO, denies=NO),
    both=row(rule={**by(principals=["a"]), **to(methods=["POST"])}, allows=NO, denies=YES),
    one_source_of_two=row(
        rule={"from": [*by(principals=["*"])["from"], *by(requestPrincipals=["*"])["from"]]},
        allows=NO,
        denies=NO,
    ),
    forwarded=row(
        rule=by(remoteIpBlocks=["10.1.2.3"]), allows=MAYBE, denies=MAYBE, seen_by=("tcp",)
    ),
    not_for_ztunnel=row(
        rule=by(remoteIpBlocks=["10.1.2.3"]), allows=NO, denies=NO, seen_by=("ztunnel",)
    ),
)
def test_proxy_without_requests_leaves_out_what_allows_by_them(rule, allows, denies, seen_by):
    for each in seen_by:
        request = InboundRequest(port=80, seen_by=each)
        assert answer(policy(rule), request=request) is allows
        assert answer(policy(rule, action="DENY"), request=request) is denies


@cases(
    ("source", "of_td1", "of_td2"),
    pointer=(by(principals=["cluster.local/ns/a/sa/b"]), YES, YES),
    own=(by(principals=["td1/ns/a/sa/b"]), YES, YES),
    alias=(by(principals=["td2/ns/a/sa/b"]), YES, YES),
    another=(by(principals=["td3/ns/a/sa/b"]), NO, NO),
    in_a_pattern_of_the_mesh=(by(principals=["x.old/ns/a/sa/b"]), YES, YES),
    any=(by(principals=["*/ns/a/sa/b"]), YES, YES),
    no_account_of_an_alias=(by(principals=["td2/ns/a/*"]), NO, YES),
    end=(by(principals=["*1/ns/a/sa/b"]), YES, YES),
    **{f"domain_{each}": (by(trustDomains=[each]), YES, YES) for each in ("td1", "td2")},
    another_domain=(by(trustDomains=["td3"]), NO, NO),
)
def test_principal_of_an_alias_of_the_trust_domain_is_that_of_the_mesh(source, of_td1, of_td2):
    for domain, want in (("td1", of_td1), ("td2", of_td2)):
        caller, domains = f"{domain}/ns/a/sa/b", ("td1", "td2", "*.old")
        assert answer(policy(source), caller=caller, domains=domains) is want


@given(JSON, st.lists(JSON, max_size=2), st.lists(JSON, max_size=2))
def test_policy_may_be_anything(spec, rules, sources):
    stated = policy(*rules, {"from": [{"source": each} for each in sources], "to": sources})
    answer({**stated, "spec": spec}, stated)


def test_namespace_with_many_wildcards_is_matched_in_linear_time():
    caller = make_principal("a" * 60, "b")
    assert answer(policy(by(namespaces=["*a" * 50 + "c"])), caller=caller) is NO
