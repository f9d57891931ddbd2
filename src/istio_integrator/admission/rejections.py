"""Rejections by other teams' admission control, found by the workload's dry runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from integrator_contract import rejections
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Said
from istio_integrator.situation import situation

OPTIONS: Mapping[str, str] = {
    "hold": "hold-application=false",
    "native": "job-sidecars=classic",
    "ports": "excluded-outbound-ports=",
    "annotations": "pod-annotations=",
    "labels": "pod-labels=",
    "images": "image-registries=",
}
"""Options that turn off a change of admission; the other changes keep pods outside of the mesh."""


def read(scope: situation.Situation) -> rejections.Rejections:
    """Read the rejections of the workload's last dry runs; empty before the first."""
    name = rejections.config_map(scope.application)
    found = scope.manifests.own(cluster.CONFIG_MAP, name)
    text = str(cluster.at(found, "data").get(rejections.KEY) or "{}")
    try:
        return msgspec.json.decode(text, type=rejections.Rejections)
    except (ValueError, RecursionError):
        return rejections.Rejections()


def messages(found: rejections.Rejections, *, application: str) -> Iterable[Message]:
    """Return messages about the changes that are left out, and who rejects them."""
    by_author: dict[str, list[str]] = {}
    for change, refusal in sorted(found.changes.items()):
        by_author.setdefault(refusal.author, []).append(change)
    for author, changes in by_author.items():
        yield Said.CHANGES_FORBIDDEN(
            author=author, changes=", ".join(changes), application=application
        )
