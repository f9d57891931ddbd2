"""Who may call which workload: what applications say, and the gateway's own way."""

import pytest

from tests.unit.charm.security.callers import (
    GATEWAY,
    NAME,
    Call,
    admits,
    decide,
    pod,
    policy,
    sa,
    said,
    service,
)

API = {NAME: "kfp-api"}
UI = {NAME: "kfp-ui"}
KFP_API = service("kfp-api", (8888, 18888), (8887, "grpc"), (65535, 65535))
PIPELINES = service("ml-pipeline", (8888, 18888), of="kfp-api", application="kfp-api")
API_POD = pod("kfp-api", grpc=18887)


def test_stated_caller_is_admitted_at_the_pods_port_and_nobody_else():
    said_api = said("kfp-api", policy("kfp-ui", "kfp-api", {"ports": [8888]}))
    decision = decide(KFP_API, API_POD, consumers=[said_api])
    assert admits(decision, API, Call(sa("kfp-ui"), 18888))
    assert not admits(decision, API, Call(sa("kfp-ui"), 8888))
    assert not admits(decision, API, Call(sa("kfp-ui"), 18887))
    assert not admits(decision, API, Call(sa("kfp-ui", "alice"), 18888))
    assert not admits(decision, API, Call("", 18888))


def test_named_port_is_the_number_that_the_pod_gives_it():
    said_api = said("kfp-api", policy("kfp-ui", "kfp-api", {"ports": [8887]}))
    decision = decide(KFP_API, API_POD, consumers=[said_api])
    assert admits(decision, API, Call(sa("kfp-ui"), 18887))


def test_named_port_that_no_pod_has_is_waited_for_and_opens_nothing():
    said_api = said("kfp-api", policy("kfp-ui", "kfp-api", {"ports": [8887]}))
    decision = decide(KFP_API, consumers=[said_api])
    assert decision.waiting == (
        "service-mesh:3 kfp-api: waiting for port 8887 of Service kfp-api",
    )
    assert not admits(decision, API, Call(sa("kfp-ui"), 18887))
    assert not admits(decision, API, Call(sa("kfp-ui"), 8887))


def test_policy_without_endpoints_is_for_the_ports_of_the_service():
    decision = decide(KFP_API, API_POD, consumers=[said("kfp-api", policy("kfp-ui", "kfp-api"))])
    assert admits(decision, API, Call(sa("kfp-ui"), 18888))
    assert admits(decision, API, Call(sa("kfp-ui"), 18887))
    assert not admits(decision, API, Call(sa("kfp-ui"), 38812))


def test_methods_paths_and_hosts_hold():
    stated = {"ports": [8888], "methods": ["GET"], "paths": ["/apis/*"], "hosts": ["ml-pipeline"]}
    decision = decide(
        KFP_API, API_POD, consumers=[said("kfp-api", policy("kfp-ui", "kfp-api", stated))]
    )
    fitting = {"method": "GET", "path": "/apis/v1", "host": "ml-pipeline"}
    assert admits(decision, API, Call(sa("kfp-ui"), 18888, **fitting))
    for change in ({"method": "POST"}, {"path": "/x"}, {"host": "other"}):
        assert not admits(decision, API, Call(sa("kfp-ui"), 18888, **{**fitting, **change}))


def test_unit_policy_is_for_the_pods_own_port():
    unit = policy("prometheus", "kfp-api", {"ports": [9090]}, target_type="unit")
    decision = decide(KFP_API, API_POD, consumers=[said("kfp-api", unit)])
    assert admits(decision, API, Call(sa("prometheus"), 9090))
    assert not admits(decision, API, Call(sa("prometheus"), 18888))


def test_rules_for_one_workload_are_one_policy():
    consumers = [
        said(
            "kfp-api",
            policy("kfp-ui", "kfp-api", {"ports": [8888]}),
            policy("kfp-persistence", "kfp-api", {"ports": [8888]}),
            policy("kfp-schedwf", None, {"ports": [8888]}, target_service="ml-pipeline"),
            policy("prometheus", "kfp-api", {"ports": [9090]}, target_type="unit"),
        )
    ]
    decision = decide(KFP_API, PIPELINES, API_POD, consumers=consumers)
    (only,) = decision.policies
    assert dict(only.selector) == {NAME: "kfp-api"}
    assert len(only.rules) == 2
    assert not decision.problems


@pytest.mark.parametrize(
    "stated",
    [
        pytest.param(policy("evil", "minio"), id="by name"),
        pytest.param(policy("evil", None, target_service="minio"), id="by Service"),
        pytest.param(policy("evil", "minio", target_type="unit"), id="units by name"),
        pytest.param(
            policy("evil", None, target_type="unit", target_selector_labels={NAME: "minio"}),
            id="units by labels",
        ),
        pytest.param(policy("evil", None, target_type="unit"), id="every unit"),
    ],
)
def test_policy_for_what_is_another_applications_is_refused_by_name(stated):
    minio = service("minio", 9000)
    decision = decide(minio, pod("minio"), consumers=[said("evil", stated)])
    assert not decision.policies
    assert decision.problems[0].startswith("service-mesh:3 evil: has a policy for what is not its")


