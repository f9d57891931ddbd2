"""Rules: should a pod be in the mesh, is it there, and may convergence replace it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from integrator_contract import names, selectors, service
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import first_container, injector_status
from sidecar_lifecycle.model import types

WORKLOAD_KINDS = ("StatefulSet", "Deployment", "DaemonSet")
"""Kinds of apps/v1 that immediately replace an evicted pod."""

_REVISION_LABELS = ("controller-revision-hash", "pod-template-generation")
"""Labels of a pod's template: the first on a StatefulSet's pods, the second on a DaemonSet's."""


@dataclass(frozen=True, kw_only=True)
class Scope(service.Eligibility):
    """The settings and labels that decide, with the pod itself, whether it gets a sidecar."""

    namespace_labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MembershipDecision:
    """Whether a pod should be in the mesh in the model's mode, and why."""

    wanted: bool
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner of pods, or of their owner."""

    uid: str
    owners: tuple[types.OwnerReference, ...] = ()
    disabled: bool = False
    """Whether the object itself disables convergence."""
    withheld_from: str | None = None
    """The template of new pods, as their labels name it, under the update strategy OnDelete: pods
    of another template keep it until they are deleted. None: another strategy."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The workload of a pod, and whether convergence may evict the pod."""

    workload: str
    """Such as `StatefulSet/foo`; empty if no workload owns the pod."""
    fixable: bool
    reason: str
    message: str


Lookup = Callable[[str, str], Owner | None]
"""Returns an owner in the pod's namespace by kind and name; None if it does not exist."""


def is_alive(pod: types.Pod) -> bool:
    """Tell whether the pod has not ended, so that its sidecar matters."""
    return pod.status.phase not in ("Succeeded", "Failed")


def is_injected(pod: types.Pod) -> bool:
    """Tell whether the pod is in the mesh by its own containers, injected or not.

    A proxy with the image `auto` is a customisation that the injector has not filled in. The
    injector's annotation counts only if the pod has every listed container. Some templates, such
    as grpc-simple, do not add a proxy.
    """
    containers = [
        each.name
        for each in (*pod.spec.containers, *pod.spec.initContainers)
        if each.image != names.AUTO_IMAGE
    ]
    if names.PROXY in containers:
        return True
    added = injector_status.read(pod).added_containers
    return bool(added) and added.issubset(containers)


def is_in_mesh(pod: types.Pod, scope: Scope) -> bool:
    """Tell whether the pod is in the mesh in the model's mode, sidecar or ambient.

    Istio's node agent ignores injected pods, whatever their labels (istio cni/pkg/util,
    podutil.go). A proxy that was not injected belongs to a gateway or to the pod's author, and
    does not count.
    """
    if scope.data_plane != "ambient":
        return is_injected(pod)
    has_leftover = names.SIDECAR_STATUS in pod.metadata.annotations
    return _find_ambient_mode(pod.metadata, scope) == "ambient" and not has_leftover


def _find_ambient_mode(meta: types.ObjectMeta, scope: Scope) -> str | None:
    """Return the label that Istio's node agent follows: the pod's, or its namespace's."""
    return meta.labels.get(names.DATAPLANE_MODE, scope.namespace_labels.get(names.DATAPLANE_MODE))


def find_displaced(pod: types.Pod) -> str:
    """Return the container that the controller expects first, if another one is first."""
    first = first_container.find_addressed(pod)
    return first if first is not None and pod.spec.containers[0].name != first else ""


def is_switched_off(meta: types.ObjectMeta) -> bool:
    """Tell whether convergence is disabled on an object, by annotation or by label."""
    return "disabled" in (
        meta.annotations.get(names.RESTART_PODS),
        meta.labels.get(names.RESTART_PODS),
    )


def decide_membership(pod: types.Pod, scope: Scope) -> MembershipDecision:
    """Tell whether this pod, created now, would be in the mesh in the model's mode."""
    if (outside := _find_exclusion(pod, scope)) is not None:
        return outside
    if scope.data_plane == "ambient":
        return _decide_by_ambient(pod, scope)
    return _find_opt_out(pod, scope) or _decide_by_namespace(pod, scope)


