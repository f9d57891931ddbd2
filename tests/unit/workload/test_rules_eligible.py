"""Who should have a sidecar, who has one, and who may be evicted for it."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.model import types

from integrator_contract import names

ENABLED = {"istio-injection": "enabled"}


def pod(
    labels=None, annotations=None, *, owners=(), host_network=False, containers=("main",), **spec
):
    return types.Pod(
        metadata=types.ObjectMeta(
            name="p",
            namespace="kubeflow",
            labels=labels or {},
            annotations=annotations or {},
            ownerReferences=list(owners),
        ),
        spec=types.PodSpec(
            hostNetwork=host_network,
            containers=[types.Container(name=each) for each in containers],
            **spec,
        ),
    )


def scope(labels=ENABLED, **settings):
    return eligible.Scope(
        namespace_labels=labels,
        model="kubeflow",
        application="istio-integrator",
        **settings,
    )


def ref(kind, name="x", *, version="apps/v1", uid="u", controller=True):
    return types.OwnerReference(
        apiVersion=version, kind=kind, name=name, uid=uid, controller=controller
    )


@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param({}, {}, "NamespaceInjection", id="plain"),
        pytest.param({names.INJECT: "false"}, {}, "InjectionDisabled", id="label-off"),
        pytest.param({}, {names.INJECT: "false"}, "InjectionDisabled", id="annotation-off"),
        pytest.param(
            {names.INJECT: "true"}, {names.INJECT: "false"}, "NamespaceInjection", id="label-wins"
        ),
        pytest.param({names.INJECT: "False"}, {}, "NamespaceInjection", id="only-lower-case"),
        pytest.param({"app": "out"}, {}, "Excluded", id="excluded"),
        pytest.param(
            {"operator.juju.is/name": "modeloperator"}, {}, "ModelOperator", id="modeloperator"
        ),
        pytest.param(
            {"juju-modeloperator": "modeloperator"}, {}, "ModelOperator", id="old-modeloperator"
        ),
        pytest.param(
            {"app.kubernetes.io/name": "istio-integrator"}, {}, "IntegratorItself", id="ourselves"
        ),
        pytest.param(
            {names.COMPONENT: "admission-webhook"}, {}, "IntegratorItself", id="our-webhook"
        ),
        pytest.param({"istio.io/dataplane-mode": "ambient"}, {}, "Ambient", id="ambient-pod"),
        pytest.param(
            {}, {"ambient.istio.io/redirection": "enabled"}, "Ambient", id="ambient-enrolled"
        ),
    ],
)
def test_a_pod_of_a_member_namespace_is_judged_by_what_it_says(labels, annotations, want):
    decided = eligible.wanted(pod(labels, annotations), scope(excluded_pods="app=out"))

    assert decided.reason == want
    assert decided.wanted is (want == "NamespaceInjection")


@pytest.mark.parametrize(
    ("namespace", "labels", "settings", "want", "wanted"),
    [
        pytest.param(
            {"istio-injection": "disabled"}, {}, {}, "NamespaceDisabled", False, id="off"
        ),
        pytest.param(
            {"istio-injection": "enabled", "istio.io/rev": "other"},
            {},
            {"mesh_revision": "1-31"},
            "NamespaceInjection",
            True,
            id="both-labels-injection-wins",
        ),
        pytest.param(
            {"istio.io/rev": "1-31"},
            {},
            {"mesh_revision": "1-31"},
            "Revision",
            True,
            id="revision",
        ),
        pytest.param(
            {"istio.io/rev": "1-30"},
            {},
            {"mesh_revision": "1-31"},
            "OtherRevision",
            False,
            id="other-revision",
        ),
        pytest.param({"istio.io/rev": "x"}, {}, {}, "Revision", True, id="any-revision"),
        pytest.param({}, {}, {}, "NamespaceOutside", False, id="outside"),
        pytest.param({}, {names.INJECT: "true"}, {}, "PodInjection", True, id="pod-asks"),
        pytest.param(
            {},
            {names.REVISION: "1-31", names.INJECT: "true"},
            {"mesh_revision": "1-31"},
            "Revision",
            True,
            id="pod-asks-by-revision",
        ),
        pytest.param(
            {},
            {"app": "in"},
            {"membership": "selected", "included_pods": "app=in"},
            "Included",
            True,
            id="selected",
        ),
        pytest.param(
            {},
            {"app": "else"},
            {"membership": "selected", "included_pods": "app=in"},
            "NotIncluded",
            False,
            id="not-selected",
        ),
        pytest.param(
            {"istio.io/dataplane-mode": "ambient", "istio-injection": "enabled"},
            {},
            {},
            "Ambient",
            False,
            id="ambient-namespace",
        ),
        pytest.param(
            {"istio.io/dataplane-mode": "ambient", "istio-injection": "enabled"},
            {"istio.io/dataplane-mode": "none"},
            {},
            "NamespaceInjection",
            True,
            id="pod-leaves-ambient",
        ),
    ],
)
def test_the_namespace_and_the_membership_decide(namespace, labels, settings, want, wanted):
    decided = eligible.wanted(pod(labels), scope(namespace, **settings))

    assert (decided.reason, decided.wanted) == (want, wanted)


def test_a_pod_on_the_host_network_is_never_wanted():
    assert eligible.wanted(pod(host_network=True), scope()).reason == "HostNetwork"


def test_another_applications_integrator_label_does_not_make_it_ours_elsewhere():
    other = pod({"app.kubernetes.io/name": "istio-integrator"})
    other.metadata.namespace = "elsewhere"

    assert eligible.wanted(other, scope()).wanted


CUSTOMISED = types.Container(name="istio-proxy", image="auto")


def marked(*containers):
    """Write the injector's annotation as it names what it has added."""
    return {names.SIDECAR_STATUS: json.dumps({"containers": None, "initContainers": containers})}


