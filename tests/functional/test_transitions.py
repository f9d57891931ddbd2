"""Strangers send requests without a pause while access to a model changes.

A real istiod configures real Envoys: another team's gateway, which `gateway-service` names, the
model's own, and the one that istiod deploys. Users, a tenant and a second model with an integrator
of its own send requests beside the strangers. Each row of the table that is printed is one
transition.
"""

import base64
import collections
import contextlib
import copy
import dataclasses
import json
import sys

import pytest
from cryptography import x509
from ops import testing

from integrator_contract import names
from testbed import loopback
from tests import echo, gateway_client, waiting
from tests.functional import (
    gateway_api_world,
    ingress_world,
    istiod_world,
    loopback_istiod,
    newer_routes,
)
from tests.functional.ingress_world import COMPLETE, MODEL, forward, request
from tests.functional.newer_routes import bag, matched, wish
from tests.gateway_client import HOST, TENANT
from tests.unit.charm.ingress_world import auth

SECOND, BESIDE = "second.example.com", "beside.example.com"
NAMED, OWN, MANAGED = "named", "own", "managed"
LABELS = {OWN: ingress_world.OWN_LABELS, MANAGED: {names.GATEWAY_NAME: gateway_api_world.NAME}}
GROUPS = {MANAGED: "gateway.networking.k8s.io"}
VICTIM = "victim@example.com"
RENEWED = "session=renewed"
"""The session that the second authorization service knows, which does not know the first one's."""


class Replacement(echo.Authorization):
    """An authorization service with sessions of its own."""

    def decide(self, headers):
        cookie = headers.get("cookie", "").replace(echo.COOKIE, "").replace(RENEWED, echo.COOKIE)
        return super().decide({**headers, "cookie": cookie})


class Mortal:
    """An authorization service in a process of its own, which is killed and comes back."""

    def __init__(self, folder):
        self.port = loopback.free_port()
        self._log = folder / "mortal.log"
        self._running = contextlib.ExitStack()

    def start(self):
        """Run it."""
        argv = [sys.executable, echo.__file__, "--authorization", str(self.port)]
        started = self._running.enter_context(loopback_istiod.process(argv, self._log))
        istiod_world.wait_for_port(self.port, started, self._log)

    def kill(self):
        """End it."""
        self._running.close()


OLDER, NEWER = "ingress-auth", "forward-auth"


@dataclasses.dataclass(frozen=True)
class State:
    """Relations and options, and what follows from them for who asks."""

    hosts: tuple[str, ...] = (HOST,)
    is_related: bool = True
    gateway: str = NAMED
    service: str = "oidc"
    ways: tuple[str, ...] = (OLDER,)
    """Endpoints by which the authorization service is related."""
    is_killed: bool = False
    """Whether the process of that service has been killed."""
    has_tls: bool = True
    is_renewed: bool = False
    """Whether the certificate is replaced."""
    is_open: bool = False
    more: tuple[testing.Relation, ...] = ()
    """Routes of today's charms."""
    strangers: tuple[tuple[str, int], ...] = ()
    """Paths of these, with what strangers get there."""

    def given(self):
        """Return the relations and options of the charm."""
        is_authenticated = self.is_related and not self.is_open
        older = dataclasses.replace(auth(port=80, service=self.service), id=COMPLETE.id)
        newer = forward(f"http://{self.service}.{MODEL}.svc.cluster.local")
        options = {"hosts": ",".join(self.hosts), "require_authentication": not self.is_open}
        if self.gateway == OWN:
            options["gateway_service"] = ""
        if self.gateway == MANAGED:
            options["routing"] = "gateway-api"
        if self.has_tls:
            options["tls_secret"] = ingress_world.SECRET
        return {
            "requests": [request(1, "kfp", "/kfp", None)] if self.is_related else [],
            "newer": self.more if self.is_related else (),
            "auths": [older] if is_authenticated and OLDER in self.ways else [],
            "forwards": [newer] if is_authenticated and NEWER in self.ways else [],
            "options": options,
        }

    @property
    def cookie(self):
        """That of a user."""
        return RENEWED if self.service == "sso" else echo.COOKIE

    def is_served(self, gateway, host, tls):
        """Tell whether a user reaches the application there."""
        is_there = self.is_related and gateway == self.gateway and host in self.hosts
        is_decided = self.is_open or (len(self.ways) == 1 and not self.is_killed)
        return is_there and is_decided and (self.has_tls or not tls)


