"""Pods for dry-run creations: would the next pod of this workload get a sidecar?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from integrator_contract import names
from sidecar_lifecycle.decide import eligible

_PREFIX = "istio-integrator-trial-"


def of_workload(workload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod that a workload's controller would create, as far as admission cares.

    Args:
        workload: a Deployment, StatefulSet or DaemonSet as the API sends it.
    """
    spec: dict[str, Any] = workload["spec"]
    template: dict[str, Any] = spec["template"]
    meta: dict[str, Any] = template.get("metadata") or {}
    pod: dict[str, Any] = dict(template["spec"])
    claims: list[dict[str, Any]] = spec.get("volumeClaimTemplates") or []
    if claims:
        volumes: list[dict[str, Any]] = pod.get("volumes") or []
        # The claims themselves do not matter to admission, but every mount needs its volume.
        extra: list[dict[str, Any]] = [
            {"name": each["metadata"]["name"], "emptyDir": {}} for each in claims
        ]
        pod["volumes"] = [*volumes, *extra]
    return _pod(meta.get("labels") or {}, meta.get("annotations") or {}, pod)


def generic(scope: eligible.Scope) -> dict[str, Any]:
    """Return a pod about which the namespace's labels alone decide, if they do."""
    labels = scope.namespace_labels
    own: dict[str, str] = {}
    if scope.data_plane == "ambient":
        own = dict(names.AMBIENT)
    elif names.INJECTION not in labels and names.REVISION not in labels:
        by_revision = scope.mesh_revision not in ("", "default")
        own = {names.REVISION: scope.mesh_revision} if by_revision else {names.INJECT: "true"}
    container = {
        "name": "trial",
        "image": "trial.invalid/trial",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return _pod(own, {}, {"containers": [container]})


def _pod(
    labels: Mapping[str, str], annotations: Mapping[str, str], spec: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": _PREFIX,
            "labels": dict(labels),
            "annotations": dict(annotations),
        },
        "spec": dict(spec),
    }
