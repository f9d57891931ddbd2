"""The facts that the plan decides on, from pods as Kubernetes has them."""

import dataclasses

import msgspec
import pytest
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.decide.convergence import facts
from sidecar_lifecycle.model import types

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.workload import pods

MEMBER = eligible.Scope(
    model="kf", application="app", namespace_labels={"istio-injection": "enabled"}
)
OURS = eligible.Ownership("StatefulSet/a", True, "", "")
SCHEDULED = {"type": "PodScheduled", "status": "True"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}


def replica(**values):
    return facts.read_replica(pods.pod(**values), MEMBER)


def test_a_ready_pod_says_since_when():
    found = replica(conditions=[SCHEDULED, READY], creationTimestamp="2026-01-01T00:00:00Z")

    assert found.ready_since == found.created + 60
    assert (found.ready, found.ailments) == (True, ())
    fails = {**READY, "status": "False"}
    assert replica(conditions=[SCHEDULED, fails]).unready_since == found.ready_since
    new = replica(conditions=[SCHEDULED], creationTimestamp="2026-01-01T00:00:00Z")
    assert new.unready_since == new.created == found.created
    assert facts.read_replica(types.Pod(), MEMBER).created == 0


def test_a_terminating_pod_is_not_ready():
    moment = "2026-01-01T00:02:00Z"
    found = replica(conditions=[READY], deletionTimestamp=moment)

    assert (found.terminating, found.ready, found.ended) == (True, False, False)
    assert found.ends_by == facts.parse_timestamp(moment)
    assert replica(phase="Failed").ended


BACK_OFF = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
FIRST, INIT = pods.status("first", pods.ended()), [*map(pods.container, ("first", "charm-init"))]
NATIVE = [pods.container("istio-proxy", restartPolicy="Always")]
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}


@cases(
    ("values", "said", "hangs"),
    running=({"main": pods.running()}, "main: running and not Ready", False),
    new=({"main": pods.waiting("ContainerCreating")}, "main: ContainerCreating", False),
    image=(
        {"main": {"waiting": {"reason": "ImagePullBackOff", "message": "no\n such image"}}},
        "main: ImagePullBackOff: no such image",
        True,
    ),
    long=(
        {"main": {"waiting": {"reason": "ErrImagePull", "message": "word " * 30}}},
        f"main: ErrImagePull: {'word ' * 24}…",
        True,
    ),
    worst_first=(
        {"main": pods.running(), "others": {"agent": pods.waiting()}},
        *("agent: CrashLoopBackOff", True),
    ),
    as_long_as_is_quoted=(
        {"main": {"waiting": {"reason": "ErrImagePull", "message": "w" * 120}}},
        *(f"main: ErrImagePull: {'w' * 120}", True),
    ),
    no_state=({"main": {}}, "main: not started", False),
    crashes=({"main": pods.waiting()}, "main: CrashLoopBackOff", True),
    ended=({"main": pods.ended(3)}, "main: ended: exit code 3 (Error)", False),
    failed_init_container=(
        {"init": INIT, "init_statuses": [FIRST, pods.status("charm-init", pods.ended(2))]},
        "charm-init: ended: exit code 2 (Error)",
        True,
    ),
    init_container=(
        {"init": INIT, "init_statuses": [FIRST, pods.status("charm-init", pods.running())]},
        "charm-init: running",
        False,
    ),
    after_the_init_container=(
        {
            "init": INIT,
            "init_statuses": [FIRST, pods.status("charm-init", pods.ended())],
            "main": pods.waiting("PodInitializing"),
        },
        "main: PodInitializing",
        False,
    ),
    native_sidecar=(
        {"init": NATIVE, "init_statuses": [pods.status("istio-proxy", pods.running())]},
        "istio-proxy: running and not Ready",
        False,
    ),
    unscheduled=(
        {"conditions": [UNSCHEDULED], "init": INIT},
        "first: not scheduled: 0/1 nodes are available",
        False,
    ),
    scheduled=({"conditions": [SCHEDULED], "init": INIT}, "first: not started", False),
)
def test_what_keeps_a_pod_from_being_ready_is_said_worst_first(values, said, hangs):
    found, *_, last = replica(**values).ailments

    assert (str(found), found.hangs) == (said, hangs)
    assert str(last) == "istio-proxy: running and not Ready"


