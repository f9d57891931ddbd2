import pytest

import authentication
import providers

SERVICE = authentication.Service(
    host="oidc.kubeflow.svc.cluster.local",
    port=8080,
    request_headers=("cookie", "x-auth-token"),
    response_headers=("kubeflow-userid",),
)
HTTP = {
    "service": SERVICE.host,
    "port": 8080,
    "includeRequestHeadersInCheck": ["Cookie", "x-auth-token", "x-more"],
    "headersToUpstreamOnAllow": ["Kubeflow-UserID"],
}


def configured(name="oidc", **changes):
    http = {key: value for key, value in {**HTTP, **changes}.items() if value is not None}
    return {"name": name, "envoyExtAuthzHttp": http}


def policy(provider, action="CUSTOM"):
    return {
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "theirs", "namespace": "istio-ingress"},
        "spec": {"action": action, "provider": {"name": provider}},
    }


def choose(*entries, policies=()):
    return providers.choose(SERVICE, entries, policies)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(configured(), id="as asked for"),
        pytest.param(configured(service=f"kubeflow/{SERVICE.host}"), id="with its namespace"),
        pytest.param(configured(port="8080"), id="port as a string, as JSON of protocol buffers"),
        pytest.param(configured(failOpen=False, timeout="5s"), id="said to be closed"),
        pytest.param(
            configured(headersToDownstreamOnDeny=["Set-Cookie", "x"]),
            id="keeps the login's cookie",
        ),
    ],
)
def test_provider_that_asks_as_the_application_wants_is_used(entry):
    tracing = {"name": "tracing", "zipkin": {"service": SERVICE.host, "port": 8080}}
    assert choose(tracing, entry) == providers.Choice("oidc")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"failOpen": True}, "failOpen", id="open when nobody answers"),
        pytest.param({"pathPrefix": "/auth"}, "pathPrefix", id="asks for another path"),
        pytest.param({"statusOnError": "200"}, "statusOnError", id="takes an error for a yes"),
        pytest.param(
            {"includeRequestBodyInCheck": {"maxRequestBytes": 1}},
            "includeRequestBodyInCheck",
            id="refuses long bodies",
        ),
        pytest.param(
            {"includeRequestHeadersInCheck": ["cookie"]},
            "includeRequestHeadersInCheck lacks x-auth-token",
            id="shows too little",
        ),
        pytest.param(
            {"headersToUpstreamOnAllow": None},
            "headersToUpstreamOnAllow is not kubeflow-userid",
            id="does not say who it is",
        ),
        pytest.param(
            {"headersToUpstreamOnAllow": ["kubeflow-userid", "x-*"]},
            "headersToUpstreamOnAllow is not kubeflow-userid",
            id="says more, which clients could claim",
        ),
        pytest.param(
            {"headersToDownstreamOnDeny": ["location"]}, "lacks set-cookie", id="no login"
        ),
        pytest.param({"port": 8080, "timeout": 5}, "timeout", id="malformed"),
    ],
)
def test_provider_that_differs_is_not_used_and_the_reason_given(changes, words):
    choice = choose(configured(**changes))
    assert choice.name == ""
    assert choice.reason.startswith("extension provider oidc is not used: ")
    assert words in choice.reason


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(configured(service="other.kubeflow.svc.cluster.local"), id="service"),
        pytest.param(configured(service=f"elsewhere/{SERVICE.host}"), id="namespace"),
        pytest.param(configured(port=80), id="port"),
        pytest.param({"name": "oidc"}, id="nothing"),
        pytest.param({"name": "oidc", "envoyExtAuthzGrpc": HTTP}, id="another protocol"),
    ],
)
def test_provider_of_another_service_is_not_worth_a_word(entry):
    assert choose(entry) == providers.Choice()


def test_one_that_fits_is_found_among_others():
    assert choose(configured("open", failOpen=True), configured("closed")).name == "closed"


@pytest.mark.parametrize(
    ("theirs", "used"),
    [
        pytest.param(policy("oidc"), True, id="the same provider"),
        pytest.param(policy("ldap", action="DENY"), True, id="no policy that asks"),
        pytest.param(policy("ldap"), False, id="another provider"),
    ],
)
def test_policy_with_another_provider_on_the_workload_rules_ours_out(theirs, used):
    choice = choose(configured(), policies=[theirs])
    assert bool(choice.name) is used
    if not used:
        assert "AuthorizationPolicy istio-ingress/theirs names ldap" in choice.reason


OWNER = "istio-integrator.charmhub.io/owner"


def owned(owner, created):
    labels = {OWNER: owner} if owner else {}
    metadata = {"name": f"of-{owner}", "labels": labels}
    if created:
        metadata["creationTimestamp"] = f"2026-01-01T00:00:0{created}Z"
    return {"kind": "AuthorizationPolicy", "metadata": metadata, "spec": {}}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param([("a", 1), ("", 9)], [""], id="of anybody else, however young"),
        pytest.param([("b", 9)], ["b"], id="of another integrator that was first"),
        pytest.param([("a", 1), ("b", 2)], [], id="not of one that came after us"),
        pytest.param([("a", 2), ("b", 1)], ["b"], id="of one that came before us"),
        pytest.param([("a", 1), ("b", 1)], [], id="in the same second, not the later name"),
        pytest.param([("a", 1)], [], id="never our own"),
    ],
)
def test_one_of_two_integrators_steps_back_and_never_both(found, want):
    policies = [owned(*one) for one in found]
    before = providers.obstacles(policies, "a")
    assert [policy["metadata"]["labels"].get(OWNER, "") for policy in before] == want
    owners = {owner for owner, _ in found if owner}
    if len(owners) == 2:
        # Whoever looks: exactly one of the two has to go.
        stepping = [owner for owner in owners if providers.obstacles(policies, owner)]
        assert len(stepping) == 1
