"""Routes of today's charms while all around them changes, by a real istiod in a real Envoy.

Strangers who claim to be somebody, visitors who are known, and the tenants of the same gateway ask
without a pause; the applications keep what reached them, and the end of the test counts.
"""

import base64
import contextlib
import copy
import json
import sys

import pytest
from cryptography import x509

from integrator_contract import names
from istio_integrator.ingress import gateway
from istio_integrator.ingress.gateways.managed import deployment
from testbed import loopback
from tests import echo, gateway_client, waiting
from tests.functional import gateway_api_world, ingress_world, istiod_world
from tests.functional.ingress_world import COMPLETE, MODEL
from tests.functional.newer_routes import OPEN, bag, matched, rewritten, wish

HOST = gateway_client.HOST
BESIDE = "ml-beside"
"""A model with an integrator of its own at the same gateway."""
THEIRS = "ml.example.com"
VICTIM = "victim@example.com"
STRANGER = {"x_who": "stranger", "kubeflow_userid": VICTIM, "kubeflow_groups": VICTIM}
KNOWN = {**STRANGER, "x_who": "known", "Cookie": echo.COOKIE}
SSO = {"decisions_address": f"http://sso.{MODEL}.svc.cluster.local", "app_names": "[]"}
ASKED = [
    bag(11, "kubeflow-dashboard", wish("dashboard", matched("/"))),
    bag(12, "katib-ui", wish("kfp", matched("/katib/"), port=443)),
]
UNASKED = [bag(13, "dex-auth", wish("login", matched("/login/")), endpoint=OPEN)]
LATE = bag(14, "volumes", wish("kfp", matched("/katib/late"), filters=[rewritten("/")]))
MOVING = wish("kfp", matched("/moves/"))
MOVED = wish("login", matched("/moves/"))
REQUESTS = 10_000


class Mortal:
    """An authorization service in a process of its own, which is killed and comes back."""

    def __init__(self, folder):
        self.port = loopback.free_port()
        self._log = folder / "sso.log"
        self._running = contextlib.ExitStack()

    def start(self):
        argv = [sys.executable, echo.__file__, "--authorization", str(self.port)]
        started = self._running.enter_context(istiod_world.process(argv, self._log))
        istiod_world.wait_for_port(self.port, started, self._log)

    def kill(self):
        self._running.close()


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    """A model that is served at a shared gateway by what today's charms ask for."""
    gateway_api_world.install_definitions(client)
    folder = tmp_path_factory.mktemp("istiod")
    with contextlib.ExitStack() as stack:
        login = stack.enter_context(echo.serving(echo.Application))
        sso = Mortal(folder)
        sso.start()
        stack.callback(sso.kill)
        more = {"login": login.server_port, "sso": sso.port}
        istiod = gateway_api_world.istiod
        serving = ingress_world.serving(client, kubeconfig, folder, more, istiod=istiod)
        found = stack.enter_context(serving)
        found.login, found.sso, found.folder = login.asked, sso, folder
        found.requests, found.newer = [], [*ASKED, *UNASKED]
        found.auths, found.forwards = [], [SSO]
        found.options = {"hosts": HOST, "tls_secret": ingress_world.SECRET}
        found.beside = stack.enter_context(neighbouring(found))
        found.reconcile()
        found.eventually(200, Cookie=echo.COOKIE)
        found.eventually(200, "/login/x")
        yield found
        found.part().remove()


@contextlib.contextmanager
def neighbouring(place):
    """Another model at the same gateway, by an integrator and relations of its own."""
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(echo.serving(echo.Application))
        decides = stack.enter_context(echo.serving(echo.Authorization))
        for obj in (
            ingress_world.namespace(BESIDE),
            *ingress_world.service(BESIDE, "mlflow", served.server_port),
            *ingress_world.service(BESIDE, "oidc", decides.server_port),
        ):
            place.api.create(obj)
        stack.callback(place.api.delete, ingress_world.namespace(BESIDE))
        ports = (place.port, place.https_port, place.admin)
        found = ingress_world.Place(place.api, ports, served.asked, decides.asked, BESIDE)
        found.newer = [bag(21, "mlflow", wish("mlflow", matched("/")), model=BESIDE)]
        found.auths = [COMPLETE]
        found.options = {"hosts": THEIRS}
        found.reconcile()
        found.eventually(200, host=THEIRS, Cookie=echo.COOKIE)
        yield found
        found.part().remove()