@pytest.mark.parametrize(
    "reason",
    [
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CrashLoopBackOff"),
        *("CreateContainerConfigError", "CreateContainerError"),
    ],
)
def test_a_container_that_the_kubelet_could_not_start_hangs(reason):
    assert replica(main=pods.waiting(reason)).ailments[0].hangs


@cases(
    ("state", "said"),
    waits=({"waiting": BACK_OFF}, "CrashLoopBackOff: exit code 137 (OOMKilled)"),
    ended_again=(pods.ended(3), "ended: exit code 3 (Error)"),
)
def test_the_last_end_of_a_crashing_container_is_said(state, said):
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    status = pods.status("main", state, lastState=killed)
    subject = pods.pod()
    subject.status.containerStatuses = (msgspec.convert(status, types.ContainerStatus),)
    found = facts.read_replica(subject, MEMBER)

    assert str(found.ailments[0]) == f"main: {said}"


def test_a_pod_whose_containers_are_ready_says_why_it_is_not():
    gate = {"reason": "ReadinessGatesNotReady", "message": 'gate "x" is not "True"'}
    subject = pods.pod(conditions=[SCHEDULED, {**READY, "status": "False", **gate}])
    for each in subject.status.containerStatuses:
        each.ready = True
    (found,) = facts.read_replica(subject, MEMBER).ailments

    assert str(found) == 'the pod: ReadinessGatesNotReady: gate "x" is not "True"'
    assert not found.hangs
    subject.status.conditions = ()
    (found,) = facts.read_replica(subject, MEMBER).ailments
    assert str(found) == "the pod: not Ready"


@pytest.mark.parametrize("label", ["pod-template-hash", "controller-revision-hash"])
def test_the_template_is_known_by_its_hash(label):
    assert replica(labels={label: "abc"}).revision == "abc"


BARE = eligible.Ownership("", False, "BarePod", "nothing would create it again")


def judged(pod, given=MEMBER, ownership=OURS):
    found = facts.add_ownership(facts.read_replica(pod, given), ownership)
    return found.fault, found.reason


def pod_of(*containers, labels=None, init=()):
    return types.Pod(
        metadata=types.ObjectMeta(name="p", namespace="kf", labels=labels or {}),
        spec=types.PodSpec(
            containers=tuple(types.Container(name=each) for each in containers),
            initContainers=tuple(types.Container(name=each) for each in init),
        ),
    )


MODELOPERATOR = {"operator.juju.is/name": "modeloperator"}
SAID = {
    "NamespaceInjection": "its namespace says istio-injection=enabled",
    "SidecarUnwanted": "Juju's modeloperator stays outside, and it has a sidecar",
    "Excluded": "it matches excluded-pods, and it has a sidecar: run restart-uninjected",
}
"""Messages by reason."""


