"""Our policies, their callers, and policies of others for the same pods."""

from istio_integrator.istio import authorization_policy
from istio_integrator.messages import Said
from istio_integrator.policies import callers
from istio_integrator.situation.model import Pod, read
from tests.unit.cases import cases
from tests.unit.charm.diagnosis.objects import ALIVE
from tests.unit.charm.security.callers import NAME, sa

OWNER = "kubeflow.istio-integrator"


def policy(labels, *rules, component="", **spec):
    """A policy of ours, with a component; of others without."""
    marks = {
        "istio-integrator.charmhub.io/owner": OWNER,
        "istio-integrator.charmhub.io/component": component,
    }
    return {
        "kind": "AuthorizationPolicy",
        "metadata": {
            "name": "ours" if component else "theirs",
            "namespace": "kubeflow",
            "labels": marks if component else {},
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


API = {NAME: "kfp-api"}
CALLED, CALLING = pod("kfp-api", "istio-proxy"), pod("kfp-ui", "istio-proxy")
OURS = policy(
    API, {"from": [{"source": {"principals": [sa("kfp-ui")]}}]}, component="authorization"
)
CLOSED = policy({}, component="authorization-closed")
HELD = (Said.CALLERS_HELD, {"policies": 1, "pods": 1})


def interferes(effect):
    about = {"policy": "AuthorizationPolicy kubeflow/theirs", "pods": "kfp-api-0"}
    return Said.POLICY_INTERFERES, {**about, "effect": effect}


@cases(
    ("policies", "pods", "want"),
    all_have_sidecars=([OURS], [CALLED, CALLING], HELD),
    caller_without_a_sidecar=(
        [OURS],
        [CALLED, pod("kfp-ui")],
        (Said.CALLER_WITHOUT_SIDECAR, {"callers": "kfp-ui"}),
    ),
    caller_with_one_pod_in_the_mesh=([OURS], [CALLED, CALLING, pod("kfp-ui")], HELD),
    called_pod_without_a_sidecar=(
        [OURS],
        [pod("kfp-api"), CALLING],
        (Said.CALLED_WITHOUT_SIDECAR, {"pods": "kfp-api-0"}),
    ),
    pod_that_nobody_may_call=(
        [OURS, CLOSED],
        [CALLED, pod("db", "istio-proxy")],
        (Said.CALLED_BY_NONE, {"pods": "db-0"}),
    ),
    others_deny=(
        [OURS, policy(API, {}, action="DENY")],
        [CALLED, CALLING],
        interferes("denies some of their callers"),
    ),
    others_deny_in_all_of_the_namespace=(
        [OURS, policy({}, {}, action="DENY")],
        [CALLED],
        interferes("denies some of their callers"),
    ),
    others_allow=([OURS, policy(API, {})], [CALLED], interferes("admits callers beside them")),
    others_ask=(
        [OURS, policy(API, {}, action="CUSTOM")],
        [CALLED],
        interferes("has another service decide about them"),
    ),
    others_select_other_pods=([OURS, policy({NAME: "x"}, {})], [CALLED], HELD),
    others_allow_nobody=([OURS, policy(API)], [CALLED], HELD),
    others_audit=([OURS, policy(API, {}, action="AUDIT")], [CALLED], HELD),
    others_are_passed_over_by_sidecars=(
        [OURS, policy({}, {}, targetRefs=[{"kind": "Service", "name": "a"}])],
        [CALLED],
        HELD,
    ),
)
def test_callers_are_held_to_what_relations_say(policies, pods, want):
    (found,) = callers.judge(
        authorization_policy.read_all(policies),
        read(pods, Pod),
        owner=OWNER,
        application="istio-integrator",
        mesh=ALIVE,
    )
    said, about = want
    assert found.said is said
    assert about.items() <= found.about.items()
