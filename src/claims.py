"""Namespaces that several integrators could serve: each records the one that does."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterable

import ops

import cluster
import component
import errors
import owners
import policy

logger = logging.getLogger(__name__)

_PART_OF = "app.kubernetes.io/part-of"
_PROFILE = "kubeflow-profile"
_CONTROLLER = "controller.juju.is/id"
_NOUNS = ("namespace", "namespaces")


def group(namespace: cluster.Object, *, never: Collection[str]) -> str:
    """Tell as what a namespace beside the model's is served: `labelled`, `profiles` or not.

    Args:
        namespace: The namespace.
        never: Names of those that are not served whatever they say.
    """
    marks = cluster.at(namespace, "metadata", "labels")
    told = marks.get(policy.LIFECYCLE_LABEL)
    if "deletionTimestamp" in namespace["metadata"]:
        return ""
    if namespace["metadata"]["name"] in never or _CONTROLLER in marks or told == "disabled":
        return ""
    if told == "enabled":
        return "labelled"
    return "profiles" if marks.get(_PART_OF) == _PROFILE else ""


class Claims:
    """Labels the namespaces that this application serves beside its model."""

    def __init__(self, scope: component.Scope) -> None:
        self._scope = scope
        self._others: set[str] = set()
        self._left = 0

    def reconcile(self) -> None:
        """Claim what nobody serves, leave what another does, give back what is not wanted."""
        scope = self._scope
        found = scope.cluster.list(cluster.NAMESPACE)
        never = {scope.model, "kube-system", scope.mesh.namespace if scope.mesh else ""}
        self._others, self._left = set(), 0
        is_gone = functools.cache(functools.partial(owners.is_gone, scope.cluster))
        for namespace in found:
            kind = group(namespace, never=never)
            holder = cluster.at(namespace, "metadata", "labels").get(policy.SERVED_BY, "")
            wanted = kind in scope.config.lifecycle_namespaces
            if wanted and holder not in ("", self._owner) and not is_gone(holder):
                self._others.add(holder)
                self._left += 1
            elif wanted and holder != self._owner:
                self._mark(namespace, self._owner)
            elif not wanted and holder == self._owner:
                self._mark(namespace, None)

    def remove(self) -> None:
        """Give back every claim of ours."""
        found = self._scope.cluster.list(cluster.NAMESPACE, labels={policy.SERVED_BY: self._owner})
        for namespace in found:
            self._mark(namespace, None, forced=True)

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say what is left to others."""
        if self._left:
            others = ", ".join(sorted(self._others))
            yield ops.ActiveStatus(f"{self._left} {_NOUNS[self._left > 1]} left to {others}")

    @property
    def _owner(self) -> str:
        return self._scope.manifests.owner

    def _mark(self, namespace: cluster.Object, owner: str | None, *, forced: bool = False) -> None:
        if not (self._scope.leader or forced):
            return
        metadata = namespace["metadata"]
        if "deletionTimestamp" in metadata:
            return
        patch: cluster.Object = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "labels": {policy.SERVED_BY: owner},
            }
        }
        try:
            self._scope.cluster.merge_patch(namespace, patch)
        except errors.ForbiddenError as error:
            # One integrator needs no record, so the right to write it is optional.
            logger.info("Namespace %s is served without a record: %s", metadata["name"], error)
