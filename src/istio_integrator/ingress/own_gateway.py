"""A gateway workload of our own, for a model whose cluster has none to share."""

from __future__ import annotations

import dataclasses
import logging

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.config import config
from istio_integrator.ingress import choice
from istio_integrator.kube import errors, owners

logger = logging.getLogger(__name__)

FOLDER = "gateway-workload"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in gateway-workload."""

    name: str
    model: str
    pod_labels: dict[str, str]
    inject_labels: dict[str, str]
    options: config.Config


class OwnGateway:
    """Runs it where the option says so, by istiod's own template for gateways."""

    def __init__(self, scope: parts.Context) -> None:
        self._scope = scope
        self.name = owners.object_name(scope.application, "gateway")

    @property
    def own(self) -> choice.Own:
        """What it is known by: its name in the model, and labels of no other workload."""
        return choice.Own(service=f"{self._scope.model}/{self.name}", selector=self._marks)

    @property
    def _marks(self) -> dict[str, str]:
        return {"istio": self.name, names.OWNER: self._scope.manifests.owner}

    def apply(self) -> None:
        """Have it run."""
        mesh = self._scope.mesh
        context = Context(
            name=self.name,
            model=self._scope.model,
            pod_labels=self._marks,
            inject_labels=mesh.pod_labels if mesh else {names.INJECT: "true"},
            options=self._scope.config,
        )
        self._scope.manifests.apply(FOLDER, context)

    def remove(self) -> None:
        """End it."""
        try:
            self._scope.manifests.remove(FOLDER)
        except errors.ForbiddenError as error:
            # The role is only needed with gateway-workload; without it none was made.
            logger.debug("No gateway workload can be seen, so none was made here: %s", error)
