"""The gateway workload of the model's own, which serves it unless the options name another."""

from __future__ import annotations

import dataclasses
import logging

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.config import config
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster, errors, owners
from istio_integrator.messages import Message, Said

logger = logging.getLogger(__name__)

FOLDER = "gateway-workload"
ACCOUNT = "istio-ingressgateway-workload-service-account"
"""Its ServiceAccount, which kubeflow-profiles of the bundle admits to the profiles by default."""
_HTTP_PORT = 80
_HTTPS_PORT = 443


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in gateway-workload."""

    name: str
    account: str
    model: str
    pod_labels: dict[str, str]
    inject_labels: dict[str, str]
    options: config.Config


class OwnGateway:
    """Runs it by istiod's own template for gateways."""

    def __init__(self, scope: parts.Context) -> None:
        self._scope = scope
        self.name = owners.object_name(scope.application, "gateway")

    @property
    def _marks(self) -> dict[str, str]:
        """Return labels that no other workload of the cluster has."""
        return {"istio": self.name, names.OWNER: self._scope.manifests.owner}

    def target(self, *, only_https: bool) -> gateway.Target:
        """Describe it, whether or not it runs yet.

        Args:
            only_https: Whether nothing but redirects is served without TLS.
        """
        model = self._scope.model
        workload = self._scope.cluster.get(cluster.DEPLOYMENT, self.name, model)
        return gateway.Target(
            namespace=model,
            selector=self._marks,
            service=self.name,
            http_port=_HTTP_PORT,
            https_port=_HTTPS_PORT,
            hosts=self._scope.config.hosts,
            only_https=only_https,
            ready=bool(cluster.at(workload, "status").get("readyReplicas")),
            workload=self.name,
            account=ACCOUNT,
            is_own=True,
        )

    def apply(self) -> Message | None:
        """Have it run, unless an object of another owner is in the way."""
        mesh = self._scope.mesh
        context = Context(
            name=self.name,
            account=ACCOUNT,
            model=self._scope.model,
            pod_labels=self._marks,
            inject_labels=mesh.pod_labels if mesh else {names.INJECT: "true"},
            options=self._scope.config,
        )
        try:
            self._scope.manifests.apply(FOLDER, context)
        except errors.ForeignError as error:
            return Said.GATEWAY_OF_OTHER_OWNER(reference=error.reference, belongs=error.belongs)
        return None

    def remove(self) -> None:
        """End it."""
        try:
            self._scope.manifests.remove(FOLDER)
        except errors.ForbiddenError as error:
            # The role is not needed with a gateway that the options name.
            logger.debug("No gateway workload can be seen, so none was made here: %s", error)
