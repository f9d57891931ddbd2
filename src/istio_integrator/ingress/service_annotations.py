"""Annotations on the gateway's Service, which is somebody else's: set, recorded and restored.

Which Services have some of ours, a ConfigMap in the model remembers. What a Service says about
itself counts on those alone, for anybody may write it on a Service of their own.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from integrator_contract import bounded, names
from istio_integrator import parts
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster, errors, owners, records
from istio_integrator.messages import Message, Said

logger = logging.getLogger(__name__)

FOLDER = "gateway-service"


_REFERENCE = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}/[a-z0-9][-a-z0-9.]{0,252}")


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


def remembered(found: cluster.Object | None, owner: str) -> list[str]:
    """Read which Services have annotations of ours, each `namespace/name`.

    Args:
        found: The ConfigMap that remembers them, if there is one.
        owner: This application, whose it has to be.
    """
    if cluster.at(found, "metadata", "labels").get(names.OWNER) != owner:
        return []
    try:
        value = bounded.read_json(str(cluster.at(found, "data").get("services", "[]")))
    except bounded.DocumentError as error:
        logger.warning(
            "The record of Services with annotations of this charm can't be read: it %s.", error
        )
        return []
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return [name for name in listed if isinstance(name, str) and _REFERENCE.fullmatch(name)]


class ServiceAnnotations:
    """Keeps the operator's annotations on the Service that the operator named."""

    def __init__(self, scope: parts.Context) -> None:
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
        if not wanted:
            return None
        found = self._scope.cluster.get(cluster.SERVICE, target.service, target.namespace)
        if found is None:
            return None
        self._remember([kept])
        return self._apply(found, wanted)

    def remove(self) -> None:
        """Restore whatever was set."""
        self._restore("")

    def _restore(self, kept: str) -> None:
        api = self._scope.cluster
        memory = self._scope.manifests.own(cluster.CONFIG_MAP, self._name)
        known = remembered(memory, self._scope.manifests.owner)
        for each in known:
            namespace, _, name = each.partition("/")
            if each != kept and (found := api.get(cluster.SERVICE, name, namespace)):
                self._apply(found, {})
        if memory is not None and known != [kept]:
            self._remember([kept] if kept in known else [])

    def _remember(self, services: Collection[str]) -> None:
        if services:
            context = {"name": self._name, "services": json.dumps(sorted(services))}
            self._scope.manifests.apply(FOLDER, context)
        else:
            self._scope.manifests.remove(FOLDER)

    def _apply(self, service: cluster.Object, wanted: Mapping[str, str]) -> Message | None:
        metadata = service["metadata"]
        owner = self._scope.manifests.owner
        live = cluster.at(service, "metadata", "annotations")
        is_gone = functools.partial(owners.is_gone, self._scope.cluster)
        patch = decide(live, wanted, owner, is_gone)
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
        try:
            self._scope.cluster.merge_patch(service, {"metadata": change})
        except errors.ConflictError:
            logger.info("%s changed meanwhile: the next try decides.", reference)
            raise
        logger.info("%s: annotations %s.", reference, sorted(patch))
        return None
