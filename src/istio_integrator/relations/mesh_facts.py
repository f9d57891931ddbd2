"""Which Istio there is: what a charmed one says of itself, and what other charms learn from us."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from istio_integrator.relations import endpoints, kubeflow

logger = logging.getLogger(__name__)

ISTIO_METADATA = "istio-metadata"
MESH_INFO = "mesh-info"


def root_namespace(related: endpoints.Relations) -> str:
    """Read where a charmed Istio says that it is (`istio_metadata`); empty where none does."""
    for bag in related.bags(ISTIO_METADATA):
        named = bag.content.get("root_namespace", "")
        if kubeflow.DNS_LABEL.fullmatch(named):
            return named
        if named:
            logger.warning("%s says no namespace: %r.", bag.application, named[:80])
    return ""


def publish(related: endpoints.Relations, facts: Mapping[str, str]) -> None:
    """Tell which mesh the model belongs to (`istio_mesh_info`).

    Args:
        related: Our relations.
        facts: As `mesh_info.MeshInfo.write` has them; what is left out stays as it was told.
    """
    related.write(MESH_INFO, facts)
