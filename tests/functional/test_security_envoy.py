"""Answers of a sidecar that a real istiod configures from the policies of the charm.

The answers are written beforehand, a row for each caller.
"""

import contextlib
import json

import pytest
from ops import testing

from testbed import loopback
from tests import charm_access, echo, waiting
from tests.functional import charm_runs, istiod_world, loopback_istiod, sidecar_world
from tests.kubernetes_objects import made, namespace_of, workload
from tests.unit.charm.security.callers import NAME, policy

MODEL = "callers"
APPLICATION = "kfp-api"
LABELS = {NAME: APPLICATION}
USER = "kubeflow-userid"
FORGED = {
    "plain": [(USER, "bob@example.com")],
    "capitals": [("Kubeflow-Userid", "bob@example.com")],
    "shouted": [("KUBEFLOW-USERID", "bob@example.com")],
    "empty": [(USER, "")],
    "blank": [(USER, "   ")],
    "twice": [(USER, "bob@example.com"), (USER, "alice@example.com")],
    "list": [(USER, "alice@example.com, bob@example.com")],
    "long": [(USER, "b" * 4000)],
}
EDITOR = ("alice", "default-editor")
OTHER = ("bob", "default-editor")
UI = (MODEL, "kfp-ui")
STATED = policy("kfp-ui", "kfp-api", {"ports": [8888]}, namespace=MODEL)
FILTER = "filters.http.rbac.v3"
"""In a listener's JSON where policies hold; traces speak of the filter's name anyway."""
CONTROLLER = (MODEL, "jupyter-controller")
BOTH, CERTIFIED = (200, 200), (0, 200)
"""Statuses of a request in plain text and of one with a certificate; 0: no answer."""


class World:
    """An application with a sidecar that istiod configures, and certificates of its callers."""

    def __init__(self, api, folder, xds, token, application):
        self.api = api
        self.port = loopback.free_port()
        self._folder, self._xds, self._token = folder, xds, token
        self._application = application
        self._authority = sidecar_world.Authority(folder)

    @contextlib.contextmanager
    def sidecar(self, *, wanted=lambda text: True):
        """Serve by the sidecar as istiod configures it, once the listener's JSON is as wanted.

        Yields what asks it, as a ServiceAccount of a namespace, or without any certificate.
        """
        files = self._authority.certificate(MODEL, APPLICATION)
        listener = sidecar_world.with_files(self._listener(wanted), *files, self._authority.root)
        with sidecar_world.serving(self._folder, [listener], self._application):

            def answer(who=None, headers=()):
                pair = self._authority.certificate(*who) if who else None
                return sidecar_world.ask(self.port, pair=pair, headers=headers)

            yield answer

    def _listener(self, wanted):
        about, given = (f"{APPLICATION}-0", MODEL, LABELS), {}

        def is_given():
            given.update(sidecar_world.listeners(admin, [self.port]))
            return given and wanted(json.dumps(given[self.port]))

        with sidecar_world.configured(self._folder, self._xds, *about, token=self._token) as admin:
            assert waiting.eventually(is_given), json.dumps(given)[:3000]
        return given[self.port]


@pytest.fixture(scope="module")
def served(admin, client, kubeconfig, tmp_path_factory):
    """istiod, and an API server with a Service of the model."""
    folder = tmp_path_factory.mktemp("sidecar")
    istiod_world.install_definitions(client)
    loopback_istiod.create_namespace(admin)
    with (
        echo.serving(echo.Application) as application,
        istiod_world.istiod(folder, kubeconfig) as xds,
        loopback_istiod.unanswered(admin, MODEL, "Ignore"),
    ):
        model, own = admin.create(namespace_of(MODEL)), application.server_port
        found = World(admin, folder, xds, istiod_world.gateway_token(client, MODEL), own)
        ports = [{"name": "http", "port": 8888, "targetPort": found.port}]
        service = {"selector": LABELS, "ports": ports}
        for obj in (
            sidecar_world.sidecar(MODEL, APPLICATION, LABELS, found.port, own),
            made("v1", "Service", APPLICATION, MODEL, service),
            workload("StatefulSet", APPLICATION, MODEL, LABELS),
        ):
            admin.create(obj)
        yield found
        admin.delete(model)


