"""A gateway workload of our own, for a model whose cluster has none to share."""

from __future__ import annotations

import dataclasses
import logging

import component
import errors
import injectors
import manifests
import webhook

logger = logging.getLogger(__name__)

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
        try:
            self._scope.manifests.remove(FOLDER)
        except errors.ForbiddenError as error:
            # The role is only needed with gateway-workload; without it none was made.
            logger.debug("No gateway of ours: %s", error)
