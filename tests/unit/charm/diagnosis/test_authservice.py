"""What the service that is asked about requests stands on."""

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import authservice
from istio_integrator.ingress import authorization
from istio_integrator.kube import streams


def test_issuer_is_looked_for_below_the_login_page_the_longest_path_first():
    assert authservice.issuers("https://id.io/realms/k/protocol/auth?x=1") == [
        "https://id.io/realms/k/protocol/.well-known/openid-configuration",
        "https://id.io/realms/k/.well-known/openid-configuration",
        "https://id.io/realms/.well-known/openid-configuration",
        "https://id.io/.well-known/openid-configuration",
    ]
    assert authservice.issuers("/dex/auth") == []


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=4), st.integers(0, 4))
def test_whatever_issuer_has_its_login_page_below_it_is_among_those_asked(steps, depth):
    login = "/".join(["https://id.io", *steps, "login"])
    issuer = "/".join(["https://id.io", *steps[:depth]])
    assert f"{issuer}/.well-known/openid-configuration" in authservice.issuers(login)


DOCUMENT = streams.Response(200, {}, '{"issuer": "https://id.io"}')

REDIRECT = streams.Response(302, {"location": "https://id.io/auth"}, "")


def issuer(answer, *, own=True):
    return authservice.Issuer(url="https://id.io/x", answer=answer, is_own_view=own)


@pytest.mark.parametrize(
    ("answer", "asked", "level", "words"),
    [
        pytest.param("refused", [], "✗", "does not answer: refused", id="silent"),
        pytest.param(streams.Response(503, {}, ""), [], "✗", "answers 503", id="broken"),
        pytest.param(streams.Response(403, {}, ""), [], "✓", "answers 403", id="no-provider"),
        pytest.param(REDIRECT, [issuer(DOCUMENT)], "✓", "https://id.io/x is there", id="there"),
        pytest.param(
            REDIRECT,
            [issuer(streams.Response(404, {}, "")), issuer(DOCUMENT)],
            "✓",
            "is there",
            id="a-shorter-path",
        ),
        pytest.param(REDIRECT, [issuer("timed out")], "✗", "does not reach", id="away"),
        pytest.param(
            REDIRECT, [issuer(streams.Response(200, {}, "hello"))], "✗", "answers 200", id="page"
        ),
        pytest.param(REDIRECT, [issuer("refused", own=False)], "!", "sends users", id="our-view"),
    ],
)
def test_authorization_service_is_judged_by_its_answer_and_its_provider(
    answer, asked, level, words
):
    (found,) = authservice.judge("oidc:8080", answer, asked, show="show")
    assert (found.level.value, words in found.seen) == (level, True)


class Asked:
    """A pod that remembers for which paths it was asked."""

    def __init__(self):
        self.paths = []

    def get(self, namespace, pod, port, path, *, host):
        """Answer a stranger."""
        self.paths.append((namespace, pod, port, path, host))
        return streams.Response(403, {}, "")


@pytest.mark.parametrize(("path", "want"), [("", "/"), ("/decisions", "/decisions/")])
def test_service_at_a_path_is_asked_there(path, want):
    service = authorization.Service(host="oidc.sso.svc.cluster.local", port=80, path=path)
    pod = {"metadata": {"name": "oidc-0", "namespace": "sso"}}
    asked = Asked()
    facts = types.SimpleNamespace(
        authentication=authorization.Decision(guard=authorization.Guard(service=service)),
        gateway=object(),
        config=types.SimpleNamespace(hosts=["kf.example.com"]),
        streams=asked,
        pods_of=lambda *_: [pod],
        service=lambda *_: {"spec": {"ports": [{"port": 80, "targetPort": 4180}]}},
    )
    (found,) = authservice.authservice(facts)
    assert asked.paths == [("sso", "oidc-0", 4180, want, "kf.example.com")]
    assert "answers 403" in found.seen
