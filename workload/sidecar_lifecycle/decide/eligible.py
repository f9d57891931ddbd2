"""Should this pod be in the mesh, is it there as it should be, and is it ours to replace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from integrator_contract import names, selectors, service
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import first_container, injector_status
from sidecar_lifecycle.model import types

WORKLOAD_KINDS = ("StatefulSet", "Deployment", "DaemonSet")
"""Owners of apps/v1 that create a new pod at once when one is evicted."""

_REVISION_LABELS = ("controller-revision-hash", "pod-template-generation")
"""Which template a pod was made from: of a StatefulSet the first, of a DaemonSet the second."""


@dataclass(frozen=True, kw_only=True)
class Scope(service.Eligibility):
    """What decides about a pod's sidecar beside the pod itself."""

    namespace_labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whether a pod should be in the mesh as its model is, and why."""

    wanted: bool
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Owner:
    """What owns pods, or owns their owner."""

    uid: str
    owners: tuple[types.OwnerReference, ...] = ()
    disabled: bool = False
    """Convergence is switched off on the object itself."""
    withheld_from: str | None = None
    """With the update strategy OnDelete the template that new pods get, as the pods' labels name
    it: a pod of another one keeps its own until its owner deletes it. None: another strategy."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which workload a pod belongs to, and whether we may evict it."""

    workload: str
    """Such as `StatefulSet/foo`; empty when no workload owns it."""
    fixable: bool
    reason: str
    message: str


Lookup = Callable[[str, str], Owner | None]
"""Kind and name of an owner in the pod's namespace, to the owner; None when it is not there."""


def alive(pod: types.Pod) -> bool:
    """Tell whether the pod runs or will, so that it matters whether it has a sidecar."""
    return pod.status.phase not in ("Succeeded", "Failed")


def injected(pod: types.Pod) -> bool:
    """Tell whether the pod is in the mesh by containers of its own, whoever has added them.

    A proxy with the image `auto` is what the pod customises: the injector has not filled it in.
    The injector's annotation counts only if every container that it lists is there; some
    templates, such as grpc-simple, add no proxy.
    """
    containers = [
        each.name
        for each in (*pod.spec.containers, *pod.spec.initContainers)
        if each.image != names.AUTO_IMAGE
    ]
    if names.PROXY in containers:
        return True
    added = injector_status.read(pod).added
    return bool(added) and added.issubset(containers)


def in_mesh(pod: types.Pod, scope: Scope) -> bool:
    """Tell whether the pod is in the mesh the way its model is: with a sidecar, or without.

    Istio's node agent leaves a pod alone that the injector has been at (istio cni/pkg/util,
    podutil.go), whatever its labels say. A proxy that nobody injected is a gateway's or somebody's
    own, and no matter of ours.
    """
    if scope.data_plane != "ambient":
        return injected(pod)
    has_leftover = names.SIDECAR_STATUS in pod.metadata.annotations
    return _ambient_says(pod.metadata, scope) == "ambient" and not has_leftover


def _ambient_says(meta: types.ObjectMeta, scope: Scope) -> str | None:
    """Return what Istio's node agent goes by: the pod's label, or its namespace's."""
    return meta.labels.get(names.DATAPLANE_MODE, scope.namespace_labels.get(names.DATAPLANE_MODE))


def displaced(pod: types.Pod) -> str:
    """Return the container that the pod's controller expects to be the first, where it is not."""
    first = first_container.addressed(pod)
    return first if first is not None and pod.spec.containers[0].name != first else ""


def switched_off(meta: types.ObjectMeta) -> bool:
    """Tell whether convergence is disabled on an object, by annotation or by label."""
    return "disabled" in (
        meta.annotations.get(names.RESTART_PODS),
        meta.labels.get(names.RESTART_PODS),
    )


def wanted(pod: types.Pod, scope: Scope) -> Wanted:
    """Tell whether this pod would be in the mesh as its model is if it were created now."""
    if (outside := _outside(pod, scope)) is not None:
        return outside
    if scope.data_plane == "ambient":
        return _by_ambient(pod, scope)
    return _without_sidecar(pod, scope) or _by_namespace(pod, scope)


def _outside(pod: types.Pod, scope: Scope) -> Wanted | None:
    """Return why this pod stays outside of the mesh whatever its namespace says."""
    labels = pod.metadata.labels
    if pod.spec.hostNetwork:
        return _no(Reason.HOST_NETWORK, "pods on the host's network are never in the mesh")
    node = pod.spec.os.name if pod.spec.os else pod.spec.nodeSelector.get(names.NODE_OS)
    if node == "windows":
        return _no(Reason.WINDOWS, "Istio has no sidecar for Windows")
    if _is_ours(pod.metadata, scope):
        return _no(Reason.INTEGRATOR_ITSELF, "the integrator's own pods stay outside")
    if names.is_modeloperator(labels):
        return _no(Reason.MODEL_OPERATOR, "Juju's modeloperator stays outside")
    if selectors.matches(scope.excluded, labels):
        return _no(Reason.EXCLUDED, "it matches excluded-pods")
    return None


def _no(reason: Reason, message: str) -> Wanted:
    return Wanted(False, reason, message)


