"""Annotations on the gateway's Service, which is somebody else's: set, recorded and restored."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping

import cluster
import component
import errors
import gateway
import manifests
import owners

logger = logging.getLogger(__name__)

RECORD = f"{manifests.PREFIX}annotations"
"""The annotation in which a Service remembers what was set on it, and by whom."""
MARK = f"{manifests.PREFIX}annotated-by"
"""The label by which Services with a record are found."""


def decide(
    live: Mapping[str, str],
    wanted: Mapping[str, str],
    owner: str,
    is_gone: Callable[[str], bool] = lambda _: False,
) -> dict[str, str | None] | str:
    """Decide what to change of a Service's annotations.

    Args:
        live: All annotations that it has.
        wanted: What the operator wants; none: everything as it was before.
        owner: This application.
        is_gone: Whether another application is no more, so that its record becomes ours.

    Returns:
        A merge patch of the annotations, empty where all is well, or what forbids it.
    """
    record = _read(live)
    if record and record["owner"] != owner and not is_gone(record["owner"]):
        return f"its annotations are in the care of {record['owner']}" if wanted else {}
    ours: dict[str, str] = record["set"] if record else {}
    before: dict[str, str | None] = dict(record["before"]) if record else {}
    patch: dict[str, str | None] = {}
    for key in ours.keys() - wanted.keys():
        # What somebody changed since is theirs now.
        if live.get(key) == ours[key]:
            patch[key] = before.get(key)
        before.pop(key, None)
    for key, value in wanted.items():
        if key not in ours:
            before[key] = live.get(key)
        if live.get(key) != value:
            patch[key] = value
    written = json.dumps({"owner": owner, "set": dict(wanted), "before": before}, sort_keys=True)
    new = written if wanted else None
    if new != live.get(RECORD):
        patch[RECORD] = new
    return patch


def _read(annotations: Mapping[str, str]) -> cluster.Object | None:
    try:
        value = json.loads(annotations[RECORD])
        return {"owner": str(value["owner"]), "set": value["set"], "before": value["before"]}
    except (KeyError, TypeError, ValueError):
        return None


class GatewayService:
    """Keeps the operator's annotations on the Service that the operator named."""

    def __init__(self, scope: component.Scope) -> None:
        self._scope = scope

    def reconcile(self, target: gateway.Target) -> str:
        """Set them, and restore Services that are not the gateway's any more.

        Returns:
            What forbids it; empty where nothing does.
        """
        wanted = self._scope.config.gateway_service_annotations
        kept = (target.namespace, target.service) if wanted else None
        self._restore(kept)
        if not wanted:
            return ""
        found = self._scope.cluster.get(cluster.SERVICE, target.service, target.namespace)
        if found is None:
            return ""
        return self._apply(found, wanted)

    def remove(self) -> None:
        """Restore whatever was set."""
        self._restore(None)

    def _restore(self, kept: tuple[str, str] | None) -> None:
        labels = {MARK: self._scope.manifests.owner}
        for service in self._scope.cluster.list(cluster.SERVICE, labels=labels):
            metadata = service["metadata"]
            if (metadata["namespace"], metadata["name"]) != kept:
                self._apply(service, {})

    def _apply(self, service: cluster.Object, wanted: Mapping[str, str]) -> str:
        metadata = service["metadata"]
        owner = self._scope.manifests.owner
        live = cluster.at(service, "metadata", "annotations")
        is_gone = functools.partial(owners.is_gone, self._scope.cluster)
        patch = decide(live, wanted, owner, is_gone)
        reference = cluster.reference(service)
        if isinstance(patch, str):
            return f"gateway-service-annotations: {reference}: {patch}"
        if not patch:
            return ""
        change = {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": patch,
            "labels": {MARK: owner if wanted else None},
        }
        try:
            self._scope.cluster.merge_patch(service, {"metadata": change})
        except errors.ConflictError:
            logger.info("%s changed meanwhile: the next try decides.", reference)
            raise
        logger.info("%s: annotations %s.", reference, sorted(patch))
        return ""
