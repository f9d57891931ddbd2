"""Routes about which nobody is asked, beside guarded ones: what holds for whichever renderer.

`/open/` is open to everybody, by the application `unguarded`; requests for all else, such as
`/pipeline`, are authenticated. What requests may look like is in test_routes_forged.py.
"""

import itertools

import pytest

from istio_integrator.relations import kubeflow
from tests import echo, gateway_client
from tests.functional.ingress_world import AUTH

COOKIE = echo.COOKIE
HOST = gateway_client.HOST
VICTIM = "victim@example.com"

SIMILAR = [
    pytest.param(lambda name: name[:-1], id="a character less"),
    pytest.param(lambda name: f"{name}x", id="a character more"),
    pytest.param(lambda name: f"{name}.x", id="a part more"),
    pytest.param(lambda name: "istio-integrator", id="the part that all know"),
    pytest.param(lambda name: "mixed", id="another name"),
    pytest.param(lambda name: "", id="none"),
]
"""What a tenant may call a route who does not know the name that is exempted."""


def identities(asked):
    """The users that requests named, in any spelling and any header."""
    known = ("kubeflow-userid", "kubeflow-groups")
    return [
        value
        for each in asked
        for name, value in each["headers"].items()
        if name.replace("_", "-") in known and value
    ]


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
