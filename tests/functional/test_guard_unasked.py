"""Routes about which nobody is asked, beside guarded ones, by a real istiod in a real Envoy."""

import contextlib
import itertools
import uuid

import pytest

from istio_integrator.ingress import guards
from tests import echo, gateway_client, waiting
from tests.functional import ingress_world, unasked_cases
from tests.functional.ingress_world import COMPLETE, DOMAIN, MODEL, lead, virtual_service
from tests.functional.unasked_cases import identities

COOKIE = echo.COOKIE
HOST = gateway_client.HOST
OURS = f"{MODEL}/kubeflow-gateway"
OPEN = f"open.{MODEL}.svc.{DOMAIN}"
KFP = f"kfp.{MODEL}.svc.{DOMAIN}"
NAME = f"istio-integrator-{uuid.uuid4().hex}"
VICTIM = unasked_cases.VICTIM
FORGED = {"headers": {"request": {"set": {"kubeflow-userid": VICTIM, "kubeflow_groups": "a"}}}}


def match(prefix):
    return {"uri": {"prefix": prefix}}


def routes(name=NAME):
    """An unauthenticated application, and a guarded one around it."""
    return virtual_service(
        MODEL,
        "mixed",
        [OURS],
        [HOST],
        {"name": name, "match": [match("/open/")], "route": lead(OPEN)},
        {"name": f"{name}-forged", "match": [match("/forged")], "route": lead(OPEN)} | FORGED,
        {"name": "istio-integrator-guarded", "match": [match("/pipeline")], "route": lead(KFP)},
    )


UNASKED = (NAME, f"{NAME}-forged")


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(echo.serving(echo.Application))
        more = {"open": server.server_port}
        folder = tmp_path_factory.mktemp("istiod")
        found = stack.enter_context(ingress_world.serving(client, kubeconfig, folder, more))
        found.unguarded = server.asked
        found.options = {"hosts": HOST, "tls_secret": ingress_world.SECRET}
        found.reconcile()
        stack.enter_context(found.there(routes()))
        found.eventually(200, Cookie=COOKIE)
        found.eventually(200, tls=HOST, Cookie=COOKIE)
        yield found
        found.part().remove()


@pytest.fixture(params=[False, True], ids=["shared", "own"])
def opened(place, request):
    """The place with nobody asked about two routes."""
    place.auths = [COMPLETE]
    place.guard(own=request.param, unasked=UNASKED)
    for tls in ("", HOST):
        place.eventually(200, "/open/x", tls=tls)
        place.eventually(200, "/forged", tls=tls)
        place.eventually(302, "/pipeline/x", tls=tls)
    for asked in (place.application, place.unguarded, place.asked):
        asked.clear()
    return place


class TestUnasked(unasked_cases.Unasked):
    """What holds for VirtualServices as for any other kind of route."""

    def name(self, opened):
        return NAME

    def stolen(self, name):
        named = {"name": name} if name else {}
        route = {**named, "match": [match("/steal")], "route": lead(KFP), **FORGED}
        return virtual_service("shop", "steal", [OURS], ["*", HOST], route)

    def apply(self, opened):
        opened.guard(unasked=UNASKED)

    @pytest.mark.parametrize(
        "name", [pytest.param(NAME.upper(), id="upper case"), "istio-integrator-", "*", ".*"]
    )
    def test_route_of_a_tenant_with_a_name_that_is_no_label_is_asked_about(self, opened, name):
        self.check_stolen(opened, name)

    def test_prefix_of_a_virtual_service_is_text(self, opened):
        assert opened.asked_once("/open").status == 302

    def test_unauthenticated_route_needs_no_authorization_service_and_others_do(self, opened):
        super().test_unauthenticated_route_needs_no_authorization_service_and_others_do(opened)
        assert opened.asked_once("/forged", **{"kubeflow-userid": VICTIM}).status == 200
        assert identities(opened.unguarded) == []


def test_what_the_route_itself_says_of_a_user_leaves_as_nothing(opened):
    for headers in ({}, {"kubeflow-userid": VICTIM}, {"kubeflow_groups": VICTIM}):
        for tls in ("", HOST):
            assert opened.asked_once("/forged", tls=tls, **headers).status == 200
    assert len(opened.unguarded) == 6
    assert identities(opened.unguarded) == []


def test_closed_guard_makes_no_exception(opened):
    opened.auths = []
    opened.guard(unasked=UNASKED)
    for path, tls in itertools.product(("/open/x", "/forged", "/pipeline/x"), ("", HOST)):
        opened.eventually(403, path, tls=tls, Cookie=COOKIE)


def test_guarded_routes_never_open_while_exceptions_come_and_go(place):
    place.auths = [COMPLETE]
    place.guard(unasked=UNASKED)
    place.eventually(200, "/open/x")
    strangers = [
        gateway_client.Hammer(place.visitor(tls=tls), fresh=True, pause=0, path=path)
        for path, tls in (("/kfp/x", ""), ("/pipeline/x", ""), ("/pipeline/x", HOST))
    ]
    with contextlib.ExitStack() as stack:
        for stranger in strangers:
            stack.enter_context(stranger)

        def go_on():
            before = [stranger.count for stranger in strangers]
            assert waiting.eventually(
                lambda: all(
                    stranger.count > count + 10
                    for stranger, count in zip(strangers, before, strict=True)
                )
            )

        for others in ((), UNASKED[:1], UNASKED[1:], (*UNASKED, f"{NAME}-more")):
            place.guard(unasked=others)
            place.eventually(200 if NAME in others else 302, "/open/x")
            go_on()
        for auths in ([], [COMPLETE]):
            place.auths = auths
            place.guard(unasked=UNASKED)
            place.eventually(200 if auths else 403, "/open/x")
            go_on()
        # A route that was open comes back as one that is not, and the reverse.
        for name in ("istio-integrator-another", NAME):
            place.api.apply(routes(name))
            place.eventually(200 if name == NAME else 302, "/open/x")
            go_on()
    for stranger in strangers:
        assert 200 not in stranger.answers, stranger.answers
        assert stranger.answers.get(302, 0) > 0, stranger.answers


def test_routes_beyond_the_bound_are_asked_about_and_the_status_says_so(place):
    place.auths = [COMPLETE]
    part = place.part()
    target = part.resolved()
    others = [f"istio-integrator-{number:032}" for number in range(guards.MOST_UNASKED)]
    part._guard(part.decided().guard, target, [*others, NAME])
    (said,) = [one.message for one in part.statuses() if "without authentication" in one.message]
    assert said.startswith("1 more than 64 routes")
    place.eventually(302, "/open/x")