@pytest.mark.parametrize(
    ("subject", "want"),
    [
        pytest.param(pod(), False, id="plain"),
        pytest.param(pod(containers=("main", "istio-proxy")), True, id="classic"),
        pytest.param(pod(initContainers=[types.Container(name="istio-proxy")]), True, id="native"),
        pytest.param(
            pod(initContainers=[types.Container(name="istio-init")]), False, id="init-only"
        ),
        pytest.param(pod(initContainers=[CUSTOMISED]), False, id="customised-not-injected"),
        pytest.param(pod(annotations=marked("istio-proxy")), False, id="left-over-mark"),
        pytest.param(
            pod(
                annotations=marked("istio-proxy", "istio-init"),
                initContainers=[types.Container(name="istio-init")],
            ),
            False,
            id="left-over-mark-and-init",
        ),
        pytest.param(
            pod(annotations=marked("istio-proxy"), initContainers=[CUSTOMISED]),
            False,
            id="left-over-mark-and-customised",
        ),
        pytest.param(pod(annotations={names.SIDECAR_STATUS: "{}"}), False, id="empty-mark"),
        pytest.param(
            pod(
                annotations=marked("bootstrap"), initContainers=[types.Container(name="bootstrap")]
            ),
            True,
            id="template-without-proxy",
        ),
    ],
)
def test_a_sidecar_is_recognised_in_any_form(subject, want):
    assert eligible.injected(subject) is want


NOTEBOOK = ref("Notebook", "nb", version="kubeflow.org/v1", uid="nb")
OWNERS = {
    ("StatefulSet", "x"): eligible.Owner("u"),
    ("DaemonSet", "x"): eligible.Owner("u"),
    ("Deployment", "x"): eligible.Owner("u"),
    ("ReplicaSet", "x-1"): eligible.Owner("rs", (ref("Deployment"),)),
    ("ReplicaSet", "lone"): eligible.Owner("u"),
    ("ReplicaSet", "rollout"): eligible.Owner("u", (ref("Rollout", version="argoproj.io/v1"),)),
    ("StatefulSet", "nb"): eligible.Owner("u", (NOTEBOOK,)),
    ("StatefulSet", "plain-owner"): eligible.Owner("u", (ref("App", controller=None),)),
    ("StatefulSet", "of-namespace"): eligible.Owner("u", (ref("Namespace", version="v1"),)),
    ("StatefulSet", "off"): eligible.Owner("u", disabled=True),
}


def lookup(kind, name):
    return OWNERS.get((kind, name))


