import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import authentication
import gateway
import manifests
import relations

SERVICE = authentication.Service(
    host="oidc.kubeflow.svc.cluster.local",
    port=8080,
    request_headers=("cookie", "x-auth-token"),
    response_headers=("kubeflow-userid",),
)
TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gw",
    http_port=80,
    https_port=443,
)


def said(message=None, problem="", relation=1, application="oidc-gatekeeper"):
    return relations.Received(relation, application, message, problem)


def request(**changes):
    values = {"service": "oidc", "port": 8080, **changes}
    return relations.AuthRequest.model_validate(values)


def decide(*received, strict=True):
    return authentication.decide(received, strict=strict, model="kubeflow", domain="cluster.local")


def rendered(guard, target=TARGET, hosts=("kf.example",)):
    return rendered_all(guard, target, hosts)[0]


def rendered_all(guard, target, hosts, **how):
    context = authentication.context(
        guard,
        target,
        owner="kubeflow.istio-integrator",
        gateway="kubeflow/kubeflow-gateway",
        hosts=hosts,
        **how,
    )
    return manifests.render(authentication.FOLDER, context)


def policy(guard, target=TARGET, hosts=("kf.example",)):
    found = rendered_all(guard, target, hosts)
    assert [obj["kind"] for obj in found] == ["EnvoyFilter", "AuthorizationPolicy"]
    return found[1]


def filters(envoy_filter):
    return [
        patch["patch"]["value"]
        for patch in envoy_filter["spec"]["configPatches"]
        if patch["applyTo"] == "HTTP_FILTER"
    ]


def test_complete_request_names_who_is_asked():
    headers = {"allowed-request-headers": ["cookie"], "allowed-response-headers": ["X-User"]}
    decision = decide(said(request(**headers)))
    assert decision == authentication.Decision(
        guard=authentication.Guard(
            service=authentication.Service(
                host="oidc.kubeflow.svc.cluster.local",
                port=8080,
                request_headers=("cookie",),
                response_headers=("x-user",),
            )
        )
    )


@pytest.mark.parametrize(
    ("received", "strict", "words"),
    [
        pytest.param((), True, "integrate ingress-auth", id="never related, or broken"),
        pytest.param((said(),), True, "waiting for oidc-gatekeeper", id="incomplete"),
        pytest.param((said(),), False, "waiting for oidc-gatekeeper", id="incomplete, not strict"),
        pytest.param((said(problem="port is missing"),), False, "port is missing", id="malformed"),
        pytest.param(
            (said(request()), said(request(), relation=2, application="other")),
            False,
            "keep one of oidc-gatekeeper, other",
            id="several",
        ),
    ],
)
def test_ingress_is_closed_until_somebody_can_be_asked(received, strict, words):
    decision = decide(*received, strict=strict)
    assert decision.is_closed
    assert words in decision.blocked + decision.waiting


def test_ingress_without_the_relation_is_open_where_the_operator_says_so():
    assert decide(strict=False) == authentication.Decision()


MESSAGES = st.sampled_from([None, request(), request(port=1)])


@given(st.lists(st.builds(said, MESSAGES, st.sampled_from(["", "wrong"])), max_size=3))
def test_open_only_by_the_operators_word_and_never_while_related(received):
    assert decide(*received, strict=True).guard is not None
    assert (decide(*received, strict=False).guard is None) == (not received)


@pytest.mark.parametrize(
    ("namespace", "host"),
    [(None, "oidc.kubeflow.svc.cluster.local"), ("sso", "oidc.sso.svc.cluster.local")],
)
def test_service_in_another_namespace_is_asked_there(namespace, host):
    message = relations.AuthRequest(service="oidc", port=1, namespace=namespace)
    assert decide(relations.Received(1, "oidc", message)).guard.service.host == host


def test_identity_headers_are_those_that_only_the_service_says():
    service = authentication.Service(
        host="x",
        port=1,
        request_headers=("x-auth-token",),
        response_headers=("kubeflow-userid", "x-auth-token", "authorization"),
    )
    assert service.identity_headers == ("kubeflow-userid",)


def test_shared_gateway_has_the_filters_disabled_but_on_our_hosts():
    envoy_filter = rendered(authentication.Guard(service=SERVICE))
    assert [one["disabled"] for one in filters(envoy_filter)] == [True, True]
    hosts = [
        patch["match"]["routeConfiguration"]
        for patch in envoy_filter["spec"]["configPatches"]
        if patch["applyTo"] == "VIRTUAL_HOST"
    ]
    assert hosts == [
        {"gateway": "kubeflow/kubeflow-gateway"},
        {"vhost": {"name": "kf.example:80"}},
        {"vhost": {"name": "kf.example:443"}},
    ]
    names = {one["name"] for one in filters(envoy_filter)}
    for patch in envoy_filter["spec"]["configPatches"][2:]:
        enabled = patch["patch"]["value"]["typed_per_filter_config"]
        assert set(enabled) == names
        assert all("disabled" not in config for config in enabled.values())


def test_gateway_of_our_own_has_the_filters_before_everything():
    envoy_filter = rendered(authentication.Guard(service=SERVICE), hosts=())
    assert [one["disabled"] for one in filters(envoy_filter)] == [False, False]
    assert len(envoy_filter["spec"]["configPatches"]) == 2


