"""The external Istio: which one the model joins, whether it is alive, and what it can do."""

from __future__ import annotations

import dataclasses

INJECTION_LABEL = "istio-injection"
REVISION_LABEL = "istio.io/rev"
INJECT_LABEL = "sidecar.istio.io/inject"
DATAPLANE_LABEL = "istio.io/dataplane-mode"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """One Istio control plane, as found in the cluster and as a dry-run pod showed it."""

    namespace: str
    """Where istiod runs; empty when the injector is addressed by URL."""
    revision: str
    """What a namespace or pod names to get it: a revision or tag, `default` for the default."""
    is_default: bool
    """Whether it serves `istio-injection=enabled`."""
    service: str = "istiod"
    """The Service that the injector's webhook configuration points to."""
    url: str = ""
    """The injector's address where there is no Service."""
    version: str = ""
    """As its objects say, for people only; empty when nothing says it."""
    webhook_configuration: str = ""
    """The name of the injector's MutatingWebhookConfiguration."""
    hold_by_default: bool = False
    """Whether the mesh's own configuration already holds applications."""
    status_port: int = 15020
    """Of the proxies, where the mesh configuration says nothing else."""
    root_namespace: str = "istio-system"
    alive: bool = False
    """Whether the injector answered the dry-run pod with a sidecar."""
    problem: str = ""
    """Why it is not alive, in the API server's words."""
    native_sidecars: bool = False
    """Whether a pod that asks for a native sidecar gets one that works on every node."""
    hold_honoured: bool = True
    """Whether a classic sidecar that is asked to hold the application does."""

    @property
    def namespace_labels(self) -> dict[str, str]:
        """The label that makes a namespace a member."""
        if self.is_default:
            return {INJECTION_LABEL: "enabled"}
        return {REVISION_LABEL: self.revision}

    @property
    def pod_labels(self) -> dict[str, str]:
        """The label that makes one pod a member in a namespace that is not."""
        if self.is_default:
            return {INJECT_LABEL: "true"}
        return {REVISION_LABEL: self.revision}

    @property
    def name(self) -> str:
        """How status messages call it."""
        where = f"{self.namespace}/{self.service}" if self.namespace else self.url
        revision = "" if self.is_default else f" {self.revision}"
        version = f" {'.'.join(self.version.split('.')[:2])}" if self.version else ""
        return f"{where}{revision}{version}"