def _find_exclusion(pod: types.Pod, scope: Scope) -> MembershipDecision | None:
    """Return why this pod stays outside of the mesh in any namespace."""
    labels, namespace = pod.metadata.labels, pod.metadata.namespace or scope.model
    if (unsuited := find_inability(pod.spec)) is not None:
        return unsuited
    if namespace == scope.model and names.is_integrator(labels, scope.application):
        return _leave_out(Reason.INTEGRATOR_ITSELF, "the integrator's own pods stay outside")
    if names.is_modeloperator(labels):
        return _leave_out(Reason.MODEL_OPERATOR, "Juju's modeloperator stays outside")
    if selectors.matches(scope.excluded, labels):
        return _leave_out(Reason.EXCLUDED, "it matches excluded-pods")
    return None


def find_inability(spec: types.PodSpec) -> MembershipDecision | None:
    """Return why a pod cannot have a sidecar, if so: admission labels such pods."""
    if spec.hostNetwork:
        return _leave_out(Reason.HOST_NETWORK, "pods on the host's network are never in the mesh")
    affinity = spec.affinity and spec.affinity.nodeAffinity
    required = affinity and affinity.requiredDuringSchedulingIgnoredDuringExecution
    terms = [
        [selectors.Requirement(one.key, one.operator, one.values) for one in each.matchExpressions]
        for each in (required.nodeSelectorTerms if required else ())
    ]
    if not selectors.may_run_on_linux(spec.os.name if spec.os else "", spec.nodeSelector, terms):
        return _leave_out(Reason.WINDOWS, "Istio has no sidecar for Windows")
    return None


def _leave_out(reason: Reason, message: str) -> MembershipDecision:
    return MembershipDecision(False, reason, message)


def _decide_by_ambient(pod: types.Pod, scope: Scope) -> MembershipDecision:
    """Apply the selectors of Istio's node agent, which does not control sidecars."""
    labels = pod.metadata.labels
    # The injector gives such a pod a sidecar in a namespace without injection labels.
    if labels.get(names.INJECT) == "true" or names.REVISION in labels:
        return _leave_out(Reason.POD_INJECTION, "the pod asks for a sidecar itself")
    says = _find_ambient_mode(pod.metadata, scope)
    if says == "ambient":
        why = f"it is in ambient mode by {names.DATAPLANE_MODE}=ambient"
        if names.SIDECAR_STATUS in pod.metadata.annotations:
            return MembershipDecision(True, Reason.SIDECAR_LEFT, f"{why}, and still has a sidecar")
        return MembershipDecision(True, Reason.AMBIENT, why)
    if names.DATAPLANE_MODE in labels:
        return _leave_out(Reason.OUT_OF_AMBIENT, f"the pod says {names.DATAPLANE_MODE}={says}")
    return _decide_by_selection(labels, scope)


def _find_opt_out(pod: types.Pod, scope: Scope) -> MembershipDecision | None:
    """Return why this pod gets no sidecar in any namespace."""
    meta = pod.metadata
    # The label is the newer interface: istiod reads the annotation only without the label.
    if meta.labels.get(names.INJECT, meta.annotations.get(names.INJECT)) == "false":
        return _leave_out(Reason.INJECTION_DISABLED, f"the pod says {names.INJECT}=false")
    is_redirected = meta.annotations.get(names.AMBIENT_REDIRECTION) == "enabled"
    if is_redirected or _find_ambient_mode(meta, scope) == "ambient":
        return _leave_out(Reason.AMBIENT, "it is in the mesh by ambient mode")
    return None


def _decide_by_namespace(pod: types.Pod, scope: Scope) -> MembershipDecision:
    """Apply the selectors of Istio's injector webhooks."""
    labels = scope.namespace_labels
    if (says := labels.get(names.INJECTION)) is not None:
        said = f"its namespace says {names.INJECTION}={says}"
        if says == "enabled":
            return MembershipDecision(True, Reason.NAMESPACE_INJECTION, said)
        return _leave_out(Reason.NAMESPACE_DISABLED, said)
    if revision := labels.get(names.REVISION):
        return _decide_by_revision(revision, scope, "its namespace")
    labels = pod.metadata.labels
    if revision := labels.get(names.REVISION):
        return _decide_by_revision(revision, scope, "the pod")
    if labels.get(names.INJECT) == "true":
        return MembershipDecision(True, Reason.POD_INJECTION, f"the pod says {names.INJECT}=true")
    return _decide_by_selection(labels, scope)


