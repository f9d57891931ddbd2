"""The facts that the plan decides on, from pods as Kubernetes has them."""

import msgspec
import pytest
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.decide.convergence import facts
from sidecar_lifecycle.model import types

from integrator_contract import names
from tests.unit.workload import pods

MEMBER = eligible.Scope(
    model="kubeflow", application="app", namespace_labels={"istio-injection": "enabled"}
)
OURS = eligible.Ownership("StatefulSet/a", True, "", "")
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}


def replica(**values):
    return facts.replica(pods.pod(**values), MEMBER, OURS)


def test_a_ready_pod_says_since_when():
    found = replica(conditions=[READY], creationTimestamp="2026-01-01T00:00:00Z")

    assert found.ready_since - found.created == 60
    assert found.ready


def test_a_terminating_pod_is_not_ready():
    found = replica(conditions=[READY], deletionTimestamp="2026-01-01T00:02:00Z")

    assert found.terminating
    assert not found.ready


INIT = [pods.container("charm-init")]
NATIVE = [pods.container("istio-proxy", restartPolicy="Always")]
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}


@pytest.mark.parametrize(
    ("values", "said", "hangs"),
    [
        pytest.param({"main": pods.running()}, "main: running and not Ready", False, id="running"),
        pytest.param(
            {"main": pods.waiting("ContainerCreating")}, "main: ContainerCreating", False, id="new"
        ),
        pytest.param(
            {"main": {"waiting": {"reason": "ImagePullBackOff", "message": "no\n such image"}}},
            "main: ImagePullBackOff: no such image",
            True,
            id="image",
        ),
        pytest.param(
            {"main": pods.waiting("CreateContainerConfigError")},
            "main: CreateContainerConfigError",
            True,
            id="configuration",
        ),
        pytest.param({"main": pods.waiting()}, "main: CrashLoopBackOff", True, id="crashes"),
        pytest.param(
            {"main": pods.ended(3)}, "main: ended: exit code 3 (Error)", False, id="ended"
        ),
        pytest.param(
            {"init": INIT, "init_statuses": [pods.status("charm-init", pods.ended(2))]},
            "charm-init: ended: exit code 2 (Error)",
            True,
            id="failed-init-container",
        ),
        pytest.param(
            {"init": INIT, "init_statuses": [pods.status("charm-init", pods.running())]},
            "charm-init: running",
            False,
            id="init-container",
        ),
        pytest.param(
            {
                "init": INIT,
                "init_statuses": [pods.status("charm-init", pods.ended())],
                "main": pods.waiting("PodInitializing"),
            },
            "main: PodInitializing",
            False,
            id="after-the-init-container",
        ),
        pytest.param(
            {"init": NATIVE, "init_statuses": [pods.status("istio-proxy", pods.running())]},
            "istio-proxy: running and not Ready",
            False,
            id="native-sidecar",
        ),
        pytest.param(
            {"conditions": [UNSCHEDULED], "init": INIT},
            "charm-init: not scheduled: 0/1 nodes are available",
            False,
            id="unscheduled",
        ),
    ],
)
def test_what_keeps_a_pod_from_being_ready_is_said_worst_first(values, said, hangs):
    found = replica(**values).ailments[0]

    assert (str(found), found.hangs) == (said, hangs)


def test_the_end_of_a_crashing_container_is_said():
    status = pods.status("main", pods.waiting(), lastState=pods.ended(137))
    subject = pods.pod()
    subject.status.containerStatuses = [msgspec.convert(status, types.ContainerStatus)]
    found = facts.replica(subject, MEMBER, OURS)

    assert str(found.ailments[0]) == "main: CrashLoopBackOff: exit code 137 (Error)"
    assert found.crash_looping


def test_a_ready_pod_has_no_ailments():
    assert replica(conditions=[READY]).ailments == ()


@pytest.mark.parametrize("label", ["pod-template-hash", "controller-revision-hash"])
def test_the_template_is_known_by_its_hash(label):
    assert replica(labels={label: "abc"}).revision == "abc"


