"""The part of the charm that writes policies about callers, with a model of one application."""

import json

from istio_integrator import parts
from istio_integrator.config import config
from istio_integrator.ingress import exposure
from istio_integrator.istio import installation
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import manifests, snapshot
from istio_integrator.relations import endpoints
from istio_integrator.security import policies_upkeep


class Related:
    """One application on `service-mesh`."""

    def __init__(self, *stated):
        self.bag = {"policies": json.dumps(stated)}

    def bags(self, endpoint):
        return [endpoints.Bag(3, "kfp-api", self.bag)] if endpoint == "service-mesh" else []

    def is_related(self, *endpoints):
        return False

    def write(self, endpoint, bag):
        pass


def part(api, model, *stated, mode="closed", related=None):
    """The part of the charm that writes policies."""
    context = parts.Context(
        cluster=api,
        manifests=manifests.Manifests(api, model=model, application="istio-integrator"),
        config=config.Config(authorization=mode),
        mesh=installation.Mesh(namespace="istio-system", revision="default", is_default=True),
        model=model,
        application="istio-integrator",
        unit="istio-integrator/0",
        leader=True,
    )
    told = [{**one, "target_namespace": model} for one in stated]
    related = related or Related(*told)
    ingress = exposure.Ingress(context, related)
    return policies_upkeep.Authorization(context, related, snapshot.Snapshot(api), ingress)


def written(api, model):
    return {
        obj["metadata"]["name"]: obj for obj in api.list(charm_cluster.AUTHORIZATION_POLICY, model)
    }
