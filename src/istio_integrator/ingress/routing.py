"""The routes of the model in the cluster: written, and without the one that is not taken."""

from __future__ import annotations

import logging

from istio_integrator import parts, texts
from istio_integrator.ingress import gateway, grpc, requested, routes
from istio_integrator.ingress.routes import Entry, Kind, Redirect, Route, Uri
from istio_integrator.kube import cluster, errors, manifests, owners
from istio_integrator.relations import endpoints, ingress_route, kubeflow

logger = logging.getLogger(__name__)

_REFUSED = (400, 422)
"""What is answered for an object that is not valid, by a webhook of Istio's or by a schema."""
_PROBE = Route(
    name="probe",
    source="",
    application="",
    relation=0,
    place=0,
    kind=Kind.PREFIX,
    path="/probe",
    entries=(Entry(uris=(Uri("prefix", "/probe/"),), path="/"),),
    redirect=Redirect(),
)


class Routing:
    """Reads what is asked for, and has the gateway serve it."""

    def __init__(self, scope: parts.Context, related: endpoints.Relations) -> None:
        self._scope = scope
        self._older = kubeflow.ingress(related)
        self._newer = ingress_route.received(related)

    @property
    def needs_token(self) -> bool:
        """Whether anything is to be served without authentication."""
        return any(not one.is_asked for one in self._newer)

    @property
    def silent(self) -> dict[str, str]:
        """The applications that have not said yet what they ask for, by endpoint."""
        found: dict[str, list[kubeflow.Named]] = {}
        for one in self._older:
            if one.message is None and not one.problem:
                found.setdefault(kubeflow.INGRESS, []).append(one)
        for each in self._newer:
            if each.config is None and not each.problem:
                found.setdefault(each.endpoint, []).append(each)
        return {endpoint: kubeflow.names(silent) for endpoint, silent in found.items()}

    def plan(self, target: gateway.Target, *, token: str) -> routes.Plan:
        """Decide what is served.

        Args:
            target: Where.
            token: For the names of what is served without authentication.
        """
        terms = requested.Terms(
            model=self._scope.model,
            application=self._scope.application,
            domain=self._scope.cluster_domain,
            hosts=target.hosts,
            token=token,
            replaces_prefix=requested.redirects_prefix(self._newer) and self._replaces_prefix(),
        )
        return routes.plan(
            [
                *requested.by_ingress(self._older, terms),
                *requested.by_ingress_route(self._newer, self._older, terms),
            ]
        )

    def apply(
        self, plan: routes.Plan, target: gateway.Target
    ) -> tuple[tuple[Route, ...], list[str]]:
        """Have the gateway serve a plan.

        Of a plan that the API server does not take, the relations go without that are the reason.

        Returns:
            What is served, and what is wrong with the rest.

        Raises:
            ApiError: The plan is not taken, and no relation alone is the reason.
        """
        served, refused = plan.routes, dict[str, str]()
        said = self.write_grpc(served, target)
        try:
            self._scope.manifests.apply(routes.FOLDER, self._context(served, target))
        except errors.ApiError as error:
            if error.code not in _REFUSED:
                raise
            refused = self._refused(plan, target)
            served = plan.without(refused)
            if not refused or not served:
                raise
            self._scope.manifests.apply(routes.FOLDER, self._context(served, target))
        problems = [f"{source}: {reason}" for source, reason in refused.items()]
        problems += [said] if said else []
        return served, [texts.plain(each, texts.LONGEST_PROBLEM) for each in problems]

    def _context(self, served: tuple[Route, ...], target: gateway.Target) -> routes.Context:
        scope = self._scope
        return routes.Context.of(served, target, model=scope.model, application=scope.application)

    def _refused(self, plan: routes.Plan, target: gateway.Target) -> dict[str, str]:
        """Find the relations whose routes are not taken even alone, and why."""
        found: dict[str, str] = {}
        for source in dict.fromkeys(route.source for route in plan.routes):
            alone = tuple(route for route in plan.routes if route.source == source)
            try:
                self._try(alone, target)
            except errors.ApiError as error:
                if error.code not in _REFUSED:
                    raise
                logger.warning("%s: %s", source, error)
                found[source] = f"the API server refuses its routes: {error.message}"
        return found

    def _try(self, tried: tuple[Route, ...], target: gateway.Target) -> cluster.Object:
        """Ask what would become of routes, without making anything."""
        (obj,) = manifests.render(routes.FOLDER, self._context(tried, target))
        prepared = self._scope.manifests.prepared(routes.FOLDER, obj)
        name = owners.object_name(self._scope.application, "routes-tried")
        prepared["metadata"] = {**prepared["metadata"], "name": name}
        return self._scope.cluster.create(prepared, dry_run=True)

    def _replaces_prefix(self) -> bool:
        """Ask whether a redirect can keep the rest of the path, which Istio can since 1.31."""
        try:
            answer = self._scope.cluster.create(self._probe(), dry_run=True)
        except errors.ApiError as error:
            logger.info("Redirects can't replace a prefix: %s", error)
            return False
        (entry, *_) = cluster.parts(cluster.at(answer, "spec"), "http") or [{}]
        return "prefixRewrite" in cluster.at(entry, "redirect")

    def _probe(self) -> cluster.Object:
        context = routes.Context(
            name=owners.object_name(self._scope.application, "routes-tried"),
            sources="",
            routes=[_PROBE],
            gateway=f"{self._scope.model}/{gateway.NAME}",
            hosts=["probe.invalid"],
            export_to=(".",),
        )
        (obj,) = manifests.render(routes.FOLDER, context)
        return self._scope.manifests.prepared(routes.FOLDER, obj)

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
                model=scope.model,
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
        logger.debug("No DestinationRule of ours can be seen, so there is none.")
