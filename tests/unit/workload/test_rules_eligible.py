"""Pods that should be in the mesh, pods that are, and pods that may be evicted."""

import json

import msgspec
import pytest
from sidecar_lifecycle.decide import eligible, mutate
from sidecar_lifecycle.model import resources, types

from integrator_contract import names
from integrator_contract import pods as admission
from tests.unit.cases import cases

ENABLED = {"istio-injection": "enabled"}


def pod(
    labels=None, annotations=None, *, owners=(), host_network=False, containers=("main",), **spec
):
    return types.Pod(
        metadata=types.ObjectMeta(
            name="p",
            namespace="kf",
            labels=labels or {},
            annotations=annotations or {},
            ownerReferences=tuple(owners),
        ),
        spec=types.PodSpec(
            hostNetwork=host_network,
            containers=tuple(types.Container(name=each) for each in containers),
            **spec,
        ),
    )


def scope(labels=ENABLED, **settings):
    return eligible.Scope(namespace_labels=labels, model="kf", application="mesh-2", **settings)


def ref(kind, name="x", *, version="apps/v1", uid="u", controller: bool | None = True):
    return types.OwnerReference(
        apiVersion=version, kind=kind, name=name, uid=uid, controller=controller
    )


MODELOPERATOR = {"operator.juju.is/name": "modeloperator"}
MESSAGES = {
    "NamespaceInjection": "its namespace says istio-injection=enabled",
    "InjectionDisabled": "the pod says sidecar.istio.io/inject=false",
    "PodInjection": "the pod says sidecar.istio.io/inject=true",
    "Excluded": "it matches excluded-pods",
    "Included": "it matches included-pods",
    "NotIncluded": "it does not match included-pods",
    "NamespaceOutside": "its namespace has no label of the mesh",
    "ModelOperator": "Juju's modeloperator stays outside",
    "IntegratorItself": "the integrator's own pods stay outside",
    "Ambient": "it is in the mesh by ambient mode",
    "HostNetwork": "pods on the host's network are never in the mesh",
    "Windows": "Istio has no sidecar for Windows",
}


def assert_decides(decided, want, **messages):
    """Check the reason, and the message where it is the same in each row."""
    assert decided.reason == want
    assert decided.message == {**MESSAGES, **messages}.get(want, decided.message)


@cases(
    ("labels", "annotations", "want"),
    plain=({}, {}, "NamespaceInjection"),
    label_off=({names.INJECT: "false"}, {}, "InjectionDisabled"),
    annotation_off=({}, {names.INJECT: "false"}, "InjectionDisabled"),
    off_with_revision=({names.INJECT: "false", names.REVISION: "1-31"}, {}, "InjectionDisabled"),
    label_wins=({names.INJECT: "true"}, {names.INJECT: "false"}, "NamespaceInjection"),
    only_lower_case=({names.INJECT: "False"}, {}, "NamespaceInjection"),
    excluded=({"app": "out", names.INJECT: "false"}, {}, "Excluded"),
    modeloperator=({**MODELOPERATOR, "app": "out"}, {}, "ModelOperator"),
    another_operator=({"operator.juju.is/name": "kfp"}, {}, "NamespaceInjection"),
    old_modeloperator=({"juju-modeloperator": "modeloperator"}, {}, "ModelOperator"),
    ourselves=({"app.kubernetes.io/name": "mesh-2", "app": "out"}, {}, "IntegratorItself"),
    of_a_longer_name=({"app.kubernetes.io/name": "mesh-2-db"}, {}, "NamespaceInjection"),
    our_webhook=({names.COMPONENT: "admission-webhook"}, {}, "IntegratorItself"),
    our_gateway=({names.COMPONENT: "gateway"}, {}, "NamespaceInjection"),
    ambient_pod=({names.DATAPLANE_MODE: "ambient"}, {}, "Ambient"),
    ambient_enrolled=({}, {"ambient.istio.io/redirection": "enabled"}, "Ambient"),
    ambient_no_more=({}, {"ambient.istio.io/redirection": "disabled"}, "NamespaceInjection"),
)
def test_a_pod_of_a_member_namespace_is_judged_by_what_it_says(labels, annotations, want):
    decided = eligible.decide_membership(pod(labels, annotations), scope(excluded_pods="app=out"))

    assert_decides(decided, want)
    assert decided.wanted is (want == "NamespaceInjection")


