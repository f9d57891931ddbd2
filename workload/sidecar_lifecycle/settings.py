"""What `sidecar-lifecycle run` was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import names
from .rules import finished, scope

Membership = Literal["namespace", "selected", "none"]
Convergence = Literal["auto", "manual", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `run`, typed."""

    model: str
    """Namespace of the Juju model."""
    application: str
    unit: str
    mesh_namespace: str = ""
    """Where istiod is; empty while the model has not joined."""
    mesh_revision: str = ""
    membership: Membership = "namespace"
    included_pods: str = ""
    excluded_pods: str = ""
    lifecycle_namespaces: frozenset[scope.Kind] = frozenset(scope.KINDS)
    proxy_shutdown: bool = True
    wait_for_containers: tuple[str, ...] = ()
    ignore_containers: tuple[str, ...] = ()
    status_port: int = finished.DEFAULT_STATUS_PORT
    replace_broken_pods: bool = False
    convergence: Convergence = "auto"
    convergence_max_unavailable: int = 2
    observe_gateways: bool = False
    listen: str = "0.0.0.0:8080"
    kubeconfig: str | None = None
    log_level: str = "info"
    log_level_file: str = ""
    """Names the level anew while the program runs; empty: none."""

    def policy(self, *, namespace_enabled: bool = True) -> finished.Policy:
        """Return what the rules need beside a pod."""
        return finished.Policy(
            wait_for=self.wait_for_containers,
            ignore=self.ignore_containers,
            status_port=self.status_port,
            enabled=self.proxy_shutdown,
            namespace_enabled=namespace_enabled,
        )

    def scope(self) -> scope.Scope:
        """Return which namespaces are served."""
        return scope.Scope(
            model=self.model,
            mesh_namespace=self.mesh_namespace,
            owner=names.owner(self.model, self.application),
            kinds=self.lifecycle_namespaces,
        )
