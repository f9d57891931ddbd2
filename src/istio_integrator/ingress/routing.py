"""The routes of the model in the cluster, without those that the API server refuses."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from istio_integrator import error_messages, parts
from istio_integrator.ingress import gateway, grpc, http_routes, record, requested, routes
from istio_integrator.ingress.record import Values
from istio_integrator.ingress.routes import Route
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Said
from istio_integrator.relations import endpoints, ingress_route, kubeflow

logger = logging.getLogger(__name__)


class Routing:
    """Reads what is asked for, and has the gateway serve it."""

    def __init__(self, scope: parts.Context, related: endpoints.Relations) -> None:
        self._scope = scope
        self._older = kubeflow.ingress(related)
        self._newer = ingress_route.received(related)

    @property
    def silent(self) -> dict[str, str]:
        """The applications that have not said yet what they ask for, by endpoint."""
        said = [
            *((kubeflow.INGRESS, one) for one in self._older),
            *((one.endpoint, one) for one in self._newer),
        ]
        found: dict[str, list[kubeflow.Named]] = {}
        for endpoint, one in said:
            if one.message is None and not one.problem:
                found.setdefault(endpoint, []).append(one)
        return {endpoint: kubeflow.names(silent) for endpoint, silent in found.items()}

    def plan(self) -> routes.Plan:
        """Decide what is served."""
        terms = requested.Terms(
            model=self._scope.model,
            application=self._scope.application,
            domain=self._scope.cluster_domain,
        )
        return routes.plan(
            [
                *requested.by_ingress(self._older, terms),
                *requested.by_ingress_route(self._newer, self._older, terms),
            ]
        )

    def apply(
        self, plan: routes.Plan, target: gateway.Target, values: Values
    ) -> tuple[Sequence[Route], list[Message]]:
        """Have the gateway serve a plan, without what the API server refuses.

        Args:
            plan: What is to be served.
            target: Where.
            values: Those that the EnvoyFilter writes.

        Returns:
            What is served, and what is wrong with the rest.

        Raises:
            ApiError: The plan is refused, and no part of it is the reason.
        """
        scope = self._scope
        problems = [self._write_grpc(plan.routes, target)]
        if target.is_managed:
            fit, unfit = http_routes.fit(plan.routes)
            problems += unfit
            context = functools.partial(
                http_routes.Context.of,
                values=values,
                application=scope.application,
                model=scope.model,
                domain=scope.cluster_domain,
            )
            refused = scope.manifests.apply_fitting(
                http_routes.FOLDER, {one: [one] for one in fit}, context
            )
            served = [one for one in fit if one not in refused]
            sources = {one.source: error for one, error in refused.items()}
        else:
            by_source: dict[str, list[Route]] = {}
            for one in plan.routes:
                by_source.setdefault(one.source, []).append(one)
            context = functools.partial(
                routes.Context.of,
                target=target,
                values=values,
                model=scope.model,
                application=scope.application,
            )
            sources = scope.manifests.apply_fitting(routes.FOLDER, by_source, context)
            served = [one for one in plan.routes if one.source not in sources]
        found = [Said.REQUEST_INVALID(request=each) for each in problems if each]
        for source, error in sources.items():
            about = f"routes of {source} in {self._scope.model}"
            found.append(error_messages.of_object(error, about))
        hidden = [record.hide_in(each) for each in found]
        for problem in hidden:
            logger.warning("%s.", problem.text)
        return served, hidden

    def _write_grpc(self, served: Sequence[Route], target: gateway.Target) -> str:
        """Have the gateway speak HTTP/2 with backends of gRPC that have no DestinationRule.

        Returns:
            Why it does not; the routes are served all the same.
        """
        scope = self._scope
        wanted = tuple(route for route in served if route.is_grpc)
        try:
            rules = scope.cluster.list(cluster.DESTINATION_RULE, scope.model) if wanted else []
            context = grpc.Context.of(
                wanted,
                target,
                others=[rule for rule in rules if not scope.manifests.is_ours(rule)],
                application=scope.application,
            )
            scope.manifests.apply(grpc.FOLDER, context)
        except errors.ConflictError:
            raise
        except (errors.ApiError, errors.ForeignError) as error:
            # Roles that are older than the charm lack the right; without it none was made.
            logger.debug("DestinationRules: %s", error)
            return f"gRPC of {routes.sources(wanted)}: {error}" if wanted else ""
        return ""


def remove(scope: parts.Context) -> None:
    """Remove the routes of both kinds."""
    scope.manifests.remove(routes.FOLDER)
    for folder in (http_routes.FOLDER, grpc.FOLDER):
        try:
            scope.manifests.remove(folder)
        except errors.ForbiddenError as error:
            # Some roles are needed for some kinds of routes only; without them none were made.
            logger.debug("No routes of %s: %s", folder, error)
