"""The model's own gateway, which serves it unless options name another gateway."""

from __future__ import annotations

from integrator_contract import names
from istio_integrator.asked.gateway import Target
from istio_integrator.kube import cluster
from istio_integrator.situation.situation import Situation

ACCOUNT = "istio-ingressgateway-workload-service-account"
"""Its ServiceAccount, which the bundle's kubeflow-profiles admits to profiles by default."""


def read_target(situation: Situation) -> Target:
    """Return the gateway, whether or not it runs yet."""
    name = names.name_object(situation.application, "gateway")
    workload = situation.cluster.get(cluster.DEPLOYMENT, name, situation.model)
    return Target(
        namespace=situation.model,
        # Labels that no other workload of the cluster has.
        selector={"istio": name, names.OWNER: situation.manifests.owner},
        service=name,
        http_port=80,
        https_port=443,
        hosts=situation.config.hosts,
        ready=bool(cluster.at(workload, "status").get("readyReplicas")),
        accounts=(ACCOUNT,),
        is_own=True,
    )