@pytest.fixture
def world(served, client, monkeypatch):
    """Connect the charm to that API server."""
    charm_access.connect(monkeypatch, client)
    return served


def reconcile(*relations, **options):
    """Run the charm, which finds the model's Istio by its injector."""
    options = {"istiod-namespace": f"istio-{MODEL}", **options}
    charm_runs.run("config_changed", MODEL, relations=relations, **options)


def test_caller_is_answered_as_relations_say_and_a_forged_user_is_not(world):
    api = world.api
    with world.sidecar() as ask:
        before = {name: ask(EDITOR, headers) for name, headers in FORGED.items()}
    assert before == dict.fromkeys(FORGED, 200)
    # The policy that kfp-api writes for waypoints.
    unclaimed = {
        "targetRefs": [{"group": "", "kind": "Service", "name": "kfp-api"}],
        "rules": [{"when": [{"key": f"request.headers[{USER}]", "notValues": ["*"]}]}],
    }
    kind = ("security.istio.io/v1", "AuthorizationPolicy")
    theirs = api.create(made(*kind, "kfp-api-theirs", MODEL, unclaimed))
    told = {"policies": json.dumps([{**STATED, "target_namespace": MODEL}])}
    relation = testing.Relation("service-mesh", remote_app_name=APPLICATION, remote_app_data=told)
    reconcile(relation, authorization="related")
    claim = FORGED["plain"]
    expected = {
        "stated caller, in a user's name": (UI, claim, 200),
        "stated caller": (UI, (), 200),
        "user's pod, in nobody's name": (EDITOR, (), 200),
        "another application, in a user's name": (CONTROLLER, claim, 403),
        "no certificate, in a user's name": (None, claim, 403),
        "no certificate, in nobody's name": (None, (), 200),
        "namesake of the stated caller in a profile": (("alice", "kfp-ui"), claim, 403),
        **{f"{who[0]} forges: {name}": (who, FORGED[name], 403)
           for who in (EDITOR, OTHER) for name in FORGED},
    }  # fmt: skip
    with world.sidecar(wanted=lambda text: "sa/kfp-ui" in text) as ask:
        observed = {name: ask(who, headers) for name, (who, headers, _) in expected.items()}
    assert observed == {name: status for name, (_, _, status) in expected.items()}
    reconcile(authorization="off")
    api.delete(theirs)
    with world.sidecar(wanted=lambda text: FILTER not in text):
        pass  # What the next test sees in the listener is its own.


def test_closed_workload_answers_nobody_and_off_everybody(world):
    for mode, is_held in (("closed", True), ("off", False)):
        reconcile(authorization=mode)
        with world.sidecar(wanted=lambda text, held=is_held: (FILTER in text) == held) as ask:
            assert {ask(who) for who in (UI, EDITOR, None)} == {403 if is_held else 200}


def test_strict_is_for_certificates_alone_and_an_exception_for_everybody(world):
    def answers(*, open_to_plain_text):
        with world.sidecar(
            wanted=lambda text: ("raw_buffer" in text) == open_to_plain_text
        ) as ask:
            return ask(), ask(UI)

    assert answers(open_to_plain_text=True) == BOTH
    reconcile(mtls="strict")
    assert answers(open_to_plain_text=False) == CERTIFIED
    reconcile(**{"mtls": "strict", "mtls-exceptions": f"kfp-api:{world.port}"})
    assert answers(open_to_plain_text=True) == BOTH
    reconcile(**{"mtls": "strict", "mtls-exceptions": "kfp-api:1"})
    assert answers(open_to_plain_text=False) == CERTIFIED
    reconcile(mtls="inherit")
    assert world.api.list("PeerAuthentication", MODEL) == []
    assert answers(open_to_plain_text=True) == BOTH
