"""Callers of workloads, as declared by applications, by routes and by the cluster."""

import pytest

from integrator_contract import names
from istio_integrator.messages import Template
from istio_integrator.policies.decide import MOST_WORKLOADS, decide
from istio_integrator.situation.model import Call as ServerCall
from tests.unit.cases import cases
from tests.unit.charm.security.callers import (
    GATEWAY,
    NAME,
    Call,
    admits,
    asked,
    by_target,
    http,
    pod,
    policy,
    sa,
    said,
    service,
    to_come,
)

API = {NAME: "kfp-api"}
UI = {NAME: "kfp-ui"}
WEB = service("kfp-ui", (3000, 13000))
KFP_API = service("kfp-api", (8888, 18888), (8887, "grpc"), (53, 53, "dns", "UDP"))
SETUP = {"name": "setup", "ports": [{"name": "grpc", "containerPort": 1}]}
NATIVE = {"name": "b", "restartPolicy": "Always", "ports": [{"name": "grpc", "containerPort": 2}]}
API_POD = pod("kfp-api", init=[SETUP, NATIVE], grpc=18887, other=18889)
MINE = {"application": "kfp-api"}
PIPELINES = service("ml-pipeline", (8888, 18888), of="kfp-api", **MINE)
HOOK = (service("hook", (443, 4443)), pod("hook", notes={names.TEMPLATES: "x-gateway"}.items()))
CALLED = {"calls": [ServerCall("APIService a", each, 443) for each in ("absent", "hook")]}
AGENTS = ((15999, "/app-health/app/livez"), (15021, "/healthz/ready"))
PROBES = (http(3000, "health?all=1"), http(3002, "/alive"))
PROBED = pod("kfp-ui", *PROBES, *(http(*each) for each in AGENTS))
GRPC = Call("", 3000, "POST", "/grpc.health.v1.Health/Check")
OPERATOR = {names.MODELOPERATOR_LABELS[0]: names.MODELOPERATOR}
ROUTER = pod("y", labels={"istio": "own", "pod-template-hash": "1"}.items(), is_router=True)
COMING = frozenset({("istio", "to-come")})
CREATED = {"app.juju.is/created-by": "kfp-viewer"}
MADE = pod("viewer", labels=CREATED.items())
CANARY = sa("canary", "istio-ingress")
AB = {"a": "b"}
AT_NO_PORT = {"to": [{"operation": {"ports": ["9999"]}}]}
MINIO = (service("minio", 9000), pod("minio", labels={"pod-index": "0"}.items()))
ANY = Call("", 8080)
USER = "kubeflow-userid"
EDITOR = sa("default-editor", "kf-user")
CLAIM = ((USER, "bob"),)
UNCLAIMED = {"when": [{"key": f"request.headers[{USER}]", "notValues": ["*"]}]}


def api(*endpoints, **more):
    """The policy of kfp-api that admits kfp-ui."""
    return said("kfp-api", policy("kfp-ui", "kfp-api", *endpoints, **more))


def of_units(application, **labels):
    """The policy that admits kfp-ui to pods of an application with more labels."""
    labels = labels if CREATED.keys() & labels.keys() else {NAME: application, **labels}
    more = {"target_type": "unit", "target_selector_labels": labels}
    return said(application, policy("kfp-ui", None, **more))


def ui(port=18888, **more):
    """A call by kfp-ui."""
    return Call(sa("kfp-ui"), port, **more)


LIMITED = api(
    {"ports": [8888], "methods": ["GET"], "paths": ["/apis/*"], "hosts": ["ml-pipeline"]}
)
FITTING = {"method": "GET", "path": "/apis/v1", "host": "ml-pipeline"}
LED = {"gateways": (GATEWAY,), "routed": [("kfp-ui", 3000)]}
STATED = said("kfp-api", policy("kfp-ui", None, target_service="ml-pipeline"))