def _decide_by_selection(labels: Mapping[str, str], scope: Scope) -> MembershipDecision:
    if scope.membership != "selected":
        return _leave_out(Reason.NAMESPACE_OUTSIDE, "its namespace has no label of the mesh")
    if selectors.matches(scope.included, labels):
        return MembershipDecision(True, Reason.INCLUDED, "it matches included-pods")
    return _leave_out(Reason.NOT_INCLUDED, "it does not match included-pods")


def _decide_by_revision(revision: str, scope: Scope, who: str) -> MembershipDecision:
    said = f"{who} says {names.REVISION}={revision}"
    if scope.mesh_revision and revision != scope.mesh_revision:
        return _leave_out(Reason.OTHER_REVISION, f"{said}, which is not {scope.mesh_revision}")
    return MembershipDecision(True, Reason.REVISION, said)


def find_ownership(pod: types.Pod, scope_disabled: bool, lookup: Lookup) -> Ownership:
    """Tell whether the pod may be evicted, so that its workload creates one with a sidecar."""
    reference = find_controller(pod.metadata.ownerReferences)
    if reference is None:
        return Ownership("", False, Reason.BARE_POD, "nothing would create it again")
    owner = _find_owner(reference, lookup)
    if owner is not None and reference.kind == "ReplicaSet":
        reference = find_controller(owner.owners) or reference
        owner = _find_owner(reference, lookup)
    name = f"{reference.kind}/{reference.name}"
    reasons = _list_objections(pod, name, reference, owner, scope_disabled)
    reason, message = next(reasons, ("", ""))
    return Ownership(name, not reason, reason, message)


def find_controller(references: tuple[types.OwnerReference, ...]) -> types.OwnerReference | None:
    """Return the object's controller, if any."""
    return next((each for each in references if each.controller), None)


def _find_owner(reference: types.OwnerReference, lookup: Lookup) -> Owner | None:
    if not reference.apiVersion.startswith("apps/"):
        return None
    owner = lookup(reference.kind, reference.name)
    return owner if owner is not None and owner.uid == reference.uid else None


def _list_objections(
    pod: types.Pod,
    name: str,
    reference: types.OwnerReference,
    owner: Owner | None,
    scope_disabled: bool,
) -> Iterator[tuple[Reason, str]]:
    """Yield the reasons not to evict a pod with this owner."""
    if reference.kind == "Job":
        yield Reason.RUNS_TO_COMPLETION, "it runs to completion"
    is_of_apps = reference.apiVersion.startswith("apps/")
    if not is_of_apps or (owner is not None and reference.kind not in WORKLOAD_KINDS):
        message = f"{reference.kind} is no Deployment, StatefulSet or DaemonSet"
        yield Reason.OTHER_OWNER, message
    if owner is None:
        yield Reason.OWNER_UNKNOWN, f"{name} was not found"
        return
    # A Namespace as owner only means that the object is deleted with it.
    above = next((each for each in owner.owners if each.kind != "Namespace"), None)
    if above is not None:
        yield Reason.OWNED_FURTHER_UP, f"{name} belongs to {above.kind} {above.name}"
    by_pod = is_switched_off(pod.metadata)
    off = {name: owner.disabled, "its namespace": scope_disabled, "the pod": by_pod}
    for place in filter(off.get, off):
        yield Reason.CONVERGENCE_DISABLED, f"switched off on {place}"
    labels = pod.metadata.labels
    revisions = [labels[key] for key in _REVISION_LABELS if key in labels]
    if owner.withheld_from is not None and owner.withheld_from not in revisions:
        message = (
            f"{name} may have a newer template, which its pods get when they are deleted"
            " (OnDelete): delete the pod yourself"
        )
        yield Reason.TEMPLATE_WITHHELD, message
