"""The model's HTTPRoutes and GRPCRoutes in the cluster, without those that are not taken."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from istio_integrator import parts, statuses, texts
from istio_integrator.ingress import gateway, http_routes, routes
from istio_integrator.ingress.record import Values
from istio_integrator.kube import cluster, errors, owners

logger = logging.getLogger(__name__)


class HttpRouting:
    """Has our Gateway of the Gateway API serve routes."""

    def __init__(self, scope: parts.Context) -> None:
        self._scope = scope
        self._has_calls = http_routes.has_calls(scope.mesh.version if scope.mesh else "")
        """Whether routes for gRPC are GRPCRoutes."""

    def route(
        self, found: Sequence[routes.Route], values: Values
    ) -> tuple[Sequence[routes.Route], list[str]]:
        """Have routes be served.

        Of those that the API server does not take, each goes alone.

        Args:
            found: What is asked for.
            values: Those that the EnvoyFilter writes.

        Returns:
            What is served, and what is wrong with the rest.
        """
        try:
            fit, problems = self._write(found, values)
        except errors.ForbiddenError as error:
            if not self._has_calls:
                raise
            # Roles that are older than the charm; HTTPRoutes lead the same requests.
            logger.warning("GRPCRoutes: %s", error)
            self._has_calls = False
            fit, problems = self._write(found, values)
        for problem in problems:
            logger.warning("%s.", problem)
        return fit, [texts.plain(each, texts.LONGEST_PROBLEM) for each in problems]

    def _write(
        self, found: Sequence[routes.Route], values: Values
    ) -> tuple[Sequence[routes.Route], list[str]]:
        fit, problems = http_routes.fit(found)
        try:
            self._scope.manifests.apply(http_routes.FOLDER, self._context(fit, values))
        except errors.ApiError as error:
            if not error.is_about_the_object:
                raise
            refused = {route: said for route in fit if (said := self._refusal(route, values))}
            if not refused:
                raise
            fit = [route for route in fit if route not in refused]
            problems += refused.values()
            self._scope.manifests.apply(http_routes.FOLDER, self._context(fit, values))
        return fit, problems

    def _context(self, found: Sequence[routes.Route], values: Values) -> http_routes.Context:
        scope = self._scope
        return http_routes.Context.of(
            found,
            values,
            application=scope.application,
            model=scope.model,
            domain=scope.cluster_domain,
            has_calls=self._has_calls,
        )

    def _refusal(self, route: routes.Route, values: Values) -> str:
        """Ask what the API server says of one route, without making anything."""
        context = self._context([route], values)
        error = self._scope.manifests.refusal(http_routes.FOLDER, context, name=self._trial)
        what = f"a route of {route.source} in {self._scope.model}"
        return statuses.about(error, what) if error else ""

    @property
    def _trial(self) -> str:
        """Name what is tried and never made."""
        return owners.object_name(self._scope.application, "route-tried")

    def names_rules(self) -> bool:
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
        answer = self._scope.manifests.tried(http_routes.FOLDER, context, name=self._trial)
        return any(
            rule.get("name") == "probe"
            for rule in cluster.parts(cluster.at(answer, "spec"), "rules")
        )

    def close(self) -> bool:
        """Take the routes away, and nothing else; tell whether there were any."""
        try:
            found = bool(self._scope.manifests.owned_in(http_routes.FOLDER))
        except errors.ForbiddenError as error:
            # The role is only needed with routing=gateway-api; without it none were made.
            logger.debug("No routes of the Gateway API: %s", error)
            return False
        if found:
            self._scope.manifests.remove(http_routes.FOLDER)
        return found