@cases(
    ("subject", "want"),
    missing=(pod_of("main"), ("missing", "NamespaceInjection")),
    right=(pod_of("main", "istio-proxy"), ("", "NamespaceInjection")),
    modeloperator=(
        pod_of("istio-proxy", "main", labels=MODELOPERATOR),
        ("unwanted", "SidecarUnwanted"),
    ),
    modeloperator_outside=(pod_of("main", labels=MODELOPERATOR), ("", "ModelOperator")),
    excluded=(pod_of("main", "istio-proxy", labels={"app": "out"}), ("unwanted", "Excluded")),
    says_no=(
        pod_of("main", "istio-proxy", labels={names.INJECT: "false"}),
        ("", "InjectionDisabled"),
    ),
    our_webhook=(
        pod_of("main", "istio-proxy", labels={names.COMPONENT: names.WEBHOOK_COMPONENT}),
        ("", "IntegratorItself"),
    ),
    unit=(
        pod_of("istio-proxy", "charm", "db", init=["setup", "charm-init"]),
        ("order", "WrongOrder"),
    ),
    unit_in_order=(
        pod_of("charm", "istio-proxy", init=["charm-init"]),
        ("", "NamespaceInjection"),
    ),
    unit_outside=(
        pod_of("db", "charm", init=["charm-init"], labels={names.INJECT: "false"}),
        ("", "InjectionDisabled"),
    ),
    unit_alone=(pod_of("charm", init=["charm-init"]), ("missing", "NamespaceInjection")),
    ray=(
        pod_of("istio-proxy", "ray", labels={"ray.io/node-type": "worker"}),
        ("order", "WrongOrder"),
    ),
    ray_alone=(
        pod_of("istio-proxy", labels={"ray.io/node-type": "worker"}),
        ("", "NamespaceInjection"),
    ),
    order_does_not_matter=(pod_of("istio-proxy", "main"), ("", "NamespaceInjection")),
    charm_of_no_unit=(pod_of("istio-proxy", "charm"), ("", "NamespaceInjection")),
    unit_without_a_charm=(
        pod_of("istio-proxy", "db", init=["charm-init"]),
        ("", "NamespaceInjection"),
    ),
)
def test_what_is_wrong_with_a_pod_is_told_by_its_containers(subject, want):
    given = eligible.Scope(
        model="kf",
        application="app",
        namespace_labels={"istio-injection": "enabled"},
        excluded_pods="app=out",
    )
    assert judged(subject, given) == want
    found = facts.read_replica(subject, given)
    assert found.message == SAID.get(found.reason, found.message)
    assert facts.add_ownership(found, OURS).message == found.message
    assert not found.fault or facts.add_ownership(found, BARE).message == BARE.message
    ambient = dataclasses.replace(given, data_plane="ambient")
    assert facts.read_replica(subject, ambient).fault != "unwanted"


def test_a_pod_that_is_not_evicted_says_why_where_something_is_wrong_with_it():
    assert judged(pod_of("main"), ownership=BARE) == ("missing", "BarePod")
    read = facts.read_replica(pod_of("main"), MEMBER)
    owned = [facts.add_ownership(read, each) for each in (BARE, OURS)]
    known = [(each.workload, each.fixable) for each in owned]
    assert known == [("", False), ("StatefulSet/a", True)]
    assert judged(pod_of("main", labels=MODELOPERATOR), ownership=BARE) == ("", "ModelOperator")
    assert judged(pod_of("charm", "istio-proxy"), ownership=BARE) == ("", "BarePod")


def scope(labels=None, **settings):
    return eligible.Scope(model="m", application="a", namespace_labels=labels or {}, **settings)


def test_the_fingerprint_follows_what_decides_about_injection():
    enabled = {"istio-injection": "enabled"}
    first = facts.compute_fingerprint(scope(enabled), ("u1",))

    assert facts.compute_fingerprint(scope({**enabled, "other": "x"}), ("u1",)) == first
    settings = (
        *({"membership": "selected"}, {"data_plane": "ambient"}, {"mesh_revision": "x"}),
        *({"included_pods": "a=b"}, {"excluded_pods": "a=b"}),
        *({"excluded_pods": "a in (b, c)"}, {"excluded_pods": "a in (b, d)"}),
    )
    scopes = [scope({**enabled, each: "x"}) for each in (names.DATAPLANE_MODE, names.REVISION)]
    scopes += [scope({}), *(scope(enabled, **each) for each in settings)]
    others = [
        facts.compute_fingerprint(scope(enabled), ("u2",)),
        facts.compute_fingerprint(scope(enabled), ("u1", "u2")),
        *(facts.compute_fingerprint(each, ("u1",)) for each in scopes),
    ]
    assert len({first, *others}) == 13
    assert facts.compute_fingerprint(scope(enabled), ("u2", "u1")) == others[1]


AUTOSCALER = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@cases(
    ("notes", "want"),
    karpenter=({"karpenter.sh/do-not-disrupt": "true"}, "karpenter.sh/do-not-disrupt"),
    older_karpenter=({"karpenter.sh/do-not-evict": "true"}, "karpenter.sh/do-not-evict"),
    autoscaler=({AUTOSCALER: "false"}, AUTOSCALER),
    may_go=({AUTOSCALER: "true", "karpenter.sh/do-not-disrupt": "false"}, ""),
)
def test_an_annotation_forbids_the_disruption_of_a_pod(notes, want):
    assert replica(annotations=notes).forbids == want
