"""What the cluster has of the Gateway API, and who would be cut off by a move to it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from istio_integrator import parts
from istio_integrator.ingress import gateway, gateway_api, http_routes
from istio_integrator.istio import meshconfig
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Said

logger = logging.getLogger(__name__)

_OLDER = cluster.Kind("gateway.networking.k8s.io/v1beta1", "Gateway", "gateways", True)


class Offered:
    """Asks the API server and looks at istiod, once in a hook."""

    def __init__(self, scope: parts.Context) -> None:
        self._scope = scope

    @property
    def gateway_class(self) -> str:
        """The class that a Gateway of ours would get; empty for none."""
        try:
            return self._offer.gateway_class
        except errors.ForbiddenError:
            return ""

    def obstacle(self, opened: cluster.Object | None, hosts: Sequence[str]) -> Message | None:
        """Say what keeps the model from being served by the Gateway API; None: nothing.

        Args:
            opened: Istio's own Gateway of the model, where the model is served by that.
            hosts: Of the model, which a Gateway of ours would have.
        """
        try:
            found = gateway_api.obstacle(self._offer, hosts)
        except errors.ForbiddenError as error:
            logger.warning("The Gateway API's kinds can't be read: %s", error)
            return Said.GATEWAY_API_FORBIDDEN(application=self._scope.application)
        if found or opened is None:
            return found
        others = gateway_api.bound(
            self._scope.cluster.list(cluster.VIRTUAL_SERVICE),
            model=self._scope.model,
            owner=self._scope.manifests.owner,
        )
        return gateway_api.stay(others)

    @functools.cached_property
    def _offer(self) -> gateway_api.Offer:
        api, mesh, model = self._scope.cluster, self._scope.mesh, self._scope.model
        kinds = (cluster.KUBERNETES_GATEWAY, cluster.HTTP_ROUTE)
        served = frozenset(kind.name for kind in kinds if api.serves(kind, model))
        is_known = mesh is not None and bool(mesh.namespace)
        istiod = (
            api.get(cluster.DEPLOYMENT, mesh.service, mesh.namespace)
            if mesh and is_known
            else None
        )
        return gateway_api.Offer(
            served=served,
            names_rules=len(served) == len(kinds) and self._names_rules(),
            is_older=not served and api.serves(_OLDER, model),
            classes=gateway_api.classes(api.list(cluster.GATEWAY_CLASS)),
            istiod=f"{mesh.namespace}/{mesh.service}" if mesh and istiod else "",
            environment=meshconfig.environment(istiod),
        )

    def _names_rules(self) -> bool:
        """Ask whether the API server keeps the name of a rule."""
        probe = http_routes.Written(
            name="probe",
            relation="",
            rule="probe",
            match={"path": {"type": "PathPrefix", "value": "/"}},
            filters=(),
            backends=(),
        )
        context = http_routes.Context(gateway=gateway.NAME, routes=[probe])
        answer = self._scope.manifests.tried(http_routes.FOLDER, context)
        rules = cluster.parts(cluster.at(answer, "spec"), "rules")
        return any(rule.get("name") == "probe" for rule in rules)