@cases(
    ("given", "labels", "admitted", "denied"),
    port_of_the_service_is_the_pods=(
        asked(KFP_API, API_POD, api({"ports": [8888]})), API, [ui()],
        [ui(8888), ui(18887), Call(sa("kfp-ui", "kf-user"), 18888), Call("", 18888)],
    ),
    named_port=(
        asked(KFP_API, API_POD, api({"ports": [8887]})), API, [ui(2), ui(18887)],
        [ui(), ui(1), ui(15090), ui(18889)],
    ),
    named_port_of_two_versions=(
        asked(KFP_API, API_POD, pod("kfp-api", grpc=3), api({"ports": [8887]})), API,
        [ui(2), ui(3), ui(18887)], [ui()],
    ),
    named_port_of_no_pod=(asked(KFP_API, api({"ports": [8887]})), API, [], [ui(18887), ui(8887)]),
    no_endpoints=(asked(KFP_API, API_POD, api()), API, [ui(), ui(18887)], [ui(53)]),
    methods_paths_and_hosts=(
        asked(KFP_API, API_POD, LIMITED), API, [ui(**FITTING)],
        [ui(**{**FITTING, "method": "POST"}), ui(**{**FITTING, "path": "/x"}),
        ui(**{**FITTING, "host": "other"})],
    ),
    endpoints=(
        asked(KFP_API, API_POD, api({"ports": [8888]}, {"ports": [8887]})), API,
        [ui(), ui(18887)], [ui(38812)],
    ),
    port_that_no_pod_has_beside_another=(
        asked(KFP_API, API_POD, api({"ports": [99, 8888]})), API, [ui()], [ui(99), ui(18887)],
    ),
    service_of_another_name_at_its_own_ports=(
        asked(KFP_API, service("ml-pipeline", (8888, 9), of="kfp-api", application="kfp-api"),
        said("kfp-api", policy("kfp-ui", "kfp-api", target_service="ml-pipeline"))), API, [ui(9)],
        [ui()],
    ),
    ports_of_units=(
        asked(KFP_API, API_POD, api({"ports": [9090]}, {"ports": [9091]}, target_type="unit")),
        API, [ui(9090), ui(9091)], [ui()],
    ),
    every_port_of_units=(
        asked(API_POD, api({"ports": [9090]}, {"methods": []}, target_type="unit")), API,
        [ui(9090), ui(1)], [Call("", 9090)],
    ),
    units_that_the_application_made=(
        asked(MADE, of_units("kfp-viewer", **CREATED)), MADE.metadata.labels, [ui()],
        [Call("", 18888)],
    ),
    pods_that_the_application_made=(
        asked(service("viewer", 80, application="viewer", **CREATED), MADE,
        said("kfp-viewer", policy("kfp-ui", None, {"ports": [80]}, target_service="viewer"))),
        MADE.metadata.labels, [ui(80)], [Call("", 80)],
    ),
    service_by_its_selector=(
        asked(service("x", 80, of="kfp-api"), API_POD,
        said("kfp-api", policy("kfp-ui", None, target_service="x"))), API, [ui(80)], [ui()],
    ),
    service_by_its_name_and_pods_of_no_application=(
        asked(service("db", 80, selector={"db": "x"}), said("db", policy("kfp-ui", "db")),
        pod("db", labels={NAME: "", "db": "x"}.items())), {"db": "x"}, [ui(80)], [ui()],
    ),
    route_to_a_named_port_of_no_pod=(
        asked(service("kfp-ui", (3000, "web")), **LED), UI, [],
        [Call(GATEWAY, 3000), Call("", 3000)],
    ),
    route_of_a_gateway_with_two_accounts=(
        asked(WEB, gateways=(GATEWAY, CANARY), routed=LED["routed"]), UI,
        [Call(GATEWAY, 13000), Call(CANARY, 13000)], [ui(13000)],
    ),
    route_and_relation=(
        asked(WEB, said("kfp-ui", policy("dashboard", "kfp-ui")), **LED), UI,
        [Call(GATEWAY, 13000), Call(sa("dashboard"), 13000)], [Call("", 13000)],
    ),
    gateway_that_is_not_known=(
        asked(WEB, routed=LED["routed"], is_ambient=True), UI, [],
        [Call(GATEWAY, 13000), Call("", 13000)],
    ),
    authorization_service=(
        asked(service("oidc", 8080, 9000), gateways=(GATEWAY,), guards=[("oidc", 8080)],
        routed=[("oidc", 9000)]), {NAME: "oidc"}, [Call(GATEWAY, 8080), Call(GATEWAY, 9000)],
        [Call("", 8080)],
    ),
    webhook_in_a_related_model=(
        asked(*HOOK, said("hook", policy("kfp-ui", None, target_type="unit",
        target_selector_labels={NAME: "hook", **AB}), policy("kfp-ui", "hook")), **CALLED),
        {NAME: "hook"}, [Call("", 4443)], [ANY],
    ),
    **{f"webhook_of_{how}_labels_without_a_pod": (
        asked(service("hook", 443, selector=labels), of_units("hook", **AB), **CALLED),
        {NAME: "hook", **AB, **labels}, [Call("", 443)], [ANY],
    ) for how, labels in {"more": {NAME: "hook", **AB, "c": "d"}, "fewer": AB}.items()},
    server_called_by_other_labels_of_the_same_pods=(
        asked(service("hook", 443, selector={"c": "d"}), of_units("hook", **AB),
        pod("hook", labels={**AB, "c": "d"}.items()), **CALLED),
        {NAME: "hook", **AB, "c": "d"}, [Call("", 443)], [ANY],
    ),
    webhook_at_a_port_of_no_pod=(
        asked(service("hook", (443, "web")), said("hook", policy("kfp-ui", "hook")), **CALLED),
        {NAME: "hook"}, [], [Call("", 4443), Call("", 443), ANY],
    ),
    webhook_in_a_closed_model=(
        asked(*HOOK, mode="closed", **CALLED), {NAME: "hook"}, [Call("", 4443)], [ANY, ui(80)],
    ),
    modeloperator=(
        asked(pod("x", labels=OPERATOR.items()), mode="closed"), {NAME: "x", **OPERATOR}, [ANY],
        [],
    ),
    gateway_of_the_model=(
        asked(ROUTER, mode="closed"), {NAME: "y", "istio": "own", "pod-template-hash": "2"},
        [ANY], [],
    ),
    gateway_by_a_template=(
        asked(to_come(pod("y", notes={names.TEMPLATES: "a,gateway"}.items(), is_inside=False)),
        mode="closed"), {NAME: "y"}, [ANY], [],
    ),
    gateway_to_come=(
        asked(mode="closed", gateway_pods=(frozenset(AB.items()), COMING)), dict(COMING), [ANY],
        [],
    ),
    gateway_without_labels=(
        asked(pod("", is_router=True), mode="closed"), {NAME: "z"}, [], [ANY],
    ),
    gateway_to_come_in_ambient_mode=(
        asked(mode="closed", gateway_pods=(COMING,), is_ambient=True), dict(COMING), [ANY], [],
    ),
    other_pods_beside_a_gateway=(
        asked(ROUTER, mode="closed", gateway_pods=(COMING,)), {NAME: "z"}, [], [ANY],
    ),
    probe_in_a_related_model=(
        asked(WEB, PROBED, said("kfp-ui", policy("dashboard", "kfp-ui"))), UI,
        [Call("", 3000, path="/health"), Call("", 3002, path="/alive")],
        [Call("", 3000), Call("", 3000, "POST", "/health"),
        Call("", 3001, path="/health"), *(Call("", port, path=path) for port, path in AGENTS)],
    ),
    probe_of_a_template=(
        asked(WEB, to_come(PROBED), said("kfp-ui", policy("dashboard", "kfp-ui"))), UI,
        [Call("", 3000, path="/health")], [Call("", 3000)],
    ),
    probe_past_no_proxy=(
        asked(WEB, pod("kfp-ui", http(3000, "/health"), is_inside=False),
        said("kfp-ui", policy("dashboard", "kfp-ui"))), UI, [], [Call("", 3000, path="/health")],
    ),
    probe_of_a_path_that_is_a_pattern=(
        asked(WEB, pod("kfp-ui", http(3000, "/*"), http(3000, "/{x}")),
        said("kfp-ui", policy("dashboard", "kfp-ui"))), UI, [],
        [Call("", 3000, path=each) for each in ("/x", "/*", "/{x}")],
    ),
    probe_in_a_closed_model=(
        asked(PROBED, mode="closed"), UI, [Call("", 3000, path="/health")], [Call(sa("a"), 3000)],
    ),
    probe_by_grpc=(
        asked(pod("kfp-ui", {"grpc": {"port": 3000}}), mode="closed"), UI, [GRPC],
        [Call("", 3000, "POST")],
    ),
    policy_for_waypoints=(
        asked(PIPELINES, STATED, others=[by_target(action="DENY"), by_target(UNCLAIMED)]), API,
        [Call(EDITOR, 18888), ui(headers=CLAIM)],
        [Call(EDITOR, 18888, headers=CLAIM), Call(EDITOR, 8887)],
    ),
    last_rule_for_the_second_target=(
        asked(PIPELINES, *MINIO, STATED, others=[by_target(*[AT_NO_PORT] * 63, UNCLAIMED,
        targetRefs=[{"kind": "Service", "name": name} for name in ("minio", "ml-pipeline")])]),
        API, [Call(EDITOR, 18888), ui()], [Call(EDITOR, 9000)],
    ),
    rule_for_all_but_a_port_of_the_number_of_a_pods=(
        asked(service("db", (80, 8080), (8080, 9090), application="db"),
        said("db", policy("kfp-ui", "db")),
        others=[by_target({"to": [{"operation": {"notPorts": ["8080"]}}]}, target="db")]),
        {NAME: "db"}, [Call("", 8080), ui(9090)], [Call("", 9090)],
    ),
    rule_for_all_but_a_namespace=(
        asked(PIPELINES, STATED, others=[by_target({"from": [{"source": {"principals": ["*"],
        "notNamespaces": ["kf-user"]}}]})]), API, [ui(), Call(sa("x"), 18888)], [Call(EDITOR,
        18888)],
    ),
)  # fmt: skip
def test_calls_are_admitted_as_stated(given, labels, admitted, denied):
    decision = decide(given)
    assert [each for each in (*admitted, *denied) if admits(decision, labels, each)] == admitted