WANTED = ("NamespaceInjection", "Revision", "PodInjection", "Included")
"""Reasons for which a pod should have a sidecar."""
REVISION = {"mesh_revision": "1-31"}
OTHER = {names.REVISION: "1-30"}
SELECTED = {"membership": "selected", "included_pods": "app=in"}
AMBIENT = {names.DATAPLANE_MODE: "ambient"}
NONE = {names.DATAPLANE_MODE: "none"}
BOTH = {**ENABLED, **AMBIENT}


@cases(
    ("namespace", "labels", "settings", "want"),
    off=({"istio-injection": "disabled"}, {names.INJECT: "true"}, {}, "NamespaceDisabled"),
    nothing=({"istio-injection": ""}, {}, {}, "NamespaceDisabled"),
    both_labels=({**ENABLED, names.REVISION: "x"}, OTHER, REVISION, "NamespaceInjection"),
    revision=({names.REVISION: "1-31"}, OTHER, REVISION, "Revision"),
    other_revision=(OTHER, {names.REVISION: "1-31"}, REVISION, "OtherRevision"),
    longer_revision=({names.REVISION: "1-31-2"}, {}, REVISION, "OtherRevision"),
    empty_revision=({names.REVISION: ""}, {}, {}, "NamespaceOutside"),
    any_revision=({names.REVISION: "x"}, {}, {}, "Revision"),
    outside=({}, {"app": "in"}, {**SELECTED, "membership": "none"}, "NamespaceOutside"),
    pod_says_neither=({}, {names.INJECT: "yes"}, {}, "NamespaceOutside"),
    pod_asks=({}, {names.INJECT: "true"}, {}, "PodInjection"),
    both=({}, {names.REVISION: "1-31", names.INJECT: "true"}, REVISION, "Revision"),
    selected=({}, {"app": "in"}, SELECTED, "Included"),
    not_selected=({}, {"app": "else"}, SELECTED, "NotIncluded"),
    ambient=(BOTH, {}, {}, "Ambient"),
    leaves_ambient=(BOTH, NONE, {}, "NamespaceInjection"),
)
def test_the_namespace_and_the_membership_decide(namespace, labels, settings, want):
    decided = eligible.decide_membership(pod(labels), scope(namespace, **settings))

    assert decided.wanted is (want in WANTED)
    is_by_pod = not namespace.get(names.REVISION)
    who, says = ("the pod", labels) if is_by_pod else ("its namespace", namespace)
    revision = f"{who} says istio.io/rev={says.get(names.REVISION)}"
    assert_decides(
        *(decided, want),
        Revision=revision,
        OtherRevision=f"{revision}, which is not 1-31",
        NamespaceDisabled=f"its namespace says istio-injection={namespace.get('istio-injection')}",
    )


def in_ambient_mode(namespace=AMBIENT, **settings):
    return scope(namespace, data_plane="ambient", **settings)


LEFT = {names.SIDECAR_STATUS: "{}"}
SELECTED_OF_AMBIENT = in_ambient_mode({}, **SELECTED)
MODEL_OF_AMBIENT = in_ambient_mode(excluded_pods="app=out")


def left_over(labels=None):
    return pod(labels, LEFT, containers=("main", "istio-proxy"))


