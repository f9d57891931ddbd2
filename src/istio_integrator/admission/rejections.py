"""What admission control of other teams rejects, as the workload found it by dry runs."""

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
"""By which a change of admission is not asked for any more; the others keep pods outside."""


def read(scope: situation.Situation) -> rejections.Rejections:
    """Read what was rejected at the workload's last look; nothing if it has not looked yet."""
    name = rejections.config_map(scope.application)
    found = scope.manifests.own(cluster.CONFIG_MAP, name)
    text = str(cluster.at(found, "data").get(rejections.KEY) or "{}")
    try:
        return msgspec.json.decode(text, type=rejections.Rejections)
    except (ValueError, RecursionError):
        return rejections.Rejections()


def messages(found: rejections.Rejections, *, application: str) -> Iterable[Message]:
    """Say which changes are left out, and who forbids them."""
    by_author: dict[str, list[str]] = {}
    for change, refusal in sorted(found.changes.items()):
        by_author.setdefault(refusal.author, []).append(change)
    for author, changes in by_author.items():
        yield Said.CHANGES_FORBIDDEN(
            author=author, changes=", ".join(changes), application=application
        )