@pytest.mark.parametrize("mode", ["related", "closed"])
@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize("is_ambient", [False, True])
def test_metadata_is_for_everybody_whatever_user_they_name(mode, routed, is_ambient):
    shared = service("metadata-grpc-service", (8080, "grpc-api"), (8082, 18082), of="mlmd")
    stored = service("mlmd", (8081, 18081)), pod("mlmd", **{"grpc-api": 18080})
    led = [("metadata-grpc-service", 8080)] if routed else []
    more = {"gateways": (GATEWAY,), "is_ambient": is_ambient}
    decision = decide(asked(shared, *stored, mode=mode, routed=led, **more))
    # envoy forwards the header and the Host of a browser, so its sidecar shows no certificate.
    for principal in (EDITOR, sa("envoy"), ""):
        for headers in ((), CLAIM):
            for port in (18080, 18081, 18082):
                assert admits(decision, {NAME: "mlmd"}, Call(principal, port, headers=headers))
    other = admits(decision, {NAME: "mlmd"}, Call(sa("envoy"), 9))
    assert other == (mode == "related" and not routed)


@cases(
    "given",
    off=asked(KFP_API, API_POD, said("kfp-api", 5), mode="off"),
    authorization_service=asked(
        service("oidc", 8080), gateways=(GATEWAY,), guards=[("oidc", 8080)]
    ),
    webhook=asked(*HOOK, **CALLED),
    probe=asked(PROBED),
    policy_for_waypoints=asked(PIPELINES, others=[by_target(UNCLAIMED)]),
)
def test_what_no_relation_is_about_closes_nothing(given):
    decision = decide(given)
    assert (decision.policies, decision.is_closed, decision.messages) == ((), False, ())


