"""A gateway workload of our own, for a model whose cluster has none to share."""

from __future__ import annotations

import dataclasses

import component
import injectors
import manifests
import webhook

FOLDER = "gateway-workload"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in gateway-workload."""

    name: str
    model: str
    pod_labels: dict[str, str]
    inject_labels: dict[str, str]


class GatewayWorkload:
    """Runs it where the option says so, by istiod's own template for gateways."""

    def __init__(self, scope: component.Scope) -> None:
        self._scope = scope
        self.name = webhook.object_name(scope.application, "gateway")

    @property
    def selector(self) -> str:
        """What selects its pods; unique in the cluster, since Gateways select everywhere."""
        return f"{manifests.OWNER}={self._scope.manifests.owner},istio={self.name}"

    @property
    def service(self) -> str:
        """`namespace/name` of its Service."""
        return f"{self._scope.model}/{self.name}"

    def apply(self) -> None:
        """Have it run."""
        mesh = self._scope.mesh
        context = Context(
            name=self.name,
            model=self._scope.model,
            pod_labels={"istio": self.name, manifests.OWNER: self._scope.manifests.owner},
            inject_labels=mesh.pod_labels if mesh else {injectors.INJECT_LABEL: "true"},
        )
        self._scope.manifests.apply(FOLDER, context)

    def remove(self) -> None:
        """End it."""
        self._scope.manifests.remove(FOLDER)