def _by_ambient(pod: types.Pod, scope: Scope) -> Wanted:
    """Follow the selectors of Istio's node agent, which has no say over sidecars."""
    labels = pod.metadata.labels
    # Such a pod gets its sidecar from the injector in whatever namespace says nothing to it.
    if labels.get(names.INJECT) == "true" or names.REVISION in labels:
        return _no(Reason.POD_INJECTION, "the pod asks for a sidecar itself")
    says = _ambient_says(pod.metadata, scope)
    if says == "ambient":
        why = f"it is in ambient mode by {names.DATAPLANE_MODE}=ambient"
        if names.SIDECAR_STATUS in pod.metadata.annotations:
            return Wanted(True, Reason.SIDECAR_LEFT, f"{why}, and still has a sidecar")
        return Wanted(True, Reason.AMBIENT, why)
    if names.DATAPLANE_MODE in labels:
        return _no(Reason.OUT_OF_AMBIENT, f"the pod says {names.DATAPLANE_MODE}={says}")
    return _by_selection(labels, scope)


def _without_sidecar(pod: types.Pod, scope: Scope) -> Wanted | None:
    """Return why this pod gets no sidecar whatever its namespace says to the injector."""
    meta = pod.metadata
    # The label is the newer interface: istiod looks at the annotation only without it.
    if meta.labels.get(names.INJECT, meta.annotations.get(names.INJECT)) == "false":
        return _no(Reason.INJECTION_DISABLED, f"the pod says {names.INJECT}=false")
    is_redirected = meta.annotations.get(names.AMBIENT_REDIRECTION) == "enabled"
    if is_redirected or _ambient_says(meta, scope) == "ambient":
        return _no(Reason.AMBIENT, "it is in the mesh by ambient mode")
    return None


def _is_ours(meta: types.ObjectMeta, scope: Scope) -> bool:
    if names.COMPONENT in meta.labels:
        return True
    return (
        meta.labels.get(names.NAME) == scope.application != ""
        and (meta.namespace or scope.model) == scope.model
    )


def _by_namespace(pod: types.Pod, scope: Scope) -> Wanted:
    """Follow the selectors of Istio's injector webhooks."""
    labels = scope.namespace_labels
    if (says := labels.get(names.INJECTION)) is not None:
        said = f"its namespace says {names.INJECTION}={says}"
        if says == "enabled":
            return Wanted(True, Reason.NAMESPACE_INJECTION, said)
        return _no(Reason.NAMESPACE_DISABLED, said)
    if revision := labels.get(names.REVISION):
        return _by_revision(revision, scope, "its namespace")
    labels = pod.metadata.labels
    if revision := labels.get(names.REVISION):
        return _by_revision(revision, scope, "the pod")
    if labels.get(names.INJECT) == "true":
        return Wanted(True, Reason.POD_INJECTION, f"the pod says {names.INJECT}=true")
    return _by_selection(labels, scope)


def _by_selection(labels: Mapping[str, str], scope: Scope) -> Wanted:
    if scope.membership != "selected":
        return _no(Reason.NAMESPACE_OUTSIDE, "its namespace has no label of the mesh")
    if selectors.matches(scope.included, labels):
        return Wanted(True, Reason.INCLUDED, "it matches included-pods")
    return _no(Reason.NOT_INCLUDED, "it does not match included-pods")


def _by_revision(revision: str, scope: Scope, who: str) -> Wanted:
    said = f"{who} says {names.REVISION}={revision}"
    if scope.mesh_revision and revision != scope.mesh_revision:
        return _no(Reason.OTHER_REVISION, f"{said}, which is not {scope.mesh_revision}")
    return Wanted(True, Reason.REVISION, said)


def ownership(pod: types.Pod, scope_disabled: bool, lookup: Lookup) -> Ownership:
    """Tell whether the pod is ours to evict, so that its workload makes one with a sidecar."""
    reference = controller(pod.metadata.ownerReferences)
    if reference is None:
        return Ownership("", False, Reason.BARE_POD, "nothing would create it again")
    owner = _found(reference, lookup)
    if owner is not None and reference.kind == "ReplicaSet":
        reference = controller(owner.owners) or reference
        owner = _found(reference, lookup)
    name = f"{reference.kind}/{reference.name}"
    reasons = _not_ours(pod, name, reference, owner, scope_disabled)
    reason, message = next(reasons, ("", ""))
    return Ownership(name, not reason, reason, message)


def controller(
    references: tuple[types.OwnerReference, ...] | list[types.OwnerReference],
) -> types.OwnerReference | None:
    """Return the owner that manages the object, if there is one."""
    return next((each for each in references if each.controller), None)


def _found(reference: types.OwnerReference, lookup: Lookup) -> Owner | None:
    if not reference.apiVersion.startswith("apps/"):
        return None
    owner = lookup(reference.kind, reference.name)
    return owner if owner is not None and owner.uid == reference.uid else None


def _not_ours(
    pod: types.Pod,
    name: str,
    reference: types.OwnerReference,
    owner: Owner | None,
    scope_disabled: bool,
) -> Iterator[tuple[Reason, str]]:
    """Yield why a pod with this owner is not evicted."""
    if reference.kind == "Job":
        yield Reason.RUNS_TO_COMPLETION, "it runs to completion"
    is_of_apps = reference.apiVersion.startswith("apps/")
    if not is_of_apps or (owner is not None and reference.kind not in WORKLOAD_KINDS):
        message = f"{reference.kind} is no Deployment, StatefulSet or DaemonSet"
        yield Reason.OTHER_OWNER, message
    if owner is None:
        yield Reason.OWNER_UNKNOWN, f"{name} was not found"
        return
    # A namespace as owner only means that the object goes with it.
    above = next((each for each in owner.owners if each.kind != "Namespace"), None)
    if above is not None:
        yield Reason.OWNED_FURTHER_UP, f"{name} belongs to {above.kind} {above.name}"
    by_pod = switched_off(pod.metadata)
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
