"""Who is answered by a sidecar that a real istiod configures from what we write: over the wire.

The answers are written beforehand, a row for each caller.
"""

import pytest

from tests.functional import charm_parts, sidecar_world
from tests.unit.charm.security.callers import NAME, policy

MODEL = "callers"
LABELS = {NAME: "kfp-api"}
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


@pytest.fixture(scope="module")
def world(client, kubeconfig, tmp_path_factory):
    """istiod, an API server with the model's Service, and certificates of callers."""
    folder = tmp_path_factory.mktemp("sidecar")
    with sidecar_world.member(
        client, kubeconfig, folder, MODEL, name="kfp-api", labels=LABELS
    ) as found:
        metadata = {"name": "kfp-api", "namespace": MODEL}
        ports = [{"name": "http", "port": 8888, "targetPort": found.port}]
        spec = {"selector": LABELS, "ports": ports}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
        found.api.create({**service, "spec": spec})
        yield found


def unclaimed():
    """The policy that kfp-api writes for waypoints."""
    return {
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "kfp-api-theirs", "namespace": MODEL},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "kfp-api"}],
            "rules": [{"when": [{"key": f"request.headers[{USER}]", "notValues": ["*"]}]}],
        },
    }


def test_caller_is_answered_as_relations_say_and_a_forged_user_is_not(world):
    api = world.api
    with world.sidecar(wanted=lambda text: "listener" in text) as ask:
        before = {name: ask(EDITOR, headers) for name, headers in FORGED.items()}
    assert before == dict.fromkeys(FORGED, 200)
    theirs = api.create(unclaimed())
    written = charm_parts.policies(api, MODEL, STATED, mode="related")
    written.reconcile()
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
    written.remove()
    api.delete(theirs)


def test_closed_workload_answers_nobody_and_off_everybody(world):
    api = world.api
    written = charm_parts.policies(api, MODEL, mode="closed")
    written.reconcile()
    callers = (UI, EDITOR, None)
    with world.sidecar(wanted=lambda text: FILTER in text) as ask:
        assert [ask(who) for who in callers] == [403, 403, 403]
    charm_parts.policies(api, MODEL, mode="off").reconcile()
    with world.sidecar(wanted=lambda text: "listener" in text and FILTER not in text) as ask:
        assert [ask(who) for who in callers] == [200, 200, 200]