@cases(
    "theirs",
    another_service=by_target(UNCLAIMED, target="unknown"),
    **{action: by_target(UNCLAIMED, action=action) for action in ("DENY", "CUSTOM", "AUDIT")},
    another_kind=by_target(UNCLAIMED, targetRefs=[{"kind": "Gateway", "name": "ml-pipeline"}]),
    without_rules=by_target(),
    more_than_64_rules=by_target(*[AT_NO_PORT] * 64, UNCLAIMED),
    no_such_port=by_target({**UNCLAIMED, **AT_NO_PORT}),
    every_port_but_it=by_target({"to": [{"operation": {"notPorts": ["8888"]}}]}),
    no_rules=by_target(5),
    no_port=by_target({"to": [{"operation": {"ports": ["http"]}}]}),
    no_policy={**by_target(UNCLAIMED), "spec": 5},
)
def test_policy_that_lets_nobody_in_at_the_service_adds_nothing(theirs):
    assert decide(asked(PIPELINES, STATED, others=[theirs])) == decide(asked(PIPELINES, STATED))


VIEWER = {"target_type": "unit", "target_selector_labels": {NAME: "kfp-api", "role": "viewer"}}


def test_rules_for_one_workload_are_one_policy_and_the_more_exact_workload_comes_first():
    stated = said(
        "kfp-api",
        policy("kfp-ui", "kfp-api", {"ports": [8888]}),
        policy("kfp-persistence", "kfp-api", {"ports": [8888]}),
        policy("kfp-schedwf", None, {"ports": [8888]}, target_service="ml-pipeline"),
        policy("prometheus", None, {"ports": [9090]}, **VIEWER),
    )
    exact, wide = decide(asked(KFP_API, PIPELINES, API_POD, stated)).policies
    assert dict(wide.selector) == API
    (rule,) = wide.rules
    (source,) = rule["from"]
    assert source["source"]["principals"] == [
        sa(each) for each in ("kfp-persistence", "kfp-schedwf", "kfp-ui")
    ]
    assert rule in exact.rules
    assert len(exact.rules) == 2


