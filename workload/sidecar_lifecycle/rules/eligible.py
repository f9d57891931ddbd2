"""Should this pod have a sidecar, has it one, and is it ours to replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from sidecar_lifecycle import names
from sidecar_lifecycle.kube import types

from . import selectors

Membership = Literal["namespace", "selected", "none"]

NOTHING = selectors.Selector()

INJECTION = "istio-injection"
DATAPLANE = "istio.io/dataplane-mode"
AMBIENT_ENROLLED = "ambient.istio.io/redirection"
WORKLOAD_KINDS = ("StatefulSet", "Deployment", "DaemonSet")
"""Owners of apps/v1 that create a new pod at once when one is evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What decides about a pod's sidecar beside the pod itself."""

    namespace_labels: Mapping[str, str]
    model: str = ""
    application: str = ""
    """Our own: its pods stay outside of the mesh."""
    revision: str = ""
    """The value of `istio.io/rev` that means the istiod in use; empty accepts any."""
    membership: Membership = "namespace"
    included: selectors.Selector = NOTHING
    excluded: selectors.Selector = NOTHING


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whether a pod should have a sidecar, and why."""

    wanted: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Owner:
    """What owns pods, or owns their owner."""

    uid: str
    owners: tuple[types.OwnerReference, ...] = ()
    disabled: bool = False
    """Convergence is switched off on the object itself."""


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
    """Tell whether the pod is in the mesh with a proxy of its own, of whichever kind."""
    if pod.metadata.annotations.get(names.SIDECAR_STATUS):
        return True
    spec = pod.spec
    return any(each.name == names.PROXY for each in (*spec.containers, *spec.initContainers))


def switched_off(meta: types.ObjectMeta) -> bool:
    """Tell whether convergence is disabled on an object, by annotation or by label."""
    return "disabled" in (
        meta.annotations.get(names.CONVERGENCE),
        meta.labels.get(names.CONVERGENCE),
    )


def wanted(pod: types.Pod, scope: Scope) -> Wanted:
    """Tell whether the injector would give this pod a sidecar if it were created now."""
    return _outside(pod, scope) or _by_namespace(pod, scope)


def _outside(pod: types.Pod, scope: Scope) -> Wanted | None:
    """Return why this pod stays outside of the mesh whatever its namespace says."""
    meta = pod.metadata
    # The label is the newer interface: istiod looks at the annotation only without it.
    inject = meta.labels.get(names.INJECT, meta.annotations.get(names.INJECT))
    cases = (
        (pod.spec.hostNetwork, "HostNetwork", "pods on the host's network are never injected"),
        (_is_ours(meta, scope), "IntegratorItself", "the integrator's own pods stay outside"),
        (_is_modeloperator(meta), "ModelOperator", "Juju's modeloperator stays outside"),
        (scope.excluded.matches(meta.labels), "Excluded", "it matches excluded-pods"),
        (inject == "false", "InjectionDisabled", f"the pod says {names.INJECT}=false"),
        (
            _is_ambient(meta, scope.namespace_labels),
            "Ambient",
            "it is in the mesh by ambient mode",
        ),
    )
    return next((Wanted(False, reason, why) for holds, reason, why in cases if holds), None)


def _is_ours(meta: types.ObjectMeta, scope: Scope) -> bool:
    if names.COMPONENT in meta.labels:
        return True
    return (
        meta.labels.get("app.kubernetes.io/name") == scope.application != ""
        and (meta.namespace or scope.model) == scope.model
    )


def _is_modeloperator(meta: types.ObjectMeta) -> bool:
    return (
        meta.labels.get("operator.juju.is/name") == "modeloperator"
        or meta.labels.get("juju-modeloperator") == "modeloperator"
    )


def _is_ambient(meta: types.ObjectMeta, namespace_labels: Mapping[str, str]) -> bool:
    if meta.annotations.get(AMBIENT_ENROLLED) == "enabled":
        return True
    mode = meta.labels.get(DATAPLANE, namespace_labels.get(DATAPLANE))
    return mode == "ambient"


def _by_namespace(pod: types.Pod, scope: Scope) -> Wanted:
    """Follow the selectors of Istio's injector webhooks."""
    labels = scope.namespace_labels
    if INJECTION in labels:
        if labels[INJECTION] == "enabled":
            return Wanted(True, "NamespaceInjection", f"its namespace says {INJECTION}=enabled")
        return Wanted(
            False, "NamespaceDisabled", f"its namespace says {INJECTION}={labels[INJECTION]}"
        )
    if revision := labels.get(names.REVISION):
        return _by_revision(revision, scope, "its namespace")
    return _by_pod(pod, scope)