FULL = State()
NOTHING = State(is_related=False)
PLAIN = State(has_tls=False)
TWO = State(hosts=(HOST, SECOND))
OPEN = State(is_open=True)
REPLACED = State(service="sso")
ON_OWN = State(gateway=OWN)
FORWARD = State(ways=(NEWER,))
MORTAL = State(service="mortal")
LOGIN = State(
    more=(bag(13, "dex", wish("login", matched("/login/")), endpoint=newer_routes.OPEN),),
    strangers=(("/login/x", 200),),
)
ASKED = State(
    more=(bag(15, "app", wish("kfp", matched("/moves/"))),), strangers=(("/moves/x", 302),)
)
FREE = State(
    more=(bag(16, "app", wish("login", matched("/moves/")), endpoint=newer_routes.OPEN),),
    strangers=(("/moves/x", 200),),
)
TRANSITIONS = {
    "first relation": (NOTHING, PLAIN),
    "certificate added": (PLAIN, FULL),
    "certificate renewed": (FULL, State(is_renewed=True)),
    "host added": (FULL, TWO),
    "host removed": (TWO, FULL),
    "route without authentication added": (FULL, LOGIN),
    "route without authentication removed": (LOGIN, FULL),
    "route opened to everybody": (ASKED, FREE),
    "route closed to strangers": (FREE, ASKED),
    "authentication off": (FULL, OPEN),
    "authentication on": (OPEN, FULL),
    "authorization service replaced": (FULL, REPLACED),
    "authorization service removed": (FULL, State(ways=())),
    "authorization service on forward-auth": (FULL, FORWARD),
    "authorization service by both ways": (FORWARD, State(ways=(OLDER, NEWER))),
    "authorization service killed": (MORTAL, dataclasses.replace(MORTAL, is_killed=True)),
    "gateway: named to own": (FULL, ON_OWN),
    "gateway: own to named": (ON_OWN, FULL),
    "gateway: named to managed": (FULL, State(gateway=MANAGED)),
    "gateway: managed to named": (State(gateway=MANAGED), FULL),
    "application removed": (FULL, NOTHING),
}
LONG = (
    "certificate renewed",
    "route without authentication added",
    "route opened to everybody",
    "authorization service on forward-auth",
    "authorization service by both ways",
    "gateway: named to managed",
    "gateway: managed to named",
)


@dataclasses.dataclass(frozen=True)
class Visitor:
    """A series of requests, by default without a session."""

    gateway: str
    path: str = "/kfp/x"
    host: str = HOST
    is_tls: bool = False
    is_fresh: bool = False
    """Whether each request opens a new connection."""
    cookie: str = ""
    always: int = 0
    """The one status that is right; 0: any but 200."""


NOTEBOOK = "/notebook/x"
STRANGERS = [
    Visitor(NAMED),
    Visitor(NAMED, is_fresh=True),
    Visitor(NAMED, is_tls=True),
    Visitor(NAMED, is_tls=True, is_fresh=True),
    Visitor(NAMED, host=SECOND, is_fresh=True),
    Visitor(NAMED, host=SECOND, is_tls=True),
    Visitor(OWN, is_fresh=True),
    Visitor(OWN, is_tls=True),
    Visitor(MANAGED, is_tls=True, is_fresh=True),
    Visitor(NAMED, NOTEBOOK),
    Visitor(OWN, NOTEBOOK, is_tls=True, is_fresh=True),
]
NEIGHBOURS = [
    Visitor(NAMED, "/", TENANT, always=200),
    Visitor(NAMED, "/mlflow/x", BESIDE, always=302),
    Visitor(NAMED, "/mlflow/x", BESIDE, cookie=echo.COOKIE, always=200),
]


