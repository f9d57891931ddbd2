"""Annotations on the gateway's Service, which is somebody else's: set, recorded and restored.

The record of the ingress names the Service. What a Service says about itself counts on that one
alone, for anybody may write it on a Service of their own.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping

from integrator_contract import names
from istio_integrator.ingress import gateway
from istio_integrator.ingress.record import Record
from istio_integrator.kube import cluster, owners, records
from istio_integrator.messages import Message, Said
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)


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
    new = records.Record(owner, dict(wanted), before).written() if wanted else None
    if new != live.get(names.ANNOTATIONS):
        patch[names.ANNOTATIONS] = new
    return patch


def apply(scope: situation.Situation, target: gateway.Target, kept: Record) -> Message | None:
    """Set the operator's annotations on the gateway's Service, and restore the Service before.

    Returns:
        What forbids it; None: nothing.
    """
    wanted = scope.config.gateway_service_annotations
    reference = f"{target.namespace}/{target.service}" if wanted else ""
    if kept.annotated != reference:
        remove(scope, kept)
    kept.annotated = reference
    return _change(scope, reference, wanted)


def remove(scope: situation.Situation, kept: Record) -> None:
    """Restore the Service that was annotated."""
    _change(scope, kept.annotated, {})


def _change(
    scope: situation.Situation, reference: str, wanted: Mapping[str, str]
) -> Message | None:
    namespace, _, name = reference.partition("/")
    service = scope.cluster.get(cluster.SERVICE, name, namespace) if name else None
    if service is None:
        return None
    metadata, owner = service["metadata"], scope.manifests.owner
    live = cluster.at(metadata, "annotations")
    patch = decide(live, wanted, owner, functools.partial(owners.is_gone, scope.cluster))
    shown = cluster.reference(service)
    if isinstance(patch, str):
        return Said.ANNOTATIONS_REFUSED(service=shown, problem=patch)
    if patch:
        change = {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": patch,
            "labels": {names.ANNOTATED_BY: owner if wanted else None},
        }
        scope.cluster.merge_patch(service, {"metadata": change})
        logger.info("%s: annotations %s.", shown, sorted(patch))
    return None
