"""The model's own gateway workload, which serves it unless options name another gateway."""

from __future__ import annotations

import logging

from integrator_contract import names
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster, errors, owners
from istio_integrator.messages import Message, Said
from istio_integrator.situation.situation import Situation

logger = logging.getLogger(__name__)

FOLDER = "gateway-workload"
ACCOUNT = "istio-ingressgateway-workload-service-account"
"""Its ServiceAccount, which the bundle's kubeflow-profiles admits to profiles by default."""


class OwnGateway:
    """Deploys the gateway, into which istiod injects its template for gateways."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self.name = owners.object_name(situation.application, "gateway")
        # Labels that no other workload of the cluster has.
        self._selector = {"istio": self.name, names.OWNER: situation.manifests.owner}

    def target(self) -> gateway.Target:
        """Return the gateway, whether or not it runs yet."""
        workload = self._situation.cluster.get(
            cluster.DEPLOYMENT, self.name, self._situation.model
        )
        return gateway.Target(
            namespace=self._situation.model,
            selector=self._selector,
            service=self.name,
            http_port=80,
            https_port=443,
            hosts=self._situation.config.hosts,
            ready=bool(cluster.at(workload, "status").get("readyReplicas")),
            accounts=(ACCOUNT,),
            is_own=True,
        )

    def apply(self) -> Message | None:
        """Deploy the gateway, unless an object of another owner has its name."""
        mesh = self._situation.mesh
        context = {
            "name": self.name,
            "account": ACCOUNT,
            "model": self._situation.model,
            "pod_labels": self._selector,
            "inject_labels": mesh.pod_labels if mesh else {names.INJECT: "true"},
            "options": self._situation.config,
        }
        try:
            self._situation.manifests.apply(FOLDER, context)
        except errors.ForeignError as error:
            return Said.GATEWAY_OF_OTHER_OWNER(reference=error.reference, belongs=error.belongs)
        return None
