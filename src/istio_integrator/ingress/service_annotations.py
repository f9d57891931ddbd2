"""Annotations on the gateway's Service of another owner: set, recorded and restored.

The Record names the Service. An undo record in annotations is trusted only on that Service, since
any team can write such an annotation on its own Service.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from integrator_contract import names
from istio_integrator.asked import gateway
from istio_integrator.ingress.record import Record
from istio_integrator.kube import cluster, owners
from istio_integrator.messages import Message, Template
from istio_integrator.situation.situation import Situation

logger = logging.getLogger(__name__)


def apply(situation: Situation, target: gateway.Target, kept: Record) -> Message | None:
    """Set the operator's annotations on the gateway's Service, and restore the previous one."""
    wanted = situation.config.gateway_service_annotations
    reference = target.reference if wanted else ""
    if kept.annotated_service != reference:
        remove(situation, kept)
    kept.annotated_service = reference
    return _annotate(situation, reference, wanted)


def remove(situation: Situation, kept: Record) -> None:
    """Restore the Service that was annotated."""
    _annotate(situation, kept.annotated_service, {})


def _annotate(situation: Situation, reference: str, wanted: Mapping[str, str]) -> Message | None:
    """Set the wanted annotations on a Service; if empty, restore its original annotations."""
    namespace, _, name = reference.partition("/")
    service = situation.cluster.get(cluster.SERVICE, name, namespace) if name else None
    if service is None:
        return None
    metadata, owner = service["metadata"], situation.manifests.owner
    shown, live = cluster.reference(service), cluster.at(metadata, "annotations")
    record = owners.UndoRecord.read(live.get(names.ANNOTATIONS)) or owners.UndoRecord(
        owner, {}, {}
    )
    if record.owner != owner and not owners.is_gone(situation.cluster, record.owner):
        problem = f"its annotations are managed by {record.owner}"
        return Template.ANNOTATIONS_REFUSED(service=shown, problem=problem) if wanted else None
    before = dict(record.before)
    patch: dict[str, str | None] = {}
    for key in record.values.keys() - wanted.keys():
        # An annotation that another team has changed since then is not restored.
        if live.get(key) == record.values[key]:
            patch[key] = before.get(key)
        before.pop(key, None)
    for key, value in wanted.items():
        if key not in record.values:
            before[key] = live.get(key)
        if live.get(key) != value:
            patch[key] = value
    new = owners.UndoRecord(owner, dict(wanted), before).encode() if wanted else None
    if new != live.get(names.ANNOTATIONS):
        patch[names.ANNOTATIONS] = new
    if patch:
        change = {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": patch,
            "labels": {names.ANNOTATED_BY: owner if wanted else None},
        }
        situation.cluster.merge_patch(service, {"metadata": change})
        logger.info("%s: annotations %s.", shown, sorted(patch))
    return None
