"""The pod that charm and workload create by dry run, to see how the mesh changes pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import names

NAME = "istio-integrator-dry-run"
"""The prefix of the pods' names."""


def make_pod(
    own: Mapping[str, Any],
    labels: Mapping[str, str],
    *,
    namespace: str = "",
    annotations: Mapping[str, str] | None = None,
    restart_policy: str = "Always",
) -> dict[str, Any]:
    """Return a pod that policies of the cluster admit as they admitted a unit's pod.

    It has the image and the controller of the unit's pod (`own`, empty if that is unknown), and
    meets every Pod Security standard. It sets no user: OpenShift assigns one for each namespace.
    """
    owners = [
        # On OpenShift, blockOwnerDeletion needs a permission on the owner's finalizers.
        {**each, "blockOwnerDeletion": False}
        for each in own.get("metadata", {}).get("ownerReferences", ())
        if each.get("controller") is True
    ]
    containers = own.get("spec", {}).get("containers", ())
    images = [each["image"] for each in containers if each["name"] == names.CHARM]
    least = {"cpu": "1m", "memory": "1Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{NAME}-",
            **({"namespace": namespace} if namespace else {}),
            "labels": dict(labels),
            "annotations": dict(annotations or {}),
            "ownerReferences": owners,
        },
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": restart_policy,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "dry-run",
                    "image": next(iter(images), "never-created.invalid/dry-run"),
                    "resources": {"requests": least, "limits": least},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
