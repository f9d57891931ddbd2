"""Where a charmed Istio says that it is."""

from __future__ import annotations

import logging

from istio_integrator.relations import endpoints, kubeflow

logger = logging.getLogger(__name__)

ISTIO_METADATA = "istio-metadata"


def root_namespace(related: endpoints.Relations) -> str:
    """Read where a charmed Istio says that it is (`istio_metadata`); empty where none does."""
    for bag in related.bags(ISTIO_METADATA):
        named = bag.content.get("root_namespace", "")
        if kubeflow.DNS_LABEL.fullmatch(named):
            return named
        if named:
            logger.warning("%s says no namespace: %r.", bag.application, named[:80])
    return ""