@cases(
    ("around", "subject", "want", "in_mesh"),
    plain=(MODEL_OF_AMBIENT, pod(), "Ambient", True),
    leftover=(MODEL_OF_AMBIENT, left_over(), "SidecarLeft", False),
    says_no_to_sidecars=(MODEL_OF_AMBIENT, pod({names.INJECT: "false"}), "Ambient", True),
    asks_for_one=(MODEL_OF_AMBIENT, left_over({names.INJECT: "true"}), "PodInjection", False),
    by_revision=(MODEL_OF_AMBIENT, left_over({names.REVISION: "x"}), "PodInjection", False),
    out=(MODEL_OF_AMBIENT, pod(NONE), "OutOfAmbient", False),
    out_with_a_sidecar=(MODEL_OF_AMBIENT, left_over(NONE), "OutOfAmbient", False),
    excluded=(MODEL_OF_AMBIENT, left_over({"app": "out"}), "Excluded", False),
    with_a_proxy_of_its_own=(
        *(MODEL_OF_AMBIENT, pod(containers=("main", "istio-proxy")), "Ambient", True),
    ),
    juju=(MODEL_OF_AMBIENT, pod(MODELOPERATOR), "ModelOperator", True),
    on_the_host_network=(MODEL_OF_AMBIENT, pod(host_network=True), "HostNetwork", True),
    # Selected pods are in ambient mode by their own label.
    yet_to_come=(SELECTED_OF_AMBIENT, pod({"app": "in"}), "Included", False),
    there=(SELECTED_OF_AMBIENT, pod({"app": "in", **AMBIENT}), "Ambient", True),
    not_selected=(SELECTED_OF_AMBIENT, pod({"app": "else"}), "NotIncluded", False),
    says_no=(SELECTED_OF_AMBIENT, pod({"app": "in", **NONE}), "OutOfAmbient", False),
    namespace_says_no=(in_ambient_mode(NONE, **SELECTED), pod({"app": "in"}), "Included", False),
)
def test_what_a_pod_of_an_ambient_model_is(around, subject, want, in_mesh):
    decided = eligible.decide_membership(subject, around)

    by_label = "it is in ambient mode by istio.io/dataplane-mode=ambient"
    assert_decides(
        *(decided, want),
        Ambient=by_label,
        SidecarLeft=f"{by_label}, and still has a sidecar",
        PodInjection="the pod asks for a sidecar itself",
        OutOfAmbient="the pod says istio.io/dataplane-mode=none",
    )
    assert decided.wanted is (want in ("Ambient", "SidecarLeft", "Included"))
    assert eligible.is_in_mesh(subject, around) is in_mesh


OS, OLD_OS = "kubernetes.io/os", "beta.kubernetes.io/os"


def requires(*terms):
    """Require nodes by terms, each of expressions `key operator values` after another one."""
    keys = ("key", "operator", "values")
    wanted = [
        {
            "matchExpressions": [
                dict(zip(keys, one, strict=False))
                for one in (("disk", "Exists"), *(each if isinstance(each, list) else [each]))
            ]
        }
        for each in terms
    ]
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {kind: {"nodeSelectorTerms": wanted}}}}


WINDOWS = (OS, "In", ["windows"])


@cases(
    ("spec", "want"),
    host=({"hostNetwork": True}, "HostNetwork"),
    field=({"os": {"name": "windows"}}, "Windows"),
    selector=({"nodeSelector": {OS: "windows"}}, "Windows"),
    old_selector=({"nodeSelector": {OLD_OS: "windows", "disk": "ssd"}}, "Windows"),
    affinity=(requires(WINDOWS), "Windows"),
    old_affinity=(requires((OLD_OS, "In", ["windows"])), "Windows"),
    every_term=(requires(WINDOWS, (OS, "NotIn", ["linux"])), "Windows"),
    one_term_of_two=(requires(WINDOWS, ("disk", "In", ["ssd"])), "NamespaceInjection"),
    either=(requires((OS, "In", ["windows", "linux"])), "NamespaceInjection"),
    both_expressions=(requires([(OS, "In", ["linux", "windows"]), WINDOWS]), "Windows"),
    not_windows=(requires((OS, "NotIn", ["windows"])), "NamespaceInjection"),
    any_system=(requires((OS, "Exists")), "NamespaceInjection"),
    linux=({"nodeSelector": {OS: "linux"}, "os": {"name": "linux"}}, "NamespaceInjection"),
    no_requirement=({"affinity": {"nodeAffinity": {}}}, "NamespaceInjection"),
    preferred=(
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
        "NamespaceInjection",
    ),
)
def test_a_pod_that_cannot_have_a_sidecar_is_never_wanted_and_is_labelled(spec, want):
    subject = pod()
    subject.spec = msgspec.convert({"containers": [{"name": "main"}], **spec}, types.PodSpec)
    assert_decides(eligible.decide_membership(subject, scope()), want)

    settings = admission.Settings(application="mesh-2", model="kf")
    changed = mutate.mutate(subject, settings)
    is_out = want in ("HostNetwork", "Windows")
    label = {"op": "add", "path": "/metadata/labels", "value": {names.INJECT: "false"}}
    assert (label in changed.patch, "excluded" in changed.applied) == (is_out, is_out)
    assert [(each.change, each.reason) for each in changed.skipped] == [("hold", want)] * is_out
    subject.metadata.labels = {names.INJECT: "true"}
    assert "excluded" not in mutate.mutate(subject, settings).applied
    elsewhere = mutate.mutate(subject, settings, "profiles")
    assert elsewhere.applied == (() if is_out else ("hold",))