def test_gateway_of_our_own_spares_hosts_that_came_later():
    server = gateway.Server(80, ("shop/shop.example", "*"))
    target = gateway.Target(
        **{**vars(TARGET), "neighbours": (gateway.Neighbour("shop/web", (server,)),)}
    )
    envoy_filter = rendered(authentication.Guard(service=SERVICE), target, hosts=())
    (spared,) = envoy_filter["spec"]["configPatches"][2:]
    assert spared["match"]["routeConfiguration"] == {"vhost": {"name": "shop.example:80"}}
    settings = spared["patch"]["value"]["typed_per_filter_config"].values()
    assert all(config["disabled"] for config in settings)


WILDCARD = ("*.kf.example", "kf.example")


def test_wildcard_has_the_filters_before_everything_but_newcomers():
    server = gateway.Server(80, ("*.kf.example", "shop.example"))
    target = gateway.Target(
        **{**vars(TARGET), "neighbours": (gateway.Neighbour("shop/web", (server,)),)}
    )
    envoy_filter = rendered(authentication.Guard(service=SERVICE), target, WILDCARD)
    assert [one["disabled"] for one in filters(envoy_filter)] == [False, False]
    # Never for a host that is ours, whoever else claims it.
    (spared,) = envoy_filter["spec"]["configPatches"][2:]
    assert spared["match"]["routeConfiguration"] == {"vhost": {"name": "shop.example:80"}}


def test_wildcard_on_a_shared_gateway_is_guarded_by_its_gateway_where_there_is_only_https():
    server = gateway.Server(80, ("shop.example",))
    target = gateway.Target(
        **{**vars(TARGET), "neighbours": (gateway.Neighbour("shop/web", (server,)),)}
    )
    guard = authentication.Guard(service=SERVICE)
    (envoy_filter,) = rendered_all(guard, target, WILDCARD, only_https=True)
    assert [one["disabled"] for one in filters(envoy_filter)] == [True, True]


def test_identity_is_taken_away_before_the_service_is_asked():
    strip, authorize = filters(rendered(authentication.Guard(service=SERVICE)))
    assert "identity[ [[kubeflow-userid]] ] = true" in json.dumps(strip)
    config = authorize["typed_config"]
    assert config["failure_mode_allow"] is False
    assert config["http_service"]["server_uri"]["cluster"] == (
        "outbound|8080||oidc.kubeflow.svc.cluster.local"
    )
    shown = [pattern["exact"] for pattern in config["allowed_headers"]["patterns"]]
    assert shown == ["cookie", "x-auth-token"]


def test_closed_guard_asks_a_service_that_does_not_exist():
    _, authorize = filters(rendered(authentication.Guard()))
    config = authorize["typed_config"]
    assert config["failure_mode_allow"] is False
    assert config["http_service"]["server_uri"]["cluster"] == "istio-integrator-closed"
    assert "allowed_headers" not in config


PROVIDED = authentication.Guard(service=SERVICE, provider="oidc")
LATER = gateway.Target(
    **{
        **vars(TARGET),
        "neighbours": (gateway.Neighbour("shop/web", (gateway.Server(80, ("shop.example",)),)),),
    }
)


@pytest.mark.parametrize(
    ("target", "hosts", "rule"),
    [
        pytest.param(
            TARGET,
            ("kf.example",),
            {"to": [{"operation": {"hosts": ["kf.example", "kf.example:*"]}}]},
            id="hosts of ours, with any port",
        ),
        pytest.param(
            TARGET,
            ("*.kf.example",),
            {"to": [{"operation": {"hosts": ["*.kf.example"]}}]},
            id="wildcard, which takes no other",
        ),
        pytest.param(TARGET, (), {}, id="everything on a gateway of our own"),
        pytest.param(
            LATER,
            (),
            {"to": [{"operation": {"notHosts": ["shop.example", "shop.example:*"]}}]},
            id="but hosts of others that came later",
        ),
        pytest.param(
            LATER,
            ("*.example",),
            {
                "to": [
                    {
                        "operation": {
                            "hosts": ["*.example"],
                            "notHosts": ["shop.example", "shop.example:*"],
                        }
                    }
                ]
            },
            id="also within our wildcard",
        ),
    ],
)
def test_policy_is_about_our_hosts(target, hosts, rule):
    spec = policy(PROVIDED, target, hosts)["spec"]
    assert spec == {
        "selector": {"matchLabels": {"istio": "ingressgateway"}},
        "action": "CUSTOM",
        "provider": {"name": "oidc"},
        "rules": [rule],
    }


def test_our_filter_asks_unless_the_policys_filters_did():
    _, authorize = filters(rendered(PROVIDED))
    name = policy(PROVIDED)["metadata"]["name"]
    asked = authorize["typed_config"]["filter_enabled_metadata"]
    assert asked["invert"] is True
    # As istiod names the rule (istio pilot/pkg/security/authz/builder, policyName).
    rule = f"istio-ext-authz-oidc-ns[istio-ingress]-policy[{name}]-rule[0]"
    assert rule.endswith(asked["value"]["string_match"]["suffix"])


@pytest.mark.parametrize(
    "guard", [authentication.Guard(), authentication.Guard(service=SERVICE)], ids=str
)
def test_our_filter_always_asks_where_there_is_no_policy(guard):
    (envoy_filter,) = rendered_all(guard, TARGET, ("kf.example",))
    _, authorize = filters(envoy_filter)
    assert "filter_enabled_metadata" not in authorize["typed_config"]