class Crowd:
    """Everybody who asks, by what they must never get."""

    def __init__(self, place, stack):
        self._place = place
        self._stack = stack
        katib, home = {"path": "/katib/x"}, {"path": "/"}
        self.strangers = [
            self.hammer(fresh=fresh, tls=tls, **path, **STRANGER)
            for fresh, tls, path in (
                (False, "", katib),
                (True, "", katib),
                (False, HOST, katib),
                (True, HOST, katib),
                (True, "", home),
                (False, "", {"path": "/katib/late/x"}),
            )
        ]
        self.known = [self.hammer(tls=tls, **katib, **KNOWN) for tls in ("", HOST)]
        self.visitors = [self.hammer(path=path, **STRANGER) for path in ("/login/x", "/moves/x")]
        self.tenants = [
            self.hammer(fresh=fresh, host=gateway_client.TENANT) for fresh in (False, True)
        ]
        self.beside_known = self.hammer(path="/", host=THEIRS, **KNOWN)
        self.beside_stranger = self.hammer(path="/", host=THEIRS, **STRANGER)

    def hammer(self, *, tls="", place=None, **given):
        """Somebody more who asks until the test has ended."""
        visitor = (place or self._place).visitor(tls=tls)
        return self._stack.enter_context(gateway_client.Hammer(visitor, **given))

    @property
    def everybody(self):
        beside = (self.beside_known, self.beside_stranger)
        return (*self.strangers, *self.known, *self.visitors, *self.tenants, *beside)

    @property
    def asked_in_vain(self):
        """How often strangers were answered while their route was there, or closed."""
        return sum(one.answered - one.answers.get(404, 0) for one in self.strangers)

    def go_on(self, requests=20):
        before = [(hammer, hammer.count) for hammer in self.everybody]
        assert waiting.eventually(
            lambda: all(hammer.count >= count + requests for hammer, count in before), 60
        )


def change(place, crowd, **given):
    """Have relations or options be others, as a hook finds them."""
    vars(place).update(given)
    place.reconcile()
    crowd.go_on()


def change_applications(place, crowd):
    """Have applications come and go."""
    whole = [*ASKED, *UNASKED]
    # The last that is not asked about takes the exemption with it.
    for newer in ([*whole, LATE], whole, ASKED, whole, whole[1:], whole, [], whole):
        change(place, crowd, newer=newer)
    # One has its route without authentication for a while, at another Service.
    for moving in (bag(15, "app", MOVING), bag(16, "app", MOVED, endpoint=OPEN)) * 2:
        change(place, crowd, newer=[*whole, moving])
    change(place, crowd, newer=whole)


def change_who_is_asked(place, crowd):
    """Have nobody to ask; both ways; the older one alone; the newer one without its data."""
    for auths, forwards in (([], []), ([COMPLETE], [SSO]), ([COMPLETE], []), ([], [{}])):
        change(place, crowd, auths=auths, forwards=forwards)
    change(place, crowd, auths=[], forwards=[SSO])
    place.eventually(200, Cookie=echo.COOKIE)


def kill_who_is_asked(place, crowd):
    """Have the authorization service be gone, and come back."""
    place.sso.kill()
    place.eventually(403, Cookie=echo.COOKIE)
    crowd.go_on()
    assert place.asked_once("/login/x").status == 200
    place.sso.start()
    place.eventually(200, Cookie=echo.COOKIE)
    crowd.go_on()


def rotate(place):
    """Have another certificate, wherever a gateway of ours looks for it."""
    secret = ingress_world.secret(place.folder)
    for namespace in (istiod_world.GATEWAY_NAMESPACE, MODEL):
        place.api.apply({**secret, "metadata": {**secret["metadata"], "namespace": namespace}})
    pem = base64.b64decode(secret["data"]["tls.crt"])
    serial = x509.load_pem_x509_certificate(pem).serial_number
    shown = place.visitor(tls=HOST).certificate
    assert waiting.eventually(lambda: shown().serial_number == serial)


