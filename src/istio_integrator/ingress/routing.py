"""The routes of the model in the cluster: written, and without the one that is not taken."""

from __future__ import annotations

import logging

from istio_integrator import parts, statuses, texts
from istio_integrator.ingress import gateway, grpc, requested, routes
from istio_integrator.ingress.record import Values
from istio_integrator.ingress.routes import Route
from istio_integrator.kube import cluster, errors, owners
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
    ) -> tuple[tuple[Route, ...], list[str]]:
        """Have the gateway serve a plan.

        Of a plan that the API server does not take, the relations go without that are the reason.

        Args:
            plan: What is to be served.
            target: Where.
            values: Those that the EnvoyFilter writes.

        Returns:
            What is served, and what is wrong with the rest.

        Raises:
            ApiError: The plan is not taken, and no relation alone is the reason.
        """
        served, refused = plan.routes, dict[str, str]()
        said = self.write_grpc(served, target)
        try:
            self._scope.manifests.apply(routes.FOLDER, self._context(served, target, values))
        except errors.ApiError as error:
            if not error.is_about_the_object:
                raise
            refused = self._refused(plan, target, values)
            served = plan.without(refused)
            if not refused or not served:
                raise
            self._scope.manifests.apply(routes.FOLDER, self._context(served, target, values))
        problems = [*refused.values(), *([said] if said else [])]
        return served, [texts.plain(each, texts.LONGEST_PROBLEM) for each in problems]

    def _context(
        self, served: tuple[Route, ...], target: gateway.Target, values: Values
    ) -> routes.Context:
        scope = self._scope
        return routes.Context.of(
            served, target, values, model=scope.model, application=scope.application
        )

    def _refused(
        self, plan: routes.Plan, target: gateway.Target, values: Values
    ) -> dict[str, str]:
        """Find the relations whose routes are not taken even alone, and why."""
        found: dict[str, str] = {}
        for source in dict.fromkeys(route.source for route in plan.routes):
            alone = tuple(route for route in plan.routes if route.source == source)
            context = self._context(alone, target, values)
            error = self._scope.manifests.refusal(routes.FOLDER, context, name=self._trial)
            if error is not None:
                logger.warning("%s: %s", source, error)
                found[source] = statuses.about(error, f"routes of {source} in {self._scope.model}")
        return found

    @property
    def _trial(self) -> str:
        """Name what is tried and never made."""
        return owners.object_name(self._scope.application, "routes-tried")

    def write_grpc(self, served: tuple[Route, ...], target: gateway.Target) -> str:
        """Have the gateway speak HTTP/2 with backends of gRPC, where nobody says how to.

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
    """Take the routes away."""
    scope.manifests.remove(routes.FOLDER)
    try:
        scope.manifests.remove(grpc.FOLDER)
    except errors.ForbiddenError:
        logger.debug("DestinationRules can't be listed, so none was made here.")
