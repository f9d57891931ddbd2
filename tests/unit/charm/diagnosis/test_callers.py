"""Our policies, their callers, and policies of others for the same pods."""

import pytest

from istio_integrator.istio import authorization_policy
from istio_integrator.messages import Severity
from istio_integrator.policies import callers
from istio_integrator.situation.model import Pod, read
from tests.unit.charm.diagnosis.objects import ALIVE
from tests.unit.charm.security.callers import NAME, sa

OWNER = "kubeflow.istio-integrator"


def policy(name, labels, *rules, ours=True, component="authorization", **spec):
    marks = {
        "istio-integrator.charmhub.io/owner": OWNER,
        "istio-integrator.charmhub.io/component": component,
    }
    return {
        "kind": "AuthorizationPolicy",
        "metadata": {
            "name": name,
            "namespace": "kubeflow",
            "labels": marks if ours else {},
        },
        "spec": {"selector": {"matchLabels": labels}, "rules": list(rules), **spec},
    }


def pod(name, *containers):
    return {
        "kind": "Pod",
        "metadata": {"name": f"{name}-0", "namespace": "kubeflow", "labels": {NAME: name}},
        "spec": {
            "serviceAccountName": name,
            "containers": [{"name": each} for each in (name, *containers)],
        },
    }


def calling(*names):
    return {"from": [{"source": {"principals": [sa(each) for each in names]}}]}


API = {NAME: "kfp-api"}
OURS = policy("ours", API, calling("kfp-ui"))


def judged(policies, *pods):
    return list(
        callers.judge(
            authorization_policy.read_all(policies),
            read(pods, Pod),
            owner=OWNER,
            application="istio-integrator",
            mesh=ALIVE,
        )
    )


IN_MESH = (pod("kfp-api", "istio-proxy"), pod("kfp-ui", "istio-proxy"))


def test_all_is_well_where_callers_and_called_have_sidecars():
    (found,) = judged([OURS], *IN_MESH)
    assert (found.severity, found.seen) == (Severity.NOTE, "1 policies hold the callers of 1 pods")


def test_caller_without_a_sidecar_is_broken_and_named():
    (found,) = judged([OURS], IN_MESH[0], pod("kfp-ui"))
    assert found.severity is Severity.BLOCKED
    assert "kfp-ui" in found.seen
    assert found.next == "juju run istio-integrator/leader list-uninjected"


def test_caller_with_one_pod_in_the_mesh_is_on_its_way():
    assert judged([OURS], *IN_MESH, pod("kfp-ui"))[0].severity is Severity.NOTE


def test_called_pod_without_a_sidecar_is_not_held():
    (found,) = judged([OURS], pod("kfp-api"), IN_MESH[1])
    assert found.severity is Severity.DOUBT
    assert "kfp-api-0" in found.seen


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"action": "DENY"}, "denies some", id="denies"),
        pytest.param({}, "lets callers in", id="allows"),
        pytest.param({"action": "CUSTOM"}, "another service", id="asks"),
    ],
)
@pytest.mark.parametrize("labels", [API, {}])
def test_policy_of_others_for_the_same_pods_is_named(spec, words, labels):
    theirs = policy("theirs", labels, {}, ours=False, **spec)
    (found,) = judged([OURS, theirs], *IN_MESH)
    assert found.severity is Severity.DOUBT
    assert "AuthorizationPolicy kubeflow/theirs" in found.seen
    assert words in found.seen


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param(policy("t", {NAME: "x"}, {}, ours=False), id="other pods"),
        pytest.param(policy("t", API, ours=False), id="nobody let in"),
        pytest.param(policy("t", API, {}, ours=False, action="AUDIT"), id="audit"),
        pytest.param(
            policy("t", {}, {}, ours=False, targetRefs=[{"kind": "Service", "name": "a"}]),
            id="passed over by sidecars",
        ),
    ],
)
def test_policy_of_others_that_contradicts_nothing_is_not_named(theirs):
    assert judged([OURS, theirs], *IN_MESH)[0].severity is Severity.NOTE


def test_whoever_is_called_by_nobody_is_named():
    closed = policy("closed", {}, component="authorization-closed")
    del closed["spec"]["selector"]
    (found,) = judged([OURS, closed], *IN_MESH, pod("kfp-db", "istio-proxy"))
    assert found.severity is Severity.DOUBT
    assert "kfp-db-0" in found.seen
    assert "kfp-api-0" not in found.seen