class Place(ingress_world.Place):
    """A model with all gateways."""

    def __init__(self, found, client, folder, stack):
        vars(self).update(vars(found))
        self._client, self._folder, self._stack = client, folder, stack
        self._gateways = {
            NAMED: (found.port, found.https_port, found.admin),
            OWN: loopback.free_ports(3),
            MANAGED: loopback.free_ports(3),
        }
        self._running = {NAMED}

    def at(self, gateway):
        """The same model, for requests to a gateway."""
        found = copy.copy(self)
        found.port, found.https_port, found.admin = self._gateways[gateway]
        return found

    def run(self, gateway, token):
        """Start the Envoy of a gateway of the model."""
        if gateway not in self._running:
            self._running.add(gateway)
            folder = self._folder / gateway
            folder.mkdir()
            about = {"namespace": MODEL, "labels": LABELS[gateway]}
            admin = self._gateways[gateway][2]
            running = istiod_world.gateway(folder, self.xds, admin, token, **about)
            self._stack.enter_context(running)

    def renew(self):
        """Replace the certificate of the named gateway."""
        secret = self.api.apply(ingress_world.secret(self._folder))
        pem = base64.b64decode(secret["data"]["tls.crt"])
        serial = x509.load_pem_x509_certificate(pem).serial_number
        # The workload has a hook run for a change of the Secret.
        self.hook()
        shown = self.at(NAMED).visitor(tls=HOST).certificate
        assert waiting.eventually(lambda: shown().serial_number == serial)

    def bring(self, state):
        """Run the charm until requests are answered as in a state."""
        vars(self).update(state.given())
        self.admin = self._gateways[state.gateway][2]
        if state.service == "mortal":
            self.mortal.kill()
            if not state.is_killed:
                self.mortal.start()
        # HTTPRoutes are not served while a VirtualService is on the Gateway of the same name.
        write = self.api.delete if state.gateway == MANAGED else self.api.apply
        write(ingress_world.notebook())
        if not state.is_related:
            self.remove()
        said = self.reconcile()
        if state.gateway == MANAGED:
            self.run(MANAGED, gateway_api_world.run(self.at(MANAGED), self._client, 80, 443))
        if state.is_renewed:
            self.renew()
        for _ in range(6):
            if waiting.eventually(lambda: not self.wrong(state), 15):
                assert self.groups() <= {GROUPS.get(state.gateway, "networking.istio.io")}
                return
            said = self.reconcile()
        raise AssertionError(said, self.wrong(state))

    def groups(self):
        """Groups of API that our Gateway and routes are of."""
        kinds = ("Gateway.networking.istio.io", "VirtualService")
        owned = self.owned(*kinds, "Gateway.gateway.networking.k8s.io", "HTTPRoute")
        return {obj["apiVersion"].partition("/")[0] for obj in owned}

    def wrong(self, state):
        """Requests whose answers are not yet those of a state."""
        found = []
        for gateway in self._gateways:
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
        for path, want in state.strangers:
            got = self.at(state.gateway).status(path)
            found += [] if got == want else [(path, got)]
        return found

    def hammer(self, visitor, **headers):
        """Requests of a visitor who claims to be a user, until the end of the block."""
        client = self.at(visitor.gateway).visitor(tls=visitor.host if visitor.is_tls else "")
        if visitor.cookie:
            headers = {"Cookie": visitor.cookie}
        return gateway_client.Hammer(
            client,
            fresh=visitor.is_fresh,
            pause=0.01,
            host=visitor.host,
            path=visitor.path,
            kubeflow_userid=VICTIM,
            x_who="visitor",
            **headers,
        )


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    """A model with all gateways, further authorization services and a notebook of a tenant."""
    gateway_api_world.install_definitions(client)
    folder = tmp_path_factory.mktemp("istiod")
    with contextlib.ExitStack() as stack:
        login = stack.enter_context(echo.serving(echo.Application))
        replacement = stack.enter_context(echo.serving(Replacement))
        mortal = Mortal(folder)
        stack.callback(mortal.kill)
        more = {"login": login, "sso": replacement}
        more = {name: server.server_port for name, server in more.items()}
        more["mortal"] = mortal.port
        istiod = gateway_api_world.istiod
        serving = ingress_world.serving(client, kubeconfig, folder, more, istiod=istiod)
        found = stack.enter_context(serving)
        found.mortal, found.login = mortal, login.asked
        all_gateways = Place(found, client, folder, stack)
        stack.enter_context(ingress_world.own_ports(found, *all_gateways._gateways[OWN][:2]))
        stack.enter_context(found.there(ingress_world.secret(folder, MODEL)))
        all_gateways.run(OWN, istiod_world.gateway_token(client, MODEL))
        second = stack.enter_context(ingress_world.beside(found))
        second.options = {"hosts": BESIDE}
        second.reconcile()
        second.eventually(200, "/mlflow/x", host=BESIDE, Cookie=echo.COOKIE)
        all_gateways.beside = second.application
        yield all_gateways
        all_gateways.remove()


@pytest.fixture(scope="module")
def table():
    """The rows, printed at the end."""
    rows = [("transition", "requests", "by status", "200 without authentication")]
    yield rows
    print()
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


@pytest.mark.parametrize(
    "transition",
    [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in TRANSITIONS],
)
def test_no_stranger_is_answered_while_access_changes(place, table, transition):
    before, after = TRANSITIONS[transition]
    place.bring(before)
    # A session of the first authorization service is none of the second one.
    session = {"Cookie": before.cookie} if after.service != before.service else {}
    for asked in (place.application, place.login, place.beside):
        asked.clear()
    moving = [Visitor(NAMED, path) for path, _ in (*before.strangers, *after.strangers)]
    # Other gateways do not change in this transition; `wrong` checks them before and after it.
    gateways = {NAMED, before.gateway, after.gateway}
    visitors = [each for each in STRANGERS if each.gateway in gateways]
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(place.hammer(each, **session)) for each in visitors]
        others = [stack.enter_context(place.hammer(each)) for each in (*NEIGHBOURS, *moving)]
        hammers = [*strangers, *others]
        gateway_client.go_on(hammers, 20)
        place.bring(after)
        gateway_client.go_on(hammers, 20)
    answers = collections.Counter()
    for stranger in strangers:
        for what, count in stranger.answers.items():
            answers[what if isinstance(what, int) else "none"] += count
    reopened = [stranger.reopened for stranger in strangers]
    by_status = ", ".join(f"{what}: {answers[what]}" for what in sorted(answers, key=str))
    # Without authentication every stranger is answered, and is anonymous.
    is_open = before.is_open or after.is_open
    unasked = "not required" if after.is_open else sum(reopened)
    table.append((transition, answers.total(), by_status, unasked))
    print(*table[-1])
    assert unasked in (0, "not required"), dict(zip(visitors, reopened, strict=True))
    served = {each["headers"].get("x-who") for each in place.application}
    assert is_open or session or "visitor" not in served
    assert VICTIM not in json.dumps([place.application, place.login, place.beside])
    for visitor, hammer in zip(NEIGHBOURS, others, strict=False):
        assert set(hammer.answers) == {visitor.always}, visitor