@pytest.mark.parametrize(
    ("owners", "want", "workload"),
    [
        pytest.param([ref("StatefulSet")], "", "StatefulSet/x", id="statefulset"),
        pytest.param([ref("DaemonSet")], "", "DaemonSet/x", id="daemonset"),
        pytest.param([ref("ReplicaSet", "x-1", uid="rs")], "", "Deployment/x", id="deployment"),
        pytest.param(
            [ref("StatefulSet", "of-namespace")], "", "StatefulSet/of-namespace", id="namespace"
        ),
        pytest.param([], "BarePod", "", id="bare"),
        pytest.param([ref("Job", version="batch/v1")], "RunsToCompletion", "Job/x", id="job"),
        pytest.param(
            [ref("TFJob", version="kubeflow.org/v1")], "OtherOwner", "TFJob/x", id="tfjob"
        ),
        pytest.param([ref("ReplicaSet", "lone")], "OtherOwner", "ReplicaSet/lone", id="lone-rs"),
        pytest.param([ref("ReplicaSet", "rollout")], "OtherOwner", "Rollout/x", id="rollout"),
        pytest.param(
            [ref("StatefulSet", "nb")], "OwnedFurtherUp", "StatefulSet/nb", id="notebook"
        ),
        pytest.param(
            [ref("StatefulSet", "plain-owner")],
            "OwnedFurtherUp",
            "StatefulSet/plain-owner",
            id="owner-that-does-not-control",
        ),
        pytest.param(
            [ref("StatefulSet", "off")], "ConvergenceDisabled", "StatefulSet/off", id="off"
        ),
        pytest.param(
            [ref("StatefulSet", uid="older")], "OwnerUnknown", "StatefulSet/x", id="recreated"
        ),
        pytest.param(
            [ref("ReplicaSet", "x-1", uid="older")],
            "OwnerUnknown",
            "ReplicaSet/x-1",
            id="replicaset-recreated",
        ),
        pytest.param(
            [ref("ReplicaSet", "gone")], "OwnerUnknown", "ReplicaSet/gone", id="replicaset-gone"
        ),
        pytest.param([ref("StatefulSet", "gone")], "OwnerUnknown", "StatefulSet/gone", id="gone"),
        pytest.param(
            [ref("StatefulSet", version="apps.kruise.io/v1")],
            "OtherOwner",
            "StatefulSet/x",
            id="another-kind-of-that-name",
        ),
        pytest.param([ref("Node", version="v1")], "OtherOwner", "Node/x", id="static"),
    ],
)
def test_only_pods_of_plain_workloads_are_ours_to_evict(owners, want, workload):
    found = eligible.ownership(pod(owners=owners), False, lookup)

    assert (found.reason, found.workload) == (want, workload)
    assert found.fixable is (want == "")


@pytest.mark.parametrize(
    ("subject", "namespace_off", "want"),
    [
        pytest.param(
            {"annotations": {names.RESTART_PODS: "disabled"}}, False, "ConvergenceDisabled"
        ),
        pytest.param({"labels": {names.RESTART_PODS: "disabled"}}, False, "ConvergenceDisabled"),
        pytest.param({}, True, "ConvergenceDisabled"),
        pytest.param({"restartPolicy": "OnFailure"}, False, "RunsToCompletion"),
    ],
)
def test_a_pod_of_a_plain_workload_can_be_left_alone(subject, namespace_off, want):
    found = eligible.ownership(pod(owners=[ref("StatefulSet")], **subject), namespace_off, lookup)

    assert (found.fixable, found.reason) == (False, want)


LABELS = st.dictionaries(
    st.sampled_from([names.INJECT, names.REVISION, "istio.io/dataplane-mode", "app"]),
    st.sampled_from(["true", "false", "x", "y", "ambient", "none", ""]),
)


@given(
    labels=LABELS,
    annotations=LABELS,
    namespace=st.dictionaries(
        st.sampled_from(["istio-injection", names.REVISION]),
        st.sampled_from(["enabled", "disabled", "x", "y"]),
    ),
    revision=st.sampled_from(["", "x"]),
)
def test_a_pod_that_says_no_is_never_wanted_and_every_answer_has_a_reason(
    labels, annotations, namespace, revision
):
    decided = eligible.wanted(pod(labels, annotations), scope(namespace, mesh_revision=revision))

    assert decided.reason
    assert decided.message
    if labels.get(names.INJECT) == "false":
        assert not decided.wanted
    if not namespace and names.INJECT not in labels and names.REVISION not in labels:
        assert not decided.wanted


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "Succeeded", "Failed"])
def test_only_a_pod_that_is_not_over_matters(phase):
    subject = pod()
    subject.status.phase = phase

    assert eligible.alive(subject) is (phase not in ("Succeeded", "Failed"))
