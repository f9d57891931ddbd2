"""Parts of the charm on a real API server, as a hook makes them."""

import dataclasses
import json

from istio_integrator.config import config
from istio_integrator.ingress.ingress import Ingress
from istio_integrator.istio import installation
from istio_integrator.kube import cluster, manifests
from istio_integrator.mtls import mtls
from istio_integrator.policies.policies import Authorization
from istio_integrator.relations import endpoints
from istio_integrator.situation import situation
from tests import rights, shown

APP = rights.APPLICATION
MESH = installation.Mesh(
    namespace="istio-system",
    installed_in="istio-system",
    revision="default",
    is_default=True,
    environment={},
)
ALIVE = dataclasses.replace(MESH, alive=True)


def context(api, model, *, mesh=MESH, related=None, **options):
    """What parts of the charm work for."""
    return situation.Situation(
        cluster=api,
        manifests=manifests.Manifests(api, model=model, application=APP),
        config=config.Config.model_validate(options),
        mesh=mesh,
        model=model,
        application=APP,
        unit=f"{APP}/0",
        leader=True,
        related=related or Related(),
    )


class Related:
    """Relations of one application, as the test has them."""

    def __init__(self):
        self.requests = []
        self.auths = []
        self.newer = []
        """Bags of istio_ingress_route, each with its endpoint."""

    def bags(self, endpoint):
        """What the others wrote."""
        older = {"ingress": self.requests, "ingress-auth": self.auths}.get(endpoint, ())
        return [
            *(endpoints.Bag(one.id, one.remote_app_name, one.remote_app_data) for one in older),
            *(bag for name, bag in self.newer if name == endpoint),
        ]

    def is_related(self, *endpoints):
        """Tell whether anybody is related."""
        return any(self.bags(endpoint) for endpoint in endpoints)

    def write(self, endpoint, bag):
        """Tell the others nothing."""


def policies(api, model, *stated, mode="closed", related=None):
    """The part that writes policies about callers, with what kfp-api says about its own."""
    if related is None:
        related = Related()
        told = [{**one, "target_namespace": model} for one in stated]
        bag = endpoints.Bag(3, "kfp-api", {"policies": json.dumps(told)})
        related.newer = [("service-mesh", bag)]
    scope = context(api, model, related=related, authorization=mode)
    ingress = Ingress(scope)
    return Authorization(scope, lambda: ingress.exposure)


def strict(api, model, **options):
    """The part that asks callers for certificates, unless the options say otherwise."""
    scope = context(api, model, **{"mtls": "strict", **options})
    return mtls.MutualTls(scope, lambda: 0)


def listed(api, kind, model):
    """The objects of a kind in a model, by name."""
    return {obj["metadata"]["name"]: obj for obj in api.list(kind, model)}


def said(part):
    """All that a part says of a hook."""
    return [f"{status.name}: {status.message}" for status in shown.statuses(part.reconcile())]


def written_by(api, monkeypatch):
    """Return a list in which each write from now on appears."""
    written, writing = [], api._writing

    def noted(verb, obj, **how):
        if not how.get("dry_run"):
            written.append(f"{verb} {cluster.reference(obj)}")
        return writing(verb, obj, **how)

    monkeypatch.setattr(api, "_writing", noted)
    return written