def _by_pod(pod: types.Pod, scope: Scope) -> Wanted:
    labels = pod.metadata.labels
    if revision := labels.get(names.REVISION):
        return _by_revision(revision, scope, "the pod")
    if labels.get(names.INJECT) == "true":
        return Wanted(True, "PodInjection", f"the pod says {names.INJECT}=true")
    if scope.membership == "selected":
        if scope.included.matches(labels):
            return Wanted(True, "Included", "it matches included-pods")
        return Wanted(False, "NotIncluded", "it does not match included-pods")
    return Wanted(False, "NamespaceOutside", "its namespace has no injection label")


def _by_revision(revision: str, scope: Scope, who: str) -> Wanted:
    said = f"{who} says {names.REVISION}={revision}"
    if scope.revision and revision != scope.revision:
        return Wanted(False, "OtherRevision", f"{said}, which is not {scope.revision}")
    return Wanted(True, "Revision", said)


def ownership(pod: types.Pod, scope_disabled: bool, lookup: Lookup) -> Ownership:
    """Tell whether the pod is ours to evict, so that its workload makes one with a sidecar.

    Args:
        pod: the pod.
        scope_disabled: whether convergence is switched off for its namespace.
        lookup: finds the owners.
    """
    found = _workload(pod, lookup)
    if not found.fixable:
        return found
    if pod.spec.restartPolicy != "Always":
        return _not_ours(found.workload, "RunsToCompletion", "it runs to completion")
    if scope_disabled:
        return _not_ours(found.workload, "ConvergenceDisabled", "switched off on its namespace")
    if switched_off(pod.metadata):
        return _not_ours(found.workload, "ConvergenceDisabled", "switched off on the pod")
    return found


def _not_ours(workload: str, reason: str, message: str) -> Ownership:
    return Ownership(workload, False, reason, message)


def controller(
    references: tuple[types.OwnerReference, ...] | list[types.OwnerReference],
) -> types.OwnerReference | None:
    """Return the owner that manages the object, if there is one."""
    return next((each for each in references if each.controller), None)


def _workload(pod: types.Pod, lookup: Lookup) -> Ownership:
    reference = controller(pod.metadata.ownerReferences)
    if reference is None:
        return _not_ours("", "BarePod", "nothing would create it again")
    if reference.kind == "Job":
        name = f"Job/{reference.name}"
        return _not_ours(name, "RunsToCompletion", "it runs to completion")
    if _is_apps(reference, "ReplicaSet"):
        owner = lookup(reference.kind, reference.name)
        if owner is None or owner.uid != reference.uid:
            return _unknown(reference)
        above = controller(owner.owners)
        if above is None or not _is_apps(above, "Deployment"):
            return _other(above or reference)
        reference = above
    if not any(_is_apps(reference, kind) for kind in WORKLOAD_KINDS):
        return _other(reference)
    return _of_workload(reference, lookup)


def _of_workload(reference: types.OwnerReference, lookup: Lookup) -> Ownership:
    name = f"{reference.kind}/{reference.name}"
    owner = lookup(reference.kind, reference.name)
    if owner is None or owner.uid != reference.uid:
        return _unknown(reference)
    # A namespace as owner only means that the object goes with it.
    above = next((each for each in owner.owners if each.kind != "Namespace"), None)
    if above is not None:
        return _not_ours(name, "OwnedFurtherUp", f"{name} belongs to {above.kind} {above.name}")
    if owner.disabled:
        return _not_ours(name, "ConvergenceDisabled", f"switched off on {name}")
    return Ownership(name, True, "", "")


def _is_apps(reference: types.OwnerReference, kind: str) -> bool:
    return reference.kind == kind and reference.apiVersion.startswith("apps/")


def _other(reference: types.OwnerReference) -> Ownership:
    name = f"{reference.kind}/{reference.name}"
    return _not_ours(name, "OtherOwner", f"{reference.kind} is not a workload that we replace")


def _unknown(reference: types.OwnerReference) -> Ownership:
    name = f"{reference.kind}/{reference.name}"
    return _not_ours(name, "OwnerUnknown", f"{name} was not found")