@cases(
    ("namespace", "labels", "want"),
    the_application_s_name=("kf-user", {"app.kubernetes.io/name": "mesh-2"}, "NamespaceInjection"),
    modeloperator=("kf-user", MODELOPERATOR, "ModelOperator"),
    excluded=("kf-user", {"app": "out"}, "Excluded"),
    not_written_yet=(None, {"app.kubernetes.io/name": "mesh-2"}, "IntegratorItself"),
)
def test_only_pods_of_the_model_are_the_integrator_by_name(namespace, labels, want):
    subject = pod(labels)
    subject.metadata.namespace = namespace

    assert_decides(eligible.decide_membership(subject, scope(excluded_pods="app=out")), want)


def init(*names_of_containers):
    return [types.Container(name=each) for each in names_of_containers]


CUSTOMISED = types.Container(name="istio-proxy", image="auto")


def marked(*names_of_init_containers, containers=None):
    """Write the injector's annotation as it names what it has added."""
    added = {"containers": containers, "initContainers": names_of_init_containers}
    return {names.SIDECAR_STATUS: json.dumps(added)}


@cases(
    ("subject", "want"),
    plain=(pod(), False),
    classic=(pod(containers=("main", "istio-proxy")), True),
    gateway=(pod(containers=["istio-proxy"]), True),
    native=(pod(initContainers=init("istio-proxy")), True),
    native_after_another=(pod(initContainers=init("setup", "istio-proxy")), True),
    init_only=(pod(initContainers=init("istio-init")), False),
    customised_not_injected=(pod(initContainers=[CUSTOMISED]), False),
    left_over_mark=(pod(annotations=marked("istio-proxy")), False),
    left_over_mark_and_init=(
        pod(annotations=marked("istio-proxy", "istio-init"), initContainers=init("istio-init")),
        False,
    ),
    left_over_mark_and_customised=(
        pod(annotations=marked("istio-proxy"), initContainers=[CUSTOMISED]),
        False,
    ),
    empty_mark=(pod(annotations={names.SIDECAR_STATUS: "{}"}), False),
    without_proxy=(pod(annotations=marked("bootstrap"), initContainers=init("bootstrap")), True),
    with_containers=(pod(annotations=marked(containers=["agent"]), containers=["agent"]), True),
    half_of_a_left_over_mark=(
        pod(annotations=marked("istio-init", containers=["agent"]), containers=["agent"]),
        False,
    ),
)
def test_a_sidecar_is_recognised_in_any_form(subject, want):
    assert eligible.is_injected(subject) is want


NOTEBOOK = ref("Notebook", "nb", version="kubeflow.org/v1", uid="nb")
OWNERS = {
    ("StatefulSet", "x"): eligible.Owner("u"),
    ("DaemonSet", "x"): eligible.Owner("u"),
    ("Deployment", "x"): eligible.Owner("u"),
    ("ReplicaSet", "x-1"): eligible.Owner(
        "rs", (ref("Namespace", version="v1", controller=None), ref("Deployment"))
    ),
    ("ReplicaSet", "x-2"): eligible.Owner("rs", (ref("Deployment", uid="older"),)),
    ("ReplicaSet", "lone"): eligible.Owner("u"),
    ("ReplicaSet", "rollout"): eligible.Owner("u", (ref("Rollout", version="argoproj.io/v1"),)),
    ("StatefulSet", "nb"): eligible.Owner("u", (ref("Namespace", version="v1"), NOTEBOOK)),
    ("StatefulSet", "plain-owner"): eligible.Owner("u", (ref("App", controller=None),)),
    ("StatefulSet", "of-namespace"): eligible.Owner("u", (ref("Namespace", version="v1"),)),
    ("StatefulSet", "off"): eligible.Owner("u", disabled=True),
}


