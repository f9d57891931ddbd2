"""What has to go on though its callers have no identity, or are named by others."""

import pytest

from integrator_contract import names
from istio_integrator.situation.model import Call as ServerCall
from tests.unit.charm.security.callers import (
    GATEWAY,
    NAME,
    Call,
    admits,
    decide,
    http,
    pod,
    policy,
    sa,
    said,
    service,
)

OPERATOR = {names.MODELOPERATOR_LABELS[0]: names.MODELOPERATOR}
HOOK = service("admission-webhook", (443, 4443))
CALLED = ServerCall("MutatingWebhookConfiguration admission", "admission-webhook", 443)
MLMD = service("mlmd", (8080, "grpc-api"))
MLMD_POD = pod("mlmd", **{"grpc-api": 18080})
USER = "kubeflow-userid"


@pytest.mark.parametrize("mode", ["related", "closed"])
def test_webhook_is_called_by_api_servers_at_its_port_alone(mode):
    decision = decide(
        HOOK,
        pod("admission-webhook"),
        mode=mode,
        calls=[CALLED],
        consumers=[said("admission-webhook", policy("kfp-ui", "admission-webhook"))],
    )
    assert admits(decision, {NAME: "admission-webhook"}, Call("", 4443))
    assert not admits(decision, {NAME: "admission-webhook"}, Call("", 8080))


def test_webhook_that_nobody_states_stays_open_with_related_and_keeps_its_port_with_closed():
    assert not decide(HOOK, pod("admission-webhook"), calls=[CALLED]).policies
    decision = decide(HOOK, pod("admission-webhook"), mode="closed", calls=[CALLED])
    assert admits(decision, {NAME: "admission-webhook"}, Call("", 4443))
    assert not admits(decision, {NAME: "admission-webhook"}, Call(sa("kfp-ui"), 80))


def test_closed_model_leaves_gateways_and_modeloperator_open():
    operator = pod("x", labels=OPERATOR.items())
    router = pod("y", labels={"istio": "own", "pod-template-hash": "1"}.items(), is_router=True)
    coming = frozenset({("istio", "to-come")})
    decision = decide(operator, router, mode="closed", gateway_pods=(coming,))
    anybody = Call("", 8080)
    assert admits(decision, {NAME: "x", **OPERATOR}, anybody)
    assert admits(decision, {NAME: "y", "istio": "own", "pod-template-hash": "2"}, anybody)
    assert admits(decision, dict(coming), anybody)
    assert not admits(decision, {NAME: "z"}, anybody)


@pytest.mark.parametrize("mode", ["related", "closed"])
def test_probe_that_comes_past_pilot_agent_is_admitted_as_it_is_made(mode):
    probed = pod("kfp-ui", http(3000, "/health"))
    decision = decide(
        service("kfp-ui", 3000),
        probed,
        mode=mode,
        consumers=[said("kfp-ui", policy("dashboard", "kfp-ui"))],
    )
    asked = {NAME: "kfp-ui"}
    assert admits(decision, asked, Call("", 3000, path="/health"))
    assert not admits(decision, asked, Call("", 3000, path="/"))
    assert not admits(decision, asked, Call("", 3000, path="/health", method="POST"))


def test_probe_by_grpc_is_admitted_as_the_kubelet_makes_it():
    probed = pod("kfp-ui", {"grpc": {"port": 3000}})
    decision = decide(probed, mode="closed")
    asked = Call("", 3000, "POST", "/grpc.health.v1.Health/Check")
    assert admits(decision, {NAME: "kfp-ui"}, asked)
    assert not admits(decision, {NAME: "kfp-ui"}, Call("", 3000, "POST", "/"))


def test_probe_of_a_workload_that_nobody_states_closes_nothing():
    assert not decide(pod("kfp-ui", http(3000, "/health"))).policies
    decision = decide(pod("kfp-ui", http(3000, "/health")), mode="closed")
    assert admits(decision, {NAME: "kfp-ui"}, Call("", 3000, path="/health"))
    assert not admits(decision, {NAME: "kfp-ui"}, Call(sa("a"), 3000))


