"""Annotations on the gateway's Service, which is somebody else's: set, recorded and restored.

A ConfigMap in the model remembers which Service has some of ours. What a Service says about itself
counts on that one alone, for anybody may write it on a Service of their own.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Mapping

from integrator_contract import names
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster, owners, records
from istio_integrator.messages import Message, Said
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)

FOLDER = "gateway-service"
_REFERENCE = re.compile(r"[a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*")


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
    record = records.Record.read(live.get(names.ANNOTATIONS))
    if record and record.owner != owner and not is_gone(record.owner):
        return f"its annotations are managed by {record.owner}" if wanted else {}
    ours: Mapping[str, str] = record.values if record else {}
    before = dict(record.before) if record else {}
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
    new = records.Record(owner, wanted, before).written() if wanted else None
    if new != live.get(names.ANNOTATIONS):
        patch[names.ANNOTATIONS] = new
    return patch


class ServiceAnnotations:
    """Keeps the operator's annotations on the Service that the operator named."""

    def __init__(self, scope: situation.Situation) -> None:
        self._scope = scope
        self._name = owners.object_name(scope.application, FOLDER)

    def reconcile(self, target: gateway.Target) -> Message | None:
        """Set them, and restore Services that are not the gateway's any more.

        Returns:
            What forbids it; None: nothing.
        """
        wanted = self._scope.config.gateway_service_annotations
        kept = f"{target.namespace}/{target.service}" if wanted else ""
        self._restore(kept)
        found = self._find(kept) if wanted else None
        if found is None:
            return None
        self._scope.manifests.apply(FOLDER, {"name": self._name, "service": kept})
        return self._apply(found, wanted)

    def remove(self) -> None:
        """Restore whatever was set."""
        self._restore("")

    def _restore(self, kept: str) -> None:
        memory = self._scope.manifests.own(cluster.CONFIG_MAP, self._name)
        known = _REFERENCE.findall(str(cluster.at(memory, "data").get("services", "")))
        for each in known:
            if each != kept and (found := self._find(each)):
                self._apply(found, {})
        if memory is not None and known != [kept]:
            self._scope.manifests.remove(FOLDER)

    def _find(self, reference: str) -> cluster.Object | None:
        namespace, _, name = reference.partition("/")
        return self._scope.cluster.get(cluster.SERVICE, name, namespace)

    def _apply(self, service: cluster.Object, wanted: Mapping[str, str]) -> Message | None:
        metadata, owner = service["metadata"], self._scope.manifests.owner
        live = cluster.at(metadata, "annotations")
        patch = decide(live, wanted, owner, functools.partial(owners.is_gone, self._scope.cluster))
        reference = cluster.reference(service)
        if isinstance(patch, str):
            return Said.ANNOTATIONS_REFUSED(service=reference, problem=patch)
        if not patch:
            return None
        change = {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": patch,
            "labels": {names.ANNOTATED_BY: owner if wanted else None},
        }
        self._scope.cluster.merge_patch(service, {"metadata": change})
        logger.info("%s: annotations %s.", reference, sorted(patch))
        return None