def lookup(kind, name):
    return OWNERS.get((kind, name))


@cases(
    ("owners", "want", "workload"),
    statefulset=([ref("StatefulSet")], "", "StatefulSet/x"),
    daemonset=([ref("DaemonSet")], "", "DaemonSet/x"),
    deployment=([ref("ReplicaSet", "x-1", uid="rs")], "", "Deployment/x"),
    beside_an_owner_that_does_not_control=(
        [ref("Node", version="v1", controller=None), ref("StatefulSet")],
        *("", "StatefulSet/x"),
    ),
    namespace=([ref("StatefulSet", "of-namespace")], "", "StatefulSet/of-namespace"),
    bare=([], "BarePod", ""),
    job=([ref("Job", version="batch/v1")], "RunsToCompletion", "Job/x"),
    tfjob=([ref("TFJob", version="kubeflow.org/v1")], "OtherOwner", "TFJob/x"),
    lone_rs=([ref("ReplicaSet", "lone")], "OtherOwner", "ReplicaSet/lone"),
    rollout=([ref("ReplicaSet", "rollout")], "OtherOwner", "Rollout/x"),
    notebook=([ref("StatefulSet", "nb")], "OwnedFurtherUp", "StatefulSet/nb"),
    owner_that_does_not_control=(
        [ref("StatefulSet", "plain-owner")],
        *("OwnedFurtherUp", "StatefulSet/plain-owner"),
    ),
    off=([ref("StatefulSet", "off")], "ConvergenceDisabled", "StatefulSet/off"),
    recreated=([ref("StatefulSet", uid="older")], "OwnerUnknown", "StatefulSet/x"),
    replicaset_recreated=(
        [ref("ReplicaSet", "x-1", uid="older")],
        "OwnerUnknown",
        "ReplicaSet/x-1",
    ),
    deployment_recreated=([ref("ReplicaSet", "x-2", uid="rs")], *("OwnerUnknown", "Deployment/x")),
    replicaset_gone=([ref("ReplicaSet", "gone")], "OwnerUnknown", "ReplicaSet/gone"),
    gone=([ref("StatefulSet", "gone")], "OwnerUnknown", "StatefulSet/gone"),
    another_kind_of_that_name=(
        [ref("StatefulSet", version="apps.kruise.io/v1")],
        "OtherOwner",
        "StatefulSet/x",
    ),
    static=([ref("Node", version="v1")], "OtherOwner", "Node/x"),
)
def test_only_pods_of_plain_workloads_are_ours_to_evict(owners, want, workload):
    # Only the value `disabled` switches convergence off.
    says = {names.RESTART_PODS: "auto"}
    found = eligible.find_ownership(pod(says, says, owners=owners), False, lookup)

    kind, _, name = workload.partition("/")
    messages = {
        "BarePod": "nothing would create it again",
        "RunsToCompletion": "it runs to completion",
        "OtherOwner": f"{kind} is no Deployment, StatefulSet or DaemonSet",
        "OwnedFurtherUp": f"{workload} belongs to {'Notebook nb' if name == 'nb' else 'App x'}",
        "ConvergenceDisabled": f"switched off on {workload}",
        "OwnerUnknown": f"{workload} was not found",
    }
    assert found == eligible.Ownership(workload, want == "", want, messages.get(want, ""))


OFF = {"istio-integrator.charmhub.io/restart-pods": "disabled"}


@cases(
    ("subject", "namespace_off", "place"),
    annotation=({"annotations": OFF}, False, "the pod"),
    label=({"labels": OFF}, False, "the pod"),
    namespace=({}, True, "its namespace"),
)
def test_a_pod_of_a_plain_workload_can_be_left_alone(subject, namespace_off, place):
    found = eligible.find_ownership(
        pod(owners=[ref("StatefulSet")], **subject), namespace_off, lookup
    )

    message = f"switched off on {place}"
    assert found == eligible.Ownership("StatefulSet/x", False, "ConvergenceDisabled", message)


ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}
PARTITION = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 5}}}
GENERATION = "deprecated.daemonset.template.generation"
OLD, NEW = {"controller-revision-hash": "old"}, {"controller-revision-hash": "new"}
FIRST, SECOND = ({**NEW, "pod-template-generation": number} for number in "12")