@pytest.mark.parametrize("named", ["mlmd", "metadata-grpc-service"])
@pytest.mark.parametrize(
    ("mode", "routed"),
    [("related", False), ("related", True), ("closed", False), ("closed", True)],
)
def test_metadata_is_for_everybody_whatever_user_they_name(mode, routed, named):
    shared = service(named, (8080, "grpc-api"), of="mlmd")
    led = [(named, 8080)] if routed else []
    decision = decide(shared, MLMD_POD, mode=mode, routed=led, gateways=(GATEWAY,))
    pods = {NAME: "mlmd"}
    # envoy forwards the header and the Host of a browser, so its sidecar shows no certificate.
    claim = ((USER, "alice@example.com"),)
    for principal in (sa("default-editor", "alice"), sa("envoy"), ""):
        for headers in ((), claim):
            assert admits(decision, pods, Call(principal, 18080, headers=headers))
    other = Call(sa("envoy"), 9)
    assert admits(decision, pods, other) == (mode == "related" and not routed)


UNCLAIMED = {"when": [{"key": f"request.headers[{USER}]", "notValues": ["*"]}]}


def by_target(*rules, target="ml-pipeline", **spec):
    reference = {"group": "", "kind": "Service", "name": target}
    return {
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "theirs", "namespace": "kubeflow"},
        "spec": {"targetRefs": [reference], "rules": list(rules), **spec},
    }


PIPELINES = service("ml-pipeline", (8888, 18888), of="kfp-api", application="kfp-api")
STATED = said("kfp-api", policy("kfp-ui", None, target_service="ml-pipeline"))
API = {NAME: "kfp-api"}


def test_policy_that_sidecars_pass_over_is_said_again_for_them():
    decision = decide(PIPELINES, consumers=[STATED], others=[by_target(UNCLAIMED)])
    editor = sa("default-editor", "alice")
    assert admits(decision, API, Call(editor, 18888))
    assert not admits(decision, API, Call(editor, 18888, headers=((USER, "bob"),)))
    assert not admits(decision, API, Call(editor, 8887))
    assert admits(decision, API, Call(sa("kfp-ui"), 18888, headers=((USER, "bob"),)))


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param(by_target(UNCLAIMED, target="unknown"), id="another Service"),
        pytest.param(by_target(UNCLAIMED, action="DENY"), id="one that denies"),
        pytest.param(by_target(), id="one without rules"),
        pytest.param(
            by_target({**UNCLAIMED, "to": [{"operation": {"ports": ["9999"]}}]}), id="no such port"
        ),
        pytest.param(
            by_target({"to": [{"operation": {"notPorts": ["8888"]}}]}), id="every port but it"
        ),
        pytest.param(by_target(5), id="no rules"),
        pytest.param(by_target({"to": [{"operation": {"ports": ["http"]}}]}), id="no port"),
        pytest.param({**by_target(UNCLAIMED), "spec": 5}, id="no policy"),
    ],
)
def test_policy_that_lets_nobody_in_at_the_service_adds_nothing(theirs):
    with_theirs = decide(PIPELINES, consumers=[STATED], others=[theirs])
    assert with_theirs == decide(PIPELINES, consumers=[STATED])


def test_policy_of_others_alone_closes_nothing():
    assert not decide(PIPELINES, others=[by_target(UNCLAIMED)]).policies


def test_gateway_is_no_caller_while_nobody_knows_who_it_is():
    ui = service("kfp-ui", 3000)
    decision = decide(ui, routed=[("kfp-ui", 3000)])
    assert not admits(decision, {NAME: "kfp-ui"}, Call(GATEWAY, 3000))
    assert not admits(decision, {NAME: "kfp-ui"}, Call("", 3000))