def test_route_admits_the_gateway_at_its_port_and_closes_the_rest():
    decision = decide(
        service("kfp-ui", (3000, 13000)), gateways=(GATEWAY,), routed=[("kfp-ui", 3000)]
    )
    assert admits(decision, UI, Call(GATEWAY, 13000))
    assert not admits(decision, UI, Call(GATEWAY, 3000))
    assert not admits(decision, UI, Call(sa("alice", "alice"), 13000))


def test_routed_workload_admits_gateway_and_stated_callers():
    decision = decide(
        service("kfp-ui", 3000),
        gateways=(GATEWAY,),
        routed=[("kfp-ui", 3000)],
        consumers=[said("kfp-ui", policy("dashboard", "kfp-ui"))],
    )
    assert admits(decision, UI, Call(GATEWAY, 3000))
    assert admits(decision, UI, Call(sa("dashboard"), 3000))


def test_authorization_service_admits_the_gateway_that_asks_it():
    oidc = service("oidc-gatekeeper", 8080, 9000)
    asked = {"gateways": (GATEWAY,), "guards": [("oidc-gatekeeper", 8080)]}
    decision = decide(oidc, routed=[("oidc-gatekeeper", 9000)], **asked)
    assert admits(decision, {NAME: "oidc-gatekeeper"}, Call(GATEWAY, 8080))
    assert not decide(oidc, **asked).policies


def test_off_writes_nothing_and_says_nothing():
    decision = decide(KFP_API, API_POD, mode="off", consumers=[said("kfp-api", 5)])
    assert (decision.policies, decision.is_closed, decision.problems) == ((), False, ())


def test_what_nobody_states_is_open_with_related_and_shut_with_closed():
    for mode, is_open in (("related", True), ("closed", False)):
        decision = decide(service("minio", 9000), pod("minio"), mode=mode)
        assert admits(decision, {NAME: "minio"}, Call(sa("kfp-api"), 9000)) is is_open


REFUSED = {
    "unread": 5,
    "of another namespace": {**policy("kfp-ui", "kfp-api"), "target_namespace": "alice"},
    "of another application": policy("kfp-ui", "minio"),
    "of units with paths": policy("kfp-ui", "kfp-api", {"paths": ["/x"]}, target_type="unit"),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_refusing_all_that_an_application_says_shuts_nobody_out_of_it(refused):
    decision = decide(KFP_API, API_POD, consumers=[said("kfp-api", refused)])
    assert not decision.policies
    assert decision.problems[0].startswith("service-mesh:3 kfp-api")
    assert decide(KFP_API, API_POD, mode="closed", consumers=[said("kfp-api", refused)]).is_closed


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_leaves_what_is_not(refused):
    stated = policy("kfp-ui", "kfp-api", {"ports": [8888]})
    decision = decide(KFP_API, API_POD, consumers=[said("kfp-api", refused, stated)])
    assert admits(decision, API, Call(sa("kfp-ui"), 18888))
    assert not admits(decision, API, Call(sa("dashboard"), 18888))


def test_caller_of_another_model_that_says_not_who_it_is_is_named():
    remote = "remote-0123456789abcdef0123456789abcdef"
    decision = decide(KFP_API, API_POD, consumers=[said("kfp-api", policy(remote, "kfp-api"))])
    assert "provide-cmr-mesh" in decision.waiting[0]


def test_service_that_is_not_there_is_waited_for():
    decision = decide(consumers=[said("kfp-api", policy("kfp-ui", "kfp-api"))])
    assert decision.waiting == ("service-mesh:3 kfp-api: waiting for Service kfp-api",)


def test_placeholder_port_of_juju_is_no_port():
    only = service("kfp-api")
    decision = decide(only, consumers=[said("kfp-api", policy("kfp-ui", "kfp-api"))])
    assert "waiting for port any of Service kfp-api" in decision.waiting[0]


def test_more_exact_workload_has_the_rules_of_the_wider_one_and_comes_first():
    viewer = {"target_type": "unit", "target_selector_labels": {NAME: "kfp-api", "role": "viewer"}}
    consumers = [
        said(
            "kfp-api",
            policy("kfp-ui", "kfp-api", {"ports": [8888]}),
            policy("prometheus", None, {"ports": [9090]}, **viewer),
        )
    ]
    first, second = decide(KFP_API, API_POD, consumers=consumers).policies
    assert len(first.selector) == 2
    assert len(first.rules) == 2
    assert len(second.rules) == 1
