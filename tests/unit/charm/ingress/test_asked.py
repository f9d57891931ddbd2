"""Who is asked about each request, or why nobody is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.ingress.guard import authentication
from istio_integrator.messages import Said
from istio_integrator.relations import kubeflow


def said(message=None, problem="", relation=1, application="oidc-gatekeeper"):
    return kubeflow.Received(relation, application, message, problem)


def request(**changes):
    values = {"service": "oidc", "port": 8080, **changes}
    return kubeflow.AuthRequest.model_validate(values)


TERMS = {"application": "istio-integrator", "model": "kubeflow", "domain": "cluster.local"}


def decide(*received, strict=True, services=("kubeflow/oidc", "sso/oidc"), forwarded=(), **terms):
    def find(name, namespace):
        return f"{namespace}/{name}" if f"{namespace}/{name}" in services else None

    decider = authentication.Decider(**{**TERMS, "strict": strict, "find": find, **terms})
    return decider.decide(received, forwarded)


def test_complete_request_names_who_is_asked():
    headers = {"allowed-request-headers": ["cookie"], "allowed-response-headers": ["X-User"]}
    decision = decide(said(request(**headers)))
    assert decision.service == authentication.Service(
        host="oidc.kubeflow.svc.cluster.local",
        port=8080,
        request_headers=("cookie",),
        response_headers=("x-user",),
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
    assert words in decision.problem.text


def test_ingress_without_the_relation_is_open_where_the_operator_says_so():
    assert decide(strict=False) == authentication.Decision()


MESSAGES = st.sampled_from([None, request(), request(port=1)])


def forwarded_by(message=None, problem="", relation=7, application="oauth2-proxy"):
    return kubeflow.Received(relation, application, message, problem)


def address(text="http://oidc.sso.svc.cluster.local:4180", headers="[]"):
    bag = {"decisions_address": text, "app_names": "[]", "headers": headers}
    message, problem = kubeflow.read_forward_auth(bag)
    assert problem == ""
    return message


ADDRESSES = st.sampled_from([None, address(), address("http://elsewhere.example.com")])
PROBLEMS = st.sampled_from(["", "wrong"])


@given(
    st.lists(st.builds(said, MESSAGES, PROBLEMS), max_size=3),
    st.lists(st.builds(forwarded_by, ADDRESSES, PROBLEMS), max_size=2),
)
def test_open_only_by_the_operators_word_and_never_while_related(received, forwarded):
    closed = decide(*received, forwarded=forwarded, strict=True)
    assert closed.word != "none"
    assert bool(closed.problem) == closed.is_closed
    unstrict = decide(*received, forwarded=forwarded, strict=False)
    assert (unstrict.word == "none") == (not received and not forwarded)
    if len(received) + len(forwarded) != 1:
        assert closed.is_closed


@pytest.mark.parametrize(
    "text",
    [
        "http://oidc.sso.svc.cluster.local:4180/decisions",
        "http://oidc.sso.svc.cluster.local.:4180/decisions/",
        "http://oidc.sso.svc:4180/decisions",
    ],
)
def test_address_on_forward_auth_names_who_is_asked_and_at_which_path(text):
    decision = decide(forwarded=[forwarded_by(address(text, '["X-User", "kubeflow-userid"]'))])
    service = decision.service
    assert (service.host, service.port) == ("oidc.sso.svc.cluster.local", 4180)
    assert service.path == "/decisions"
    assert service.response_headers == ("x-user", "kubeflow-userid", "kubeflow-groups")
    assert set(service.identity_headers) == set(service.response_headers)
    assert {"authorization", "cookie", "x-auth-token"} < set(service.request_headers)


def test_of_several_on_forward_auth_nobody_is_asked():
    decision = decide(
        forwarded=[forwarded_by(address()), forwarded_by(relation=8, application="other")]
    )
    assert decision.is_closed
    assert "keep one of oauth2-proxy, other" in decision.problem.text


def test_name_of_the_default_domain_means_a_service_of_any_cluster():
    decision = decide(forwarded=[forwarded_by(address())], domain="corp.example")
    assert decision.service.host == "oidc.sso.svc.corp.example"


@pytest.mark.parametrize(
    "host",
    [
        "sso.example.com",
        "oidc",
        "oidc.sso",
        "oidc-0.oidc.sso.svc.cluster.local",
        "oidc.sso.svc.other.example",
        "oidc.sso.svc.cluster.local.example.com",
        "oi_dc.sso.svc",
        "10.0.0.1",
        "[::1]",
        "localhost",
        "a" * 64 + ".sso.svc",
    ],
)
def test_address_that_is_no_service_of_the_cluster_closes_and_is_named(host):
    decision = decide(forwarded=[forwarded_by(address(f"http://{host}:80"))])
    assert decision.is_closed
    assert "forward-auth of oauth2-proxy: decisions_address has the host" in decision.problem.text
    assert "no Service of this cluster" in decision.problem.text


def test_address_of_a_service_that_is_not_there_is_waited_for():
    decision = decide(forwarded=[forwarded_by(address())], services=["sso/other"])
    assert decision.is_closed
    assert decision.problem == Said.AUTHENTICATOR_AWAITED(what="Service sso/oidc of oauth2-proxy")


@pytest.mark.parametrize(
    ("one", "other"), [(said(request()), forwarded_by(address())), (said(), forwarded_by())]
)
def test_two_ways_to_ask_close_and_both_are_named_with_what_to_remove(one, other):
    decision = decide(one, forwarded=[other], strict=False)
    assert decision.is_closed
    for words in (
        "oidc-gatekeeper on ingress-auth",
        "oauth2-proxy on forward-auth",
        "; run: juju remove-relation istio-integrator:forward-auth oauth2-proxy; ",
    ):
        assert words in decision.problem.text


def test_service_that_is_not_there_is_nobody_to_ask_since_anybody_may_take_its_name():
    decision = decide(said(request()), services=("kubeflow/other", "team/oidc"))
    assert decision.is_closed
    assert decision.problem == Said.AUTHENTICATOR_AWAITED(
        what="Service kubeflow/oidc of oidc-gatekeeper"
    )


@pytest.mark.parametrize(
    ("namespace", "host"),
    [(None, "oidc.kubeflow.svc.cluster.local"), ("sso", "oidc.sso.svc.cluster.local")],
)
def test_service_in_another_namespace_is_asked_there(namespace, host):
    message = kubeflow.AuthRequest(service="oidc", port=1, namespace=namespace)
    assert decide(kubeflow.Received(1, "oidc", message)).service.host == host
