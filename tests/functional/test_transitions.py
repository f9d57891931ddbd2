"""Strangers send requests without a pause while access to a model changes.

A real istiod configures two real Envoys: another team's gateway, which `gateway-service` names,
and the model's own. Each row of the table that is printed is one transition.
"""

import collections
import contextlib
import copy
import dataclasses
import json

import pytest

from testbed import loopback
from tests import echo, gateway_client, waiting
from tests.functional import ingress_world, istiod_world
from tests.functional.ingress_world import AUTH, COMPLETE, MODEL, WEB, lead, request
from tests.gateway_client import HOST

SECOND = "second.example.com"
NAMED, OWN = "named", "own"
OWN_LABELS = {"istio": "of-the-model"}
VICTIM = "victim@example.com"
RENEWED = "session=renewed"
"""The session that the second authorization service knows, which does not know the first one's."""


class Replacement(echo.Authorization):
    """An authorization service with sessions of its own."""

    def decide(self, headers):
        cookie = headers.get("cookie", "").replace(echo.COOKIE, "").replace(RENEWED, echo.COOKIE)
        return super().decide({**headers, "cookie": cookie})


@dataclasses.dataclass(frozen=True)
class State:
    """Relations and options, and what follows from them for who asks."""

    hosts: tuple[str, ...] = (HOST,)
    is_related: bool = True
    gateway: str = NAMED
    service: str = "oidc"
    has_tls: bool = True
    is_open: bool = False

    def given(self):
        """What the charm is given."""
        auth = dataclasses.replace(
            COMPLETE, message=AUTH.model_copy(update={"service": self.service})
        )
        options = {"hosts": ",".join(self.hosts), "require_authentication": not self.is_open}
        if self.gateway == OWN:
            options["gateway_service"] = ""
        if self.has_tls:
            options["tls_secret"] = ingress_world.SECRET
        return {
            "requests": [request(1, "kfp", "/kfp", None)] if self.is_related else [],
            "auths": [auth] if self.is_related and not self.is_open else [],
            "options": options,
        }

    @property
    def cookie(self):
        """That of a user."""
        return echo.COOKIE if self.service == "oidc" else RENEWED

    def is_served(self, gateway, host, tls):
        """Tell whether a user reaches the application there."""
        is_there = self.is_related and gateway == self.gateway and host in self.hosts
        return is_there and (self.has_tls or not tls)


FULL = State()
NOTHING = State(is_related=False)
PLAIN = State(has_tls=False)
TWO = State(hosts=(HOST, SECOND))
OPEN = State(is_open=True)
REPLACED = State(service="sso")
ON_OWN = State(gateway=OWN)
TRANSITIONS = {
    "first relation": (NOTHING, PLAIN),
    "certificate added": (PLAIN, FULL),
    "host added": (FULL, TWO),
    "host removed": (TWO, FULL),
    "authentication off": (FULL, OPEN),
    "authentication on": (OPEN, FULL),
    "authorization service replaced": (FULL, REPLACED),
    "gateway: named to own": (FULL, ON_OWN),
    "gateway: own to named": (ON_OWN, FULL),
    "application removed": (FULL, NOTHING),
    "first relation, own gateway": (NOTHING, ON_OWN),
    "application removed, own gateway": (ON_OWN, NOTHING),
}


@dataclasses.dataclass(frozen=True)
class Stranger:
    """Where requests without a session are sent."""

    gateway: str
    path: str = "/kfp/x"
    host: str = HOST
    is_tls: bool = False
    is_fresh: bool = False
    """Whether each request has a connection of its own."""


NOTEBOOK = "/notebook/x"
STRANGERS = [
    Stranger(NAMED),
    Stranger(NAMED, is_fresh=True),
    Stranger(NAMED, is_tls=True),
    Stranger(NAMED, is_tls=True, is_fresh=True),
    Stranger(NAMED, host=SECOND, is_fresh=True),
    Stranger(NAMED, host=SECOND, is_tls=True),
    Stranger(OWN, is_fresh=True),
    Stranger(OWN, is_tls=True),
    Stranger(NAMED, NOTEBOOK),
    Stranger(OWN, NOTEBOOK, is_tls=True, is_fresh=True),
]


class OwnGateway(ingress_world.Standing):
    """The model's own gateway, in whose place the test runs one."""

    def target(self):
        found = super().target()
        return dataclasses.replace(
            found, namespace=MODEL, selector=OWN_LABELS, service="own", workload="own"
        )


