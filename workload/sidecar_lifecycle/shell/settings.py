"""What `sidecar-lifecycle run` was told, or `uninjected`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from integrator_contract import names, namespaces, service
from sidecar_lifecycle.decide import eligible, finished, stale


@dataclass(frozen=True, kw_only=True)
class Settings(service.Options):
    """The options that the charm writes, and those of single commands."""

    log_level: str = "info"
    proxy: stale.Proxy = stale.UNKNOWN
    """What new pods get, to tell which ones have an old proxy."""

    def policy(
        self, *, namespace_enabled: bool = True, old_ends_count: bool = False
    ) -> finished.Policy:
        """Return what the rules need beside a pod."""
        return finished.Policy(
            **service.values(service.Rules, self),
            enabled=self.proxy_shutdown,
            namespace_enabled=namespace_enabled,
            old_ends_count=old_ends_count,
        )

    def scope(self, namespace_labels: Mapping[str, str]) -> eligible.Scope:
        """Return what the rules need to decide about a pod of the model."""
        return eligible.Scope(
            namespace_labels=namespace_labels, **service.values(service.Eligibility, self)
        )

    def served(self) -> namespaces.Served:
        """Return which namespaces are served."""
        return namespaces.Served(
            model=self.model,
            mesh_namespace=self.mesh_namespace,
            owner=names.owner(self.model, self.application),
            kinds=self.lifecycle_namespaces,
        )