BARE = eligible.Ownership("", False, "BarePod", "nothing would create it again")


def judged(pod, given=MEMBER, ownership=OURS):
    found = facts.replica(pod, given, ownership)
    return found.fault, found.reason


def pod_of(*containers, labels=None, init=()):
    return types.Pod(
        metadata=types.ObjectMeta(name="p", namespace="kubeflow", labels=labels or {}),
        spec=types.PodSpec(
            containers=[types.Container(name=each) for each in containers],
            initContainers=[types.Container(name=each) for each in init],
        ),
    )


MODELOPERATOR = {"operator.juju.is/name": "modeloperator"}


@pytest.mark.parametrize(
    ("subject", "want"),
    [
        pytest.param(pod_of("main"), ("missing", "NamespaceInjection"), id="missing"),
        pytest.param(pod_of("main", "istio-proxy"), ("", "NamespaceInjection"), id="right"),
        pytest.param(
            pod_of("istio-proxy", "main", labels=MODELOPERATOR),
            ("unwanted", "SidecarUnwanted"),
            id="modeloperator",
        ),
        pytest.param(
            pod_of("main", labels=MODELOPERATOR), ("", "ModelOperator"), id="modeloperator-outside"
        ),
        pytest.param(
            pod_of("main", "istio-proxy", labels={"app": "out"}),
            ("unwanted", "Excluded"),
            id="excluded",
        ),
        pytest.param(
            pod_of("main", "istio-proxy", labels={names.COMPONENT: "gateway"}),
            ("", "IntegratorItself"),
            id="our-gateway",
        ),
        pytest.param(
            pod_of("istio-proxy", "charm", "db", init=["charm-init"]),
            ("order", "WrongOrder"),
            id="unit",
        ),
        pytest.param(
            pod_of("charm", "istio-proxy", init=["charm-init"]),
            ("", "NamespaceInjection"),
            id="unit-in-order",
        ),
        pytest.param(
            pod_of("charm", init=["charm-init"]),
            ("missing", "NamespaceInjection"),
            id="unit-alone",
        ),
        pytest.param(
            pod_of("istio-proxy", "ray", labels={"ray.io/node-type": "worker"}),
            ("order", "WrongOrder"),
            id="ray",
        ),
        pytest.param(
            pod_of("istio-proxy", "main"), ("", "NamespaceInjection"), id="order-does-not-matter"
        ),
    ],
)
def test_what_is_wrong_with_a_pod_is_told_by_its_containers(subject, want):
    given = eligible.Scope(
        model="kubeflow",
        application="app",
        namespace_labels={"istio-injection": "enabled"},
        excluded_pods="app=out",
    )
    assert judged(subject, given) == want


def test_a_pod_that_is_not_evicted_says_why_where_something_is_wrong_with_it():
    assert judged(pod_of("main"), ownership=BARE) == ("missing", "BarePod")
    assert judged(pod_of("main", labels=MODELOPERATOR), ownership=BARE) == ("", "ModelOperator")
    assert judged(pod_of("charm", "istio-proxy"), ownership=BARE) == ("", "BarePod")


def scope(labels=None, **settings):
    return eligible.Scope(model="m", application="a", namespace_labels=labels or {}, **settings)


def test_the_fingerprint_follows_what_decides_about_injection():
    enabled = {"istio-injection": "enabled"}
    first = facts.fingerprint(scope(enabled), ("u1",))

    assert facts.fingerprint(scope({**enabled, "other": "x"}), ("u1",)) == first
    others = [
        facts.fingerprint(scope(enabled), ("u2",)),
        facts.fingerprint(scope({}), ("u1",)),
        facts.fingerprint(scope(enabled, mesh_revision="x"), ("u1",)),
        facts.fingerprint(scope(enabled, excluded_pods="a in (b, c)"), ("u1",)),
        facts.fingerprint(scope(enabled, excluded_pods="a in (b, d)"), ("u1",)),
    ]
    assert len({first, *others}) == 6


def test_a_pod_without_times_has_facts_all_the_same():
    assert facts.replica(types.Pod(), MEMBER, OURS).created == 0