class Place(ingress_world.Place):
    """A model with both gateways."""

    def __init__(self, found, ports):
        vars(self).update(vars(found))
        self._gateways = {NAMED: (found.port, found.https_port, found.admin), OWN: ports}

    def part(self):
        made = super().part()
        if not self.options.get("gateway_service", NAMED):
            made._own_gateway = OwnGateway(made._scope)
        return made

    def at(self, gateway):
        """The same model, for requests to a gateway."""
        found = copy.copy(self)
        found.port, found.https_port, found.admin = self._gateways[gateway]
        return found

    def bring(self, state):
        """Have the charm make the model what a state says, until every request shows it."""
        vars(self).update(state.given())
        self.admin = self._gateways[state.gateway][2]
        if not state.is_related:
            self.part().remove()
        said = self.reconcile()
        for _ in range(6):
            if waiting.eventually(lambda: not self.wrong(state), 15):
                return
            said = self.reconcile()
        raise AssertionError(said, self.wrong(state))

    def wrong(self, state):
        """Requests whose answers are not yet those of a state."""
        found = []
        for gateway in (NAMED, OWN):
            for host, tls in ((HOST, ""), (HOST, HOST), (SECOND, ""), (SECOND, SECOND)):
                place, asked = self.at(gateway), {"host": host, "tls": tls}
                user = place.asked_once(**asked, Cookie=state.cookie)
                stranger = place.asked_once(**asked)
                answers = tuple(getattr(each, "status", 0) for each in (user, stranger))
                if state.is_served(gateway, host, tls):
                    is_right = answers == (200, 200 if state.is_open else 302)
                else:
                    is_right = 200 not in answers
                found += [] if is_right else [(gateway, asked, answers)]
        return found

    def hammer(self, stranger, **headers):
        """A stranger who sends requests until the end of the block, and claims to be a user."""
        visitor = self.at(stranger.gateway).visitor(tls=stranger.host if stranger.is_tls else "")
        return gateway_client.Hammer(
            visitor,
            fresh=stranger.is_fresh,
            pause=0.01,
            host=stranger.host,
            path=stranger.path,
            kubeflow_userid=VICTIM,
            **headers,
        )


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    """A model with both gateways, a second authorization service and a notebook of a tenant."""
    folder, own = tmp_path_factory.mktemp("istiod"), tmp_path_factory.mktemp("own")
    notebook = {"match": [{"uri": {"prefix": "/notebook/"}}], "route": lead(WEB)}
    route = ingress_world.virtual_service(
        "shop", "notebook", [f"{MODEL}/kubeflow-gateway"], ["*"], notebook
    )
    with contextlib.ExitStack() as stack:
        replacement = stack.enter_context(echo.serving(Replacement))
        more = {"sso": replacement.server_port}
        found = stack.enter_context(ingress_world.serving(client, kubeconfig, folder, more))
        ports = loopback.free_ports(3)
        listed = [("http2", 80, ports[0]), ("https", 443, ports[1])]
        _, service = ingress_world.gateway_workload(listed)
        service["metadata"] = {"name": "own", "namespace": MODEL}
        service["spec"]["selector"] = OWN_LABELS
        secret = ingress_world.secret(own)
        secret["metadata"]["namespace"] = MODEL
        stack.enter_context(found.there(service, secret, route))
        token = istiod_world.gateway_token(client, MODEL)
        stack.enter_context(
            istiod_world.gateway(
                own, found.xds, ports[2], token, namespace=MODEL, labels=OWN_LABELS
            )
        )
        both = Place(found, ports)
        yield both
        both.part().remove()


@pytest.fixture(scope="module")
def table():
    """The rows, printed at the end."""
    rows = [("transition", "requests", "by status", "200 without authentication")]
    yield rows
    print()
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_no_stranger_is_answered_while_access_changes(place, table, transition):
    before, after = TRANSITIONS[transition]
    place.bring(before)
    # A session of the first authorization service is none of the second one.
    session = {"Cookie": before.cookie} if after.service != before.service else {}
    place.application.clear()
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(place.hammer(each, **session)) for each in STRANGERS]
        go_on(strangers)
        place.bring(after)
        go_on(strangers)
    answers = collections.Counter()
    for stranger in strangers:
        for what, count in stranger.answers.items():
            answers[what if isinstance(what, int) else "none"] += count
    reopened = [stranger.reopened for stranger in strangers]
    by_status = ", ".join(f"{what}: {answers[what]}" for what in sorted(answers, key=str))
    # Without authentication every stranger is answered, and is anonymous.
    unasked = "not required" if after.is_open else sum(reopened)
    table.append((transition, answers.total(), by_status, unasked))
    print(*table[-1])
    assert unasked in (0, "not required"), dict(zip(STRANGERS, reopened, strict=True))
    assert VICTIM not in json.dumps(place.application)


def go_on(strangers, requests=20):
    """Let every stranger send some requests more."""
    counts = [(each, each.count) for each in strangers]
    assert waiting.eventually(
        lambda: all(each.count >= count + requests for each, count in counts), 60
    )