def problems(decision):
    return [(each.template, each.about["problem"]) for each in decision.messages]


NOT_ITS_OWN = "service-mesh:3 evil: has a policy for what is not its own"


@cases(
    ("given", "problem"),
    by_name=(policy("friend", "minio"), ": minio"),
    by_service=(policy("friend", None, target_service="minio"), ": Service minio"),
    units_by_name=(policy("friend", "minio", target_type="unit"), ""),
    units_by_labels=(
        policy("friend", None, target_type="unit",
        target_selector_labels={NAME: "minio", "a": "evil"}), "",
    ),
    every_unit=(policy("friend", None, target_type="unit"), ""),
    by_service_without_pods=(policy("friend", None, target_service="idle"), ": Service idle"),
    service_of_its_own_that_leads_to_anothers_pods=(policy("friend", "evil"), ": Service evil"),
    service_by_a_label_of_every_first_pod=(
        policy("friend", None, target_service="lure"), ": Service lure",
    ),
)  # fmt: skip
def test_policy_for_what_is_another_applications_is_refused_by_name(given, problem):
    lures = (
        service("idle", 80),
        service("evil", (80, 9000), of="minio", application="evil"),
        service("lure", (80, 9000), selector={"pod-index": "0"}, application="evil"),
    )
    evil = pod("evil", labels={"pod-index": "0"}.items())
    model = (*MINIO, *lures, evil, said("evil", given))
    decision = decide(asked(*model))
    assert decision.policies == ()
    assert problems(decision) == [(Template.AUTHORIZATION_INVALID, NOT_ITS_OWN + problem)]
    closed = decide(asked(*model, mode="closed"))
    assert not admits(closed, MINIO[1].metadata.labels, Call(sa("friend"), 9000))


@cases(
    "refused",
    unread=5,
    of_another_namespace={**policy("kfp-ui", "kfp-api"), "target_namespace": "kf-user"},
    of_another_application=policy("kfp-ui", "minio"),
    of_units_with_paths=policy("kfp-ui", "kfp-api", {"paths": ["/x"]}, target_type="unit"),
)
def test_refusing_all_that_an_application_says_shuts_nobody_out_of_it(refused):
    of_another = by_target(selector={"matchLabels": {NAME: "minio"}})
    decision = decide(asked(KFP_API, API_POD, said("kfp-api", refused), standing=[of_another]))
    assert not decision.policies
    assert problems(decision)[0][1].startswith("service-mesh:3 kfp-api: ")
    own = by_target({}, selector={"matchLabels": API})
    assert not decide(asked(KFP_API, API_POD, said("kfp-api"), standing=[own])).policies
    assert len(problems(decide(asked(said("kfp-api", refused, 6, "7"))))) == 3
    honest = policy("kfp-ui", "kfp-api", {"ports": [8888]})
    decision = decide(asked(KFP_API, API_POD, said("kfp-api", refused, honest), standing=[own]))
    assert admits(decision, API, ui())
    assert not admits(decision, API, Call(sa("dashboard"), 18888))


NAMED = api({"ports": [8887]})
REMOTE = "remote-0123456789abcdef0123456789abcdef"


@cases(
    ("given", "waits"),
    named_port_of_no_pod=(
        asked(KFP_API, api({"ports": [8887]})), "waiting for port 8887 of Service kfp-api",
    ),
    one_port_of_two=(
        asked(KFP_API, API_POD, api({"ports": [8888, 98, 99]})),
        "waiting for port 98, 99 of Service kfp-api",
    ),
    named_port_of_pods_with_one_of_its_labels=(
        asked(service("kfp-api", (8887, "grpc"), selector={**API, **AB}), API_POD, NAMED),
        "waiting for port 8887 of Service kfp-api",
    ),
    no_service=(asked(api()), "waiting for Service kfp-api"),
    service_without_pods=(
        asked(service("kfp-api", 8888, kind="ExternalName"), API_POD, api()),
        "waiting for Service kfp-api",
    ),
    placeholder_port_of_juju=(
        asked(service("kfp-api", (65535, 65535, "placeholder")), api()),
        "waiting for port any of Service kfp-api",
    ),
    caller_of_another_model=(
        asked(KFP_API, API_POD, said("kfp-api", *[policy(REMOTE, "kfp-api")] * 2)),
        "waiting for the name of a caller of another model: relate it to provide-cmr-mesh, too",
    ),
)  # fmt: skip
def test_what_is_not_there_yet_is_waited_for(given, waits):
    assert problems(decide(given)) == [
        (Template.AUTHORIZATION_WAITS, f"service-mesh:3 kfp-api: {waits}")
    ]


