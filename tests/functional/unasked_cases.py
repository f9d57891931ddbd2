"""Routes about which nobody is asked, beside guarded ones: what holds for whichever renderer.

`/open/` and `/pipeline/page` are open to everybody, by the application `unguarded`;
everybody is asked about all else, such as `/pipeline`.
"""

import itertools
import json

import httpx2
import pytest

from istio_integrator.relations import kubeflow
from tests import echo, forged_requests, gateway_client
from tests.functional.ingress_world import AUTH

COOKIE = echo.COOKIE
HOST = gateway_client.HOST
VICTIM = "victim@example.com"
CLAIM = {"kubeflow-userid": VICTIM, "kubeflow_groups": VICTIM}

SIMILAR = [
    pytest.param(lambda name: name[:-1], id="a character less"),
    pytest.param(lambda name: f"{name}x", id="a character more"),
    pytest.param(lambda name: f"{name}.x", id="a part more"),
    pytest.param(lambda name: "istio-integrator", id="the part that all know"),
    pytest.param(lambda name: "mixed", id="another name"),
    pytest.param(lambda name: "", id="none"),
]
"""What a tenant may call a route who does not know the name that is exempted."""


def headers(asked):
    """What requests said about their user, in any spelling and any header."""
    known = ("kubeflow-userid", "kubeflow-groups")
    return [
        value
        for each in asked
        for name, value in each["headers"].items()
        if name.replace("_", "-") in known
    ]


def identities(asked):
    """The users that requests named."""
    return list(filter(None, headers(asked)))


class Unasked:
    """Tests of a place `opened`, which its module makes with the renderer that it is about."""

    def name(self, opened):
        """The name by which the guard knows the routes."""
        raise NotImplementedError

    def stolen(self, name):
        """A tenant's route of a name, at `/steal`, to an application of the model."""
        raise NotImplementedError

    def apply(self, opened):
        """Have the cluster be as the place says."""
        raise NotImplementedError

    def test_unauthenticated_route_is_reached_unasked_and_by_nobody_in_particular(self, opened):
        paths = ("/open/x", "/pipeline/page")
        for claim, path in itertools.product(forged_requests.CLAIMS, paths):
            head = forged_requests.head(path, more=(f"Cookie: {COOKIE}", claim))
            answer = gateway_client.raw("127.0.0.1", head, opened.port)
            assert answer.startswith(b"HTTP/1.1 200 "), claim
        assert opened.asked == []
        assert opened.application == []
        assert len(opened.unguarded) == 2 * len(forged_requests.CLAIMS)
        assert headers(opened.unguarded) == []
        assert "admin" not in json.dumps(opened.unguarded)

    def test_websocket_of_an_unauthenticated_route_is_nobodys_either(self, opened):
        where = ("127.0.0.1", "/open/socket", "hello")
        assert gateway_client.talk(*where, port=opened.port) == "hello"
        stranger = gateway_client.talk("127.0.0.1", "/pipeline/x", "hello", port=opened.port)
        assert " 302 " in stranger

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/pipeline/page/"),
            ("GET", "/pipeline/pages"),
            ("GET", "/pipeline/page;x"),
            ("GET", "/pipeline/PAGE"),
            ("GET", "/opening"),
            ("GET", "/OPEN/x"),
            ("GET", "/kfp/x"),
            ("GET", "/"),
        ],
    )
    def test_neighbours_of_an_unauthenticated_route_are_asked_about(self, opened, method, path):
        head = forged_requests.head(path, method=method, more=("Content-Length: 0",))
        answer = gateway_client.raw("127.0.0.1", head, opened.port)
        assert answer.startswith(b"HTTP/1.1 302 "), answer
        assert opened.application == opened.unguarded == []
        assert len(opened.asked) == 1

    def test_no_way_to_write_a_request_leads_from_an_unauthenticated_route_to_a_guarded_one(
        self, opened
    ):
        heads = [forged_requests.head(path) for path in forged_requests.PATHS]
        heads += [param.values[0] for param in forged_requests.HEADS]
        claims = "".join(f"{claim}\r\n" for claim in forged_requests.CLAIMS)
        for head in heads:
            # The authorization service here lets everybody reach /dex.
            text = head.replace("/dex", "/open").replace("\r\n\r\n", f"\r\n{claims}\r\n")
            answer = gateway_client.raw("127.0.0.1", text, opened.port)
            assert answer.startswith(b"HTTP/1."), head
        assert opened.application == []
        assert identities([*opened.unguarded, *opened.asked]) == []
        assert {each["path"].startswith("/open/") for each in opened.unguarded} == {True}

    def test_requests_of_http_2_are_told_apart_in_the_same_way(self, opened):
        with httpx2.Client(http1=False, http2=True) as client:

            def ask(path):
                url = f"http://127.0.0.1:{opened.port}{path}"
                return client.get(url, headers={"Host": HOST, **CLAIM})

            assert ask("/open/x").status_code == 200
            assert headers(opened.unguarded) == []
            for path in ("/pipeline/x", "/open/../pipeline/x", "/open/%2e%2e/pipeline/x"):
                stranger = ask(path)
                assert (stranger.http_version, stranger.status_code) == ("HTTP/2", 302), path
        assert opened.application == []

    @pytest.mark.parametrize("similar", SIMILAR)
    def test_route_of_a_tenant_with_a_similar_name_is_asked_about(self, opened, similar):
        self.check_stolen(opened, similar(self.name(opened)))

    def check_stolen(self, opened, name):
        """See that nobody passes unasked by a tenant's route of that name."""
        with opened.there(self.stolen(name)):
            answer = opened.eventually(200, "/steal/x", Cookie=COOKIE)
            assert identities([answer.echo]) == [echo.USER]
            opened.application.clear()
            for host, tls in itertools.product((HOST, "elsewhere.example.com"), ("", HOST)):
                answer = opened.asked_once("/steal/x", host=host, tls=tls)
                assert answer.status in (302, 404), (host, tls)
            assert opened.application == []

    def test_unauthenticated_route_needs_no_authorization_service_and_others_do(self, opened):
        elsewhere = AUTH.model_copy(update={"port": 81})
        opened.auths = [kubeflow.Received(9, "oidc", elsewhere)]
        self.apply(opened)
        opened.eventually(403, "/pipeline/x", Cookie=COOKIE)
        answer = opened.asked_once("/open/x", **{"kubeflow-userid": VICTIM})
        assert answer.status == 200
        assert identities(opened.unguarded) == []
