"""Pods for dry runs, which show how the API server would create a workload's next pod.

The pod equals the one that Kubernetes' own controller creates (pkg/controller, GetPodFromTemplate;
statefulset/stateful_set_utils.go, newStatefulSetPod; daemon/util/daemonset_util.go,
CreatePodTemplate), so that webhooks and policies judge both alike.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from integrator_contract import dry_run, names
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.model import resources, types

SUFFIX = "-trial"
"""Suffix of the name of a StatefulSet's trial pod. The present pod has the real name, and to a
second pod of that name the API server answers 409 instead of the admitted pod. Only the name
differs: the host name, the labels and the claims are those of the real name."""

_CREATORS = ("ReplicaSet", "StatefulSet", "DaemonSet")
_LONGEST_NAME = 253
_ORDINAL = re.compile(r".*-(\d+)")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def find_creator(pod: types.Pod) -> types.OwnerReference | None:
    """Return the object whose controller creates the pod that replaces this one."""
    owner = eligible.find_controller(pod.metadata.ownerReferences)
    return owner if owner and owner.kind in _CREATORS else None


def make_pod_of(
    kind: str, owner: resources.Creator, replaced: types.Pod | None = None
) -> dict[str, Any]:
    """Return the pod that a controller creates next, for a CronJob that of its next Job.

    In a partitioned roll-out of a StatefulSet, pods below the partition keep the earlier template,
    which only a ControllerRevision has; the trial uses the new one. The pod of a CronJob or of an
    Indexed Job has no labels for its Job or index. Without `replaced` it is an additional pod.
    """
    pod = _copy_template(kind, owner)
    if kind == "StatefulSet":
        _add_identity(pod, owner, replaced)
    elif kind == "DaemonSet":
        _bind_to_node(pod, owner, replaced)
    return pod


def make_generic_pod(scope: eligible.Scope, own: types.Pod) -> dict[str, Any]:
    """Return a pod without mesh labels of its own: only the namespace's labels decide.

    It has the image and owner of this charm's own pod, so that policies about these admit it.
    """
    labels = scope.namespace_labels
    asked: dict[str, str] = {}
    if scope.data_plane == "ambient":
        asked = dict(names.AMBIENT)
    elif names.INJECTION not in labels and names.REVISION not in labels:
        by_revision = scope.mesh_revision not in ("", "default")
        asked = {names.REVISION: scope.mesh_revision} if by_revision else {names.INJECT: "true"}
    return make_own_pod(own, asked)


def make_own_pod(
    own: types.Pod, labels: Mapping[str, str], restart_policy: str = "Always"
) -> dict[str, Any]:
    """Return the dry-run pod of this charm with labels."""
    return dry_run.make_pod(msgspec.to_builtins(own), labels, restart_policy=restart_policy)


def _copy_template(kind: str, owner: resources.Creator) -> dict[str, Any]:
    template, name = owner.spec.template, owner.metadata.name
    if kind == "CronJob":
        kind, job = "Job", msgspec.convert(owner.spec.jobTemplate["spec"], resources.CreatorSpec)
        template = job.template
    tracking = (names.JOB_TRACKING,) if kind == "Job" else ()
    reference = types.OwnerReference(
        apiVersion="batch/v1" if kind == "Job" else "apps/v1",
        kind=kind,
        name=name,
        uid=owner.metadata.uid,
        controller=True,
        blockOwnerDeletion=True,
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-" if len(name) < _LONGEST_NAME else name,
            "labels": dict(template.metadata.labels),
            "annotations": dict(template.metadata.annotations),
            "finalizers": (*template.metadata.finalizers, *tracking),
            "ownerReferences": [reference],
        },
        "spec": dict(template.spec),
    }


def _add_identity(
    pod: dict[str, Any], owner: resources.Creator, replaced: types.Pod | None
) -> None:
    spec, status = owner.spec, owner.status
    found = _ORDINAL.fullmatch(replaced.metadata.name) if replaced else None
    ordinal = int(found[1]) if found else spec.ordinals.start + status.replicas
    is_earlier = ordinal < spec.ordinals.start + spec.updateStrategy.rollingUpdate.partition
    name = f"{owner.metadata.name}-{ordinal}"
    pod["metadata"]["name"] = f"{name}{SUFFIX}"
    pod["metadata"]["labels"] |= {
        names.POD_NAME: name,
        names.POD_INDEX: str(ordinal),
        names.REVISION_HASH: status.currentRevision if is_earlier else status.updateRevision,
    }
    claims = [each.metadata.name for each in spec.volumeClaimTemplates]
    volumes = [
        {"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in claims
    ]
    volumes += [each for each in pod["spec"].get("volumes") or () if each["name"] not in claims]
    pod["spec"] |= {"hostname": name, "subdomain": spec.serviceName, "volumes": volumes}


def _bind_to_node(
    pod: dict[str, Any], owner: resources.Creator, replaced: types.Pod | None
) -> None:
    spec = pod["spec"]
    tolerations: list[dict[str, Any]] = list(spec.get("tolerations") or ())
    taints = list(names.DAEMON_TAINTS)
    if spec.get("hostNetwork"):
        taints.append(names.HOST_NETWORK_TAINT)
    for key, effect in taints:
        # It replaces each toleration of the same taint, with any tolerationSeconds, as in
        # `Toleration.MatchToleration`.
        added = {"key": key, "operator": "Exists", "effect": effect}
        tolerations = [added if _drop_seconds(each) == added else each for each in tolerations]
        if added not in tolerations:
            tolerations.append(added)
    spec["tolerations"] = tolerations
    labels = pod["metadata"]["labels"]
    if generation := owner.metadata.annotations.get(resources.TEMPLATE_GENERATION):
        labels[names.TEMPLATE_GENERATION] = generation
    if replaced is None:
        return
    # The hash is of Go's representation of the template, so it is copied from the replaced pod.
    if revision := replaced.metadata.labels.get(names.REVISION_HASH):
        labels[names.REVISION_HASH] = revision
    affinity: dict[str, Any] = spec.get("affinity") or {}
    of_nodes: dict[str, Any] = affinity.get("nodeAffinity") or {}
    field = {"key": "metadata.name", "operator": "In", "values": [replaced.spec.nodeName]}
    before: dict[str, Any] = of_nodes.get(_REQUIRED) or {}
    required = {**before, "nodeSelectorTerms": [{"matchFields": [field]}]}
    spec["affinity"] = {**affinity, "nodeAffinity": {**of_nodes, _REQUIRED: required}}


def _drop_seconds(toleration: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def hide_from_webhook(pod: Mapping[str, Any], **more: str) -> dict[str, Any]:
    """Return the pod with the label that makes this charm's webhook ignore it, and `more`."""
    meta: dict[str, Any] = pod["metadata"]
    labels: dict[str, str] = {**(meta.get("labels") or {}), names.MESH_PROBE: "true", **more}
    return {**pod, "metadata": {**meta, "labels": labels}}


def apply_patch(pod: Mapping[str, Any], patch: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Apply a JSON patch that only sets values, as `mutate` makes them."""
    result: dict[str, Any] = copy.deepcopy(dict(pod))
    for operation in patch:
        *parents, last = (
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        )
        place: Any = result
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        place[int(last) if isinstance(place, list) else last] = operation["value"]
    return result