def units(count):
    for number in range(count):
        labels = {NAME: "evil", "number": str(number)}
        yield policy("b", None, target_type="unit", target_selector_labels=labels)


def test_application_that_speaks_of_many_workloads_is_refused_and_no_other():
    honest = of_units("minio")
    few = decide(asked(*MINIO, honest, said("evil", *[*units(MOST_WORKLOADS)] * 2)))
    assert (len(few.policies), few.messages) == (MOST_WORKLOADS + 1, ())
    many = decide(asked(*MINIO, said("evil", *units(512)), honest))
    assert len(many.policies) == MOST_WORKLOADS + 1
    problem = "speaks of more than 16 workloads by labels: the rest is refused"
    assert problems(many) == [(Template.AUTHORIZATION_INVALID, f"service-mesh:3 evil: {problem}")]
    assert admits(many, MINIO[1].metadata.labels, ui(9000))


AT = {"to": [{"operation": {"ports": ["18888"]}}]}
GET = {"to": [{"operation": {"ports": ["8888"], "methods": ["GET"], "paths": ["/a"]}}]}
FROM = [{"source": {"principals": [EDITOR]}}]
NAMES = {"principals": [EDITOR], "serviceAccounts": ["a/b"], "ipBlocks": ["10.1.0.0/16"]}
NO_NAMES = {"notPrincipals": [EDITOR], "notNamespaces": ["a"], "notIpBlocks": ["10.1.2.3"]}
BUT = [{"source": {**NAMES, **NO_NAMES, "namespaces": ["b"], "notServiceAccounts": ["a/c"]}}]
TOKENS = [{"source": {"requestPrincipals": ["*"]}}]
SEEN = ("source.namespace", "source.principal", "source.ip", "destination.ip", "destination.port")
WHERE = [{"key": each, "values": ["a"]} for each in SEEN]
ACCOUNT = {"key": "source.serviceAccount", "values": ["a/b"]}
UI_AT = {"from": [{"source": {"principals": [sa("kfp-ui")]}}], **AT}


@cases(
    ("rule", "kept", "says_more"),
    nothing_more=({"to": [{"operation": {"ports": ["1"]}}]}, [], False),
    layer_4=({"when": WHERE}, [{**AT, "when": WHERE}], False),
    everybody=({}, [AT], False),
    path=({"from": FROM, **GET, "when": WHERE}, [{"from": FROM, **AT, "when": WHERE}], True),
    some_paths=(
        {"to": [*GET["to"], {"operation": {"ports": ["8888"]}}]}, [{"to": AT["to"] * 2}], True,
    ),
    all_but_some=({"from": BUT}, [{"from": BUT, **AT}], False),
    header=(UNCLAIMED, [AT], True),
    header_beside_a_namespace=(
        {"when": [*UNCLAIMED["when"], *WHERE]}, [{**AT, "when": WHERE}], True,
    ),
    account_in_a_condition=({"when": [ACCOUNT]}, [AT], True),
    tokens=({"from": [*FROM, *TOKENS]}, [AT], True),
    the_kubelets_probe=(GET, [], False),
)  # fmt: skip
def test_what_ztunnel_can_hold_of_a_rule_is_kept(rule, kept, says_more):
    more = {"a": "b", "tier": "api"}
    selected = service("ml-pipeline", (8888, 18888), selector={**API, **more}, **MINE)
    probed = pod("kfp-api", http(9, "/health"), labels=more.items())
    theirs = {"others": [by_target(rule)], "is_ambient": True}
    decision = decide(asked(selected, probed, STATED, **theirs))
    (found,) = decision.policies
    assert [each for each in found.rules if each != UI_AT] == kept
    assert decision.unenforced == (f"a=b, {NAME}=kfp-api, tier=api",) * says_more


def test_policy_of_probes_alone_shuts_nobody_out_in_ambient_mode():
    assert decide(asked(PROBED, mode="closed", is_ambient=True)).policies == ()