class Managed:
    """The same model at the gateway that istiod deploys for it, while that is there."""

    def __init__(self, place, client, stack):
        self._client = client
        self._stack = stack
        self._is_running = False
        self._shared = place
        self.place = copy.copy(place)
        self.place.port, self.place.https_port, self.place.admin = loopback.free_ports(3)

    def switch(self, crowd):
        """Have the model served by HTTPRoutes, and by VirtualServices again."""
        options = self._shared.options
        change(self._shared, crowd, options={**options, "routing": "gateway-api"})
        ports = {80: self.place.port, 443: self.place.https_port}
        name = deployment("istio")
        token = gateway_api_world.run_workload(self._client, name, MODEL, ports, {80, 443})
        if not self._is_running:
            self._run(token)
            self._is_running = True
            crowd.strangers += [
                crowd.hammer(place=self.place, fresh=True, tls=tls, path="/katib/x", **STRANGER)
                for tls in ("", HOST)
            ]
        assert waiting.eventually(self._serves, 90)
        crowd.go_on()
        change(self._shared, crowd, options=options)
        self._shared.eventually(200, Cookie=echo.COOKIE)
        crowd.go_on()

    def _serves(self):
        known = {"path": "/katib/x", "Cookie": echo.COOKIE, "x_who": "known"}
        asked = [self.place.asked_once(tls=tls, **known) for tls in ("", HOST)]
        return {getattr(answer, "status", 0) for answer in asked} == {200}

    def _run(self, token):
        folder = self._shared.folder / "managed"
        folder.mkdir()
        labels = {names.GATEWAY_NAME: gateway.NAME}
        self._stack.enter_context(
            istiod_world.gateway(
                folder,
                self._shared.xds,
                self.place.admin,
                token,
                namespace=MODEL,
                labels=labels,
            )
        )


def judge(place, crowd):
    """Count what must not have been."""
    for kind in ("strangers", "known", "visitors", "tenants"):
        print(kind, [hammer.answers for hammer in getattr(crowd, kind)])
    print("beside", crowd.beside_known.answers, crowd.beside_stranger.answers)
    for stranger in crowd.strangers:
        assert 200 not in stranger.answers, stranger.answers
        assert stranger.answers.get(302, 0) > 0, stranger.answers
    for hammer in (*crowd.known, crowd.visitors[0]):
        assert hammer.answers.get(200, 0) > 0, hammer.answers
    for tenant in crowd.tenants:
        assert set(tenant.answers) == {200}, tenant.answers
    assert set(crowd.beside_known.answers) == {200}
    assert set(crowd.beside_stranger.answers) == {302}
    for served, users, who in (
        (place.application, {echo.USER}, {"known"}),
        (place.beside.application, {echo.USER}, {"known"}),
        (place.login, {None}, {"stranger"}),
    ):
        asked = [one["headers"] for one in served if "x-who" in one["headers"]]
        assert [one for one in asked if one["x-who"] not in who] == []
        assert {one.get("kubeflow-userid") for one in asked} == users
        assert VICTIM not in json.dumps(asked)


def test_nobody_is_served_unasked_while_applications_and_who_is_asked_come_and_go(place):
    with contextlib.ExitStack() as stack:
        crowd = Crowd(place, stack)
        for newer in (ASKED, [*ASKED, *UNASKED]):
            change(place, crowd, newer=newer)
        for forwards in ([], [SSO]):
            change(place, crowd, forwards=forwards)
        kill_who_is_asked(place, crowd)
    judge(place, crowd)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nobody_is_served_unasked_in_thousands_of_requests_and_while_the_renderer_is_switched(
    place, client
):
    with contextlib.ExitStack() as stack:
        secret = ingress_world.secret(place.folder)
        place.api.apply({**secret, "metadata": {**secret["metadata"], "namespace": MODEL}})
        managed = Managed(place, client, stack)
        # Hammers end before the gateway that they ask.
        crowd = Crowd(place, stack.enter_context(contextlib.ExitStack()))
        while crowd.asked_in_vain < REQUESTS:
            change_applications(place, crowd)
            change_who_is_asked(place, crowd)
            kill_who_is_asked(place, crowd)
            rotate(place)
            crowd.go_on()
            managed.switch(crowd)
    judge(place, crowd)
