"""The model's own gateway workload, which serves it unless options name another gateway."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from integrator_contract import names
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster, errors, fences, owners
from istio_integrator.messages import Message, Said
from istio_integrator.situation.situation import Situation

logger = logging.getLogger(__name__)

FOLDER = "gateway-workload"
ACCOUNT = "istio-ingressgateway-workload-service-account"
"""Its ServiceAccount, which the bundle's kubeflow-profiles admits to profiles by default."""
_PORTS = (80, 443, 8080, 8443)
"""Numbers by which a Gateway opens the ports for HTTP: those of the Service and of the pods."""
_TCP = ("TCP", "MONGO", "MYSQL", "REDIS")
"""Protocols for which a port has no HTTP."""


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
            application = self._situation.application
            return Said.GATEWAY_OF_OTHER_OWNER(
                owner=error.owner, reference=error.reference, application=application
            )
        return None

    def takers(self, opened: cluster.Object | None) -> Iterator[Message]:
        """Name Gateways that take a port for TCP, which the workload denies.

        istiod ignores a server of a Gateway younger than this charm's, unless it has an address.
        """
        since = cluster.at(opened, "metadata").get("creationTimestamp", "")
        pods = self._situation.cluster.list(cluster.POD, self._situation.model, self._selector)
        labels = [self._selector, *(cluster.at(pod, "metadata", "labels") for pod in pods)]
        for each in self._situation.cluster.each(cluster.GATEWAY):
            with fences.around(cluster.reference(each)):
                metadata, spec = each["metadata"], cluster.at(each, "spec")
                selector = cluster.at(spec, "selector").items()
                if not any(selector <= one.items() for one in labels):
                    continue
                is_first = not since or metadata["creationTimestamp"] <= since
                for server in cluster.parts(spec, "servers"):
                    port = cluster.at(server, "port")
                    is_tcp = str(port.get("protocol")).upper() in _TCP
                    if is_tcp and port.get("number") in _PORTS and server.get("bind", is_first):
                        name = {key: metadata[key] for key in ("namespace", "name")}
                        yield Said.PORT_TAKEN(port=port["number"], **name)
