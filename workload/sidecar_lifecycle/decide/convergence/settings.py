"""What convergence is told by the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from integrator_contract import namespaces, pods, selectors
from sidecar_lifecycle.decide import eligible, stale

Mode = Literal["auto", "manual", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where convergence works, and how far it may go."""

    model: str
    application: str
    revision: str = ""
    """The value of `istio.io/rev` that means the istiod in use; empty: not known."""
    joined: bool = True
    """The model is in the mesh; before that, nothing is missing."""
    membership: pods.Membership = "namespace"
    included: selectors.Selector = selectors.NOTHING
    excluded: selectors.Selector = selectors.NOTHING
    mode: Mode = "auto"
    max_unavailable: int = 2
    """Workloads that may miss a pod because of us at the same time."""
    namespaces: namespaces.Served | None = None
    """Other namespaces, in which pods without a sidecar are reported only."""

    proxy: stale.Proxy = stale.UNKNOWN
    """What new pods get, to tell which ones have an old proxy."""

    def scope(self, namespace_labels: Mapping[str, str]) -> eligible.Scope:
        """Return what the rules need to decide about a pod of the model."""
        return eligible.Scope(
            namespace_labels=namespace_labels,
            model=self.model,
            application=self.application,
            revision=self.revision,
            membership=self.membership,
            included=self.included,
            excluded=self.excluded,
        )
