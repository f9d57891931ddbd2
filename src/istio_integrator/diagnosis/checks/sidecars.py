"""Which pods of the model are not in the mesh, or lose calls in the mesh, and why?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names
from integrator_contract.reasons import Reason
from istio_integrator import texts
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster, fences
from istio_integrator.lifecycle import answers
from istio_integrator.messages import Message, Severity, Template
from istio_integrator.policies import decide, policies
from istio_integrator.situation.model import Pod

_NODE_LABELS = {"k8s-app": "istio-cni-node"}
"""The labels of the CNI plugin's DaemonSet and pods in Istio's charts."""
_EXCLUSIONS = (
    names.EXCLUDED_OUTBOUND_PORTS,
    names.EXCLUDED_OUTBOUND_RANGES,
    names.INCLUDED_OUTBOUND_RANGES,
)
_WITH_SIDECAR = (Reason.SIDECAR_UNWANTED, Reason.EXCLUDED, Reason.WRONG_ORDER)
"""Reasons to replace a pod that has a sidecar."""


@registry.check("cni", place=40, symptoms=("an-init-container-without-network",))
def check_cni(facts: Facts) -> Iterable[Message]:
    """Check whether Istio's plugin is ready, and which init containers have no network."""
    if facts.mesh is None or not facts.mesh.proxy.cni:
        return
    wrong, api = list[Message](), facts.situation.cluster
    for each in api.list(cluster.DAEMON_SET, labels=_NODE_LABELS):
        reference = cluster.reference(each)
        with fences.isolate(reference):
            status, namespace = cluster.at(each, "status"), each["metadata"]["namespace"]
            count = status.get("desiredNumberScheduled", 0) - status.get("numberReady", 0)
            if count:
                told = {"reference": reference, "namespace": namespace, "count": count}
                wrong.append(Template.CNI_NOT_READY(**told))
    # A pod of a Job ends as failed if its init container has no network.
    every_pod = api.decode(api.list(cluster.POD, facts.situation.model), Pod)
    if cut := [pod.reference for pod in every_pod if _is_cut_off(pod)]:
        pods = texts.join_names(cut)
        wrong.append(
            Template.INIT_WITHOUT_NETWORK(pods=pods, application=facts.situation.application)
        )
    yield from wrong or [Template.CNI_READY()]


def _is_cut_off(pod: Pod) -> bool:
    classic = any(each.name == names.PROXY for each in pod.spec.containers)
    own = any(not each.name.startswith("istio-") for each in pod.spec.init_containers)
    # With the plugin, istiod sets these annotations to "*" or "" in pods that do not have them.
    is_led = {pod.metadata.annotations.get(key) for key in _EXCLUSIONS} <= {None, "", "*"}
    return classic and own and is_led


@registry.check(
    "sidecars",
    place=50,
    symptoms=("a-pod-without-istio-proxy", "stuck-in-terminating"),
    look="juju run {application}/leader list-uninjected",
)
def check_sidecars(facts: Facts) -> Iterable[Message]:
    """Name the pods without a sidecar or with one of an old revision or version, and why."""
    if facts.mesh is None:
        return
    application, answer = facts.situation.application, facts.uninjected
    progress = list(answers.report_progress(answer.summary, facts))
    rows: dict[tuple[Template, str], list[str]] = {}
    for row in answer.pods:
        said = Template.WRONG_POD if row.reason in _WITH_SIDECAR else Template.NO_SIDECAR
        rows.setdefault((said, row.message), []).append(f"{row.namespace}/{row.name}")
    for row in facts.workload.list_stale() if answer.summary.stale else ():
        rows.setdefault((Template.OLD_PROXY, row.message), []).append(
            f"{row.namespace}/{row.name}"
        )
    unmet = [each for each in progress if each.severity is not Severity.NOTE]
    yield from unmet
    for (said, reason), pods in rows.items():
        yield said(pods=texts.join_names(pods), reason=reason, application=application)
    if not unmet and not rows:
        yield from progress


@registry.check("ambient", place=65, unfelt="pods without a ztunnel answer as without a mesh")
def check_ambient(facts: Facts) -> Iterable[Message]:
    """In ambient mode, name the pods that no ztunnel has, and what needs a waypoint."""
    if facts.data_plane != "ambient":
        return
    waiting = [pod.metadata.name for pod in facts.pods if _is_waiting(pod)]
    if waiting:
        yield Template.PODS_NOT_IN_ZTUNNEL(pods=texts.join_names(waiting))
    else:
        yield Template.PODS_IN_ZTUNNEL()
    if facts.situation.config.authorization == "off":
        return
    if beyond := decide.decide(
        policies.Authorization(facts).read_input(facts.situation.config)
    ).unenforced:
        workloads = texts.join_names(beyond)
        yield Template.HTTP_RULES_NEED_WAYPOINT(
            workloads=workloads, application=facts.situation.application
        )


def _is_waiting(pod: Pod) -> bool:
    metadata = pod.metadata
    is_outside = (
        metadata.labels.get(names.DATAPLANE_MODE) == "none"
        or names.SIDECAR_STATUS in metadata.annotations
        or pod.spec.host_network
    )
    is_taken = metadata.annotations.get(names.AMBIENT_REDIRECTION) == "enabled"
    return pod.is_ready and not is_taken and not is_outside


@registry.check("egress", place=190, symptoms=("connection-reset-by-peer",))
def check_egress(facts: Facts) -> Iterable[Message]:
    """Name the calls out of the model that a proxy would break."""
    istio = facts.mesh
    if istio is None:
        return
    wanted = set(map(str, facts.situation.controller.ports))
    cut = [
        pod
        for pod in facts.pods
        if names.NAME in pod.metadata.labels and pod.is_in_mesh and not _bypasses_mesh(pod, wanted)
    ]
    if cut and istio.cuts_off_controller:
        first = cut[0].metadata
        pods = texts.join_names(each.reference for each in cut)
        place = {"namespace": first.namespace, "name": first.name}
        yield Template.CONTROLLER_NOT_REACHED(pods=pods, **place)
    yield (
        Template.EGRESS_REGISTRY_ONLY() if istio.settings.registry_only else Template.EGRESS_OPEN()
    )


def _bypasses_mesh(pod: Pod, ports: set[str]) -> bool:
    notes = pod.metadata.annotations
    excluded = {each.strip() for each in notes.get(names.EXCLUDED_OUTBOUND_PORTS, "").split(",")}
    return ports <= excluded or "0.0.0.0/0" in notes.get(names.EXCLUDED_OUTBOUND_RANGES, "")
