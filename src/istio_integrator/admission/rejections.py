"""Rejections by other teams' admission control, found by the workload's dry runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from integrator_contract import rejections
from istio_integrator import error_messages
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Said
from istio_integrator.situation.situation import Situation

_OPTIONS: Mapping[str, str] = {
    "hold": "hold-application=false",
    "native": "job-sidecars=classic",
    "ports": "excluded-outbound-ports=",
    "annotations": "pod-annotations=",
    "labels": "pod-labels=",
    "images": "image-registries=",
}
"""Options that turn off a change of admission; the other changes keep pods outside of the mesh."""


def read(situation: Situation) -> rejections.Rejections:
    """Read the rejections of the workload's last dry runs; empty before the first."""
    name = rejections.config_map(situation.application)
    found = situation.manifests.own(cluster.CONFIG_MAP, name)
    text = str(cluster.at(found, "data").get(rejections.KEY) or "{}")
    try:
        return msgspec.json.decode(text, type=rejections.Rejections)
    except (ValueError, RecursionError):
        return rejections.Rejections()


def messages(found: rejections.Rejections, situation: Situation) -> Iterable[Message]:
    """Return messages about the changes that are left out, and who rejects them."""
    for change, refusal in sorted(found.changes.items()):
        command = error_messages.look_at(refusal, situation.model)
        if option := _OPTIONS.get(change):
            command = f"juju config {situation.application} {option}"
        yield Said.CHANGE_FORBIDDEN(
            author=refusal.author,
            change=change,
            command=command,
            words=refusal.words,
            namespace=situation.model,
        )
