"""Parts of the charm on a real API server, as a hook makes them."""

import dataclasses

from istio_integrator.config import config
from istio_integrator.istio import installation
from istio_integrator.kube import manifests
from istio_integrator.relations import endpoints
from istio_integrator.situation import situation
from tests import rights

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
