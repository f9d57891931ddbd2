"""What `sidecar-lifecycle run` was told."""

from __future__ import annotations

from dataclasses import dataclass

from integrator_contract import names, namespaces, service
from sidecar_lifecycle.decide import finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(service.Options):
    """The options of `run`: those that the charm writes, and what is for whoever tries it."""

    kubeconfig: str | None = None
    log_level: str = "info"

    def policy(
        self, *, namespace_enabled: bool = True, clock_stepped: bool = False
    ) -> finished.Policy:
        """Return what the rules need beside a pod."""
        return finished.Policy(
            wait_for=self.wait_for_containers,
            ignore=self.ignore_containers,
            status_port=self.status_port,
            enabled=self.proxy_shutdown,
            namespace_enabled=namespace_enabled,
            clock_stepped=clock_stepped,
        )

    def served(self) -> namespaces.Served:
        """Return which namespaces are served."""
        return namespaces.Served(
            model=self.model,
            mesh_namespace=self.mesh_namespace,
            owner=names.owner(self.model, self.application),
            kinds=self.lifecycle_namespaces,
        )