def stateful(spec, *, observed=2, revision="new"):
    status = {"observedGeneration": observed, "updateRevision": revision}
    workload = {"metadata": {"generation": 2}, "spec": spec, "status": status}
    return msgspec.convert(workload, resources.StatefulSet)


def daemons(spec, **annotations):
    workload = {"metadata": {"annotations": annotations}, "spec": spec}
    return msgspec.convert(workload, resources.DaemonSet)


@cases(
    ("workload", "labels", "is_withheld"),
    older_template=(stateful(ON_DELETE), OLD, True),
    not_yet_looked_at=(stateful(ON_DELETE, observed=1), NEW, True),
    pod_that_does_not_say=(stateful(ON_DELETE), {}, True),
    not_known=(stateful(ON_DELETE, revision=""), {}, True),
    template_of_today=(stateful(ON_DELETE), NEW, False),
    rolling_update=(stateful({}), OLD, False),
    # Kubernetes gives a pod below the partition the older template again.
    below_a_partition=(stateful(PARTITION), OLD, False),
    older_template_on_nodes=(daemons(ON_DELETE, **{GENERATION: "2"}), FIRST, True),
    not_known_on_nodes=(daemons(ON_DELETE), SECOND, True),
    template_of_today_on_nodes=(daemons(ON_DELETE, **{GENERATION: "2"}), SECOND, False),
    rolling_update_on_nodes=(daemons({}, **{GENERATION: "2"}), FIRST, False),
)
def test_an_eviction_never_rolls_out_a_template_that_waits_for_the_pods_deletion(
    workload, labels, is_withheld
):
    owner = eligible.Owner("u", withheld_from=resources.find_withheld(workload))
    subject = pod(labels, owners=[ref(type(workload).__name__)])
    found = eligible.find_ownership(subject, False, lambda *_: owner)

    message = (
        f"{type(workload).__name__}/x may have a newer template, which its pods get when they are"
        " deleted (OnDelete): delete the pod yourself"
    )
    assert (found.reason, found.message) == (
        ("TemplateWithheld", message) if is_withheld else ("", "")
    )


NODES = {"desiredNumberScheduled": 3, "currentNumberScheduled": 3}


@cases(
    ("kind", "status", "is_short"),
    deployment=("Deployment", {"replicas": 2, "readyReplicas": 2}, True),
    all_are_there=("Deployment", {"replicas": 3, "readyReplicas": 1}, False),
    nodes=("DaemonSet", {**NODES, "currentNumberScheduled": 2, "replicas": 3}, True),
    on_all_nodes=("DaemonSet", {**NODES, "readyReplicas": 1}, False),
    job=("Job", {}, False),
    cron_job=("CronJob", {}, False),
)
def test_workload_is_short_of_pods_that_were_not_created(kind, status, is_short):
    workload = {"spec": {"replicas": 1 if kind == "DaemonSet" else 3}, "status": status}
    assert resources.is_short(kind, msgspec.convert(workload, resources.Creator)) is is_short
    if kind in resources.WORKLOADS:
        typed = msgspec.convert(workload, resources.WORKLOADS[kind])
        assert resources.count_desired(typed) == 3


@cases(
    ("conditions", "creates"),
    none=([], True),
    complete=([("Suspended", "False"), ("Complete", "True")], False),
    failed=([("Failed", "True")], False),
    not_complete=([("Complete", "False")], True),
    suspended=([("Suspended", "True")], True),
)
def test_only_a_job_that_has_ended_creates_no_pods(conditions, creates):
    status = {"conditions": [{"type": kind, "status": value} for kind, value in conditions]}
    job = msgspec.convert({"status": status}, resources.Creator)
    assert resources.creates_pods(job) is creates


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "Succeeded", "Failed"])
def test_only_a_pod_that_is_not_over_matters(phase):
    subject = pod()
    subject.status.phase = phase

    assert eligible.is_alive(subject) is (phase not in ("Succeeded", "Failed"))
