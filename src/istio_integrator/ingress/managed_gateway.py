"""A Gateway of the Gateway API in the model, whose workload istiod itself deploys."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from integrator_contract import names
from istio_integrator import parts, texts
from istio_integrator.ingress import choice, gateway, gateway_api, http_routes, routes
from istio_integrator.kube import cluster, errors, manifests, owners
from istio_integrator.relations import endpoints, gateway_metadata

logger = logging.getLogger(__name__)

FOLDER = "managed-gateway"
_REFUSED = (400, 422)
"""What is answered for an object that is not valid."""
_OLDER = cluster.Kind("gateway.networking.k8s.io/v1beta1", "Gateway", "gateways", True)


class ManagedGateway:
    """Decides whether it serves the model, makes it, and takes it away."""

    def __init__(self, scope: parts.Context) -> None:
        self._scope = scope

    @property
    def is_wanted(self) -> bool:
        """Whether the options ask for it."""
        return self._scope.config.routing == "gateway-api"

    @property
    def own(self) -> choice.Own:
        """What its workload is known by."""
        name = gateway_api.deployment(self._class)
        return choice.Own(service=f"{self._scope.model}/{name}", selector=self._selector)

    def find(self) -> cluster.Object | None:
        """Read our Gateway; None where there is none, or no Gateway API."""
        try:
            found = self._scope.cluster.get(
                cluster.KUBERNETES_GATEWAY, gateway.NAME, self._scope.model
            )
        except errors.ForbiddenError as error:
            # The role is only needed with routing=gateway-api; without it none was made.
            logger.debug("No Gateway of the Gateway API: %s", error)
            return None
        return found if self._scope.manifests.is_ours(found) else None

    def trouble(self, opened: cluster.Object | None) -> str:
        """Say what keeps the model from being served by it; empty: nothing.

        Args:
            opened: Istio's own Gateway of the model, where the model is served by that.
        """
        try:
            found = gateway_api.trouble(self._offer, self._scope.config.hosts)
        except errors.ForbiddenError as error:
            logger.warning("The Gateway API can't be looked at: %s", error)
            return (
                "routing=gateway-api: the role that ends in -httproutes of rbac/roles.yaml is "
                "missing; apply it, or juju trust"
            )
        if found or opened is None:
            return found
        others = gateway_api.bound(
            self._scope.cluster.list(cluster.VIRTUAL_SERVICE),
            model=self._scope.model,
            owner=self._scope.manifests.owner,
        )
        return gateway_api.stay(others)

    def target(
        self, *, only_https: bool, problems: Sequence[gateway.Missing | gateway.Refusal] = ()
    ) -> gateway.Target:
        """Say where the model is served by it, and what istiod says about that.

        Args:
            only_https: Whether nothing but redirects is served without TLS.
            problems: What else to say about it.
        """
        state = gateway_api.state(self.find())
        hosts = self._scope.config.hosts[: gateway_api.MOST_HOSTS]
        notes = (f"Gateway {gateway.NAME} at {state.address}",) if state.address else ()
        return gateway.Target(
            namespace=self._scope.model,
            selector=self._selector,
            service=gateway_api.deployment(self._class),
            http_port=gateway_api.HTTP_PORT,
            https_port=gateway_api.HTTPS_PORT,
            hosts=hosts,
            only_https=only_https,
            ready=state.is_programmed,
            workload=gateway_api.deployment(self._class),
            is_own=True,
            problems=(*problems, *([state.problem] if state.problem else [])),
            notes=notes if state.is_programmed else (),
        )

    def is_at(self, place: gateway.Target | gateway.Place) -> bool:
        """Tell whether a place is its workload."""
        return (place.namespace, dict(place.selector)) == (self._scope.model, self._selector)

    def open(self, target: gateway.Target, credential: str) -> None:
        """Have it be there.

        Args:
            target: What is to be served.
            credential: The Secret with the certificate; empty for none.
        """
        mesh = self._scope.mesh
        context = gateway_api.Context(
            name=gateway.NAME,
            gateway_class=self._class,
            revision="" if mesh is None or mesh.is_default else mesh.revision,
            redirect=self._redirect if target.only_https else "",
            selector=self._selector,
            listeners=gateway_api.listeners(target, credential),
        )
        self._scope.manifests.apply(FOLDER, context)

    def route(self, found: Sequence[routes.Route]) -> tuple[Sequence[routes.Route], list[str]]:
        """Have routes be served by it.

        Of those that the API server does not take, each goes alone.

        Returns:
            What is served, and what is wrong with the rest.
        """
        fit, problems = http_routes.fit(found)
        try:
            self._scope.manifests.apply(http_routes.FOLDER, self._context(fit))
        except errors.ApiError as error:
            if error.code not in _REFUSED:
                raise
            refused = {route: said for route in fit if (said := self._refusal(route))}
            if not refused:
                raise
            fit = [route for route in fit if route not in refused]
            problems += [
                f"{route.source}: the API server refuses a route: {said}"
                for route, said in refused.items()
            ]
            self._scope.manifests.apply(http_routes.FOLDER, self._context(fit))
        for problem in problems:
            logger.warning("%s.", problem)
        return fit, [texts.plain(each, texts.LONGEST_PROBLEM) for each in problems]

    def _context(self, found: Sequence[routes.Route]) -> http_routes.Context:
        scope = self._scope
        return http_routes.Context.of(
            found, application=scope.application, model=scope.model, domain=scope.cluster_domain
        )

    def _refusal(self, route: routes.Route) -> str:
        """Ask what the API server says of one route, without making anything."""
        try:
            self._try(self._context([route]))
        except errors.ApiError as error:
            if error.code not in _REFUSED:
                raise
            return error.message
        return ""

    def _try(self, context: http_routes.Context) -> cluster.Object:
        (obj,) = manifests.render(http_routes.FOLDER, context)
        prepared = self._scope.manifests.prepared(http_routes.FOLDER, obj)
        name = owners.object_name(self._scope.application, "route-tried")
        prepared["metadata"] = {**prepared["metadata"], "name": name}
        return self._scope.cluster.create(prepared, dry_run=True)

    def _names_rules(self) -> bool:
        """Ask whether the API server keeps the name of a rule."""
        probe = http_routes.Written(
            name="probe",
            relation="",
            hostname="",
            rule="probe",
            match={"path": {"type": "PathPrefix", "value": "/"}},
            filters=(),
            backends=(),
        )
        answer = self._try(http_routes.Context(gateway=gateway.NAME, routes=[probe]))
        return any(
            rule.get("name") == "probe"
            for rule in cluster.parts(cluster.at(answer, "spec"), "rules")
        )

    def close(self) -> None:
        """Take the routes away, and nothing else."""
        self._remove(http_routes.FOLDER)

    def remove(self) -> bool:
        """Take routes and Gateway away; tell whether there was one."""
        there = self.find() is not None
        self.close()
        self._remove(FOLDER)
        return there

    def publish(self, related: endpoints.Relations, *, is_serving: bool) -> str:
        """Tell controllers where their HTTPRoutes belong, once istiod serves it.

        What was told stays while the Gateway is there: each pod that restarts would else have
        every controller restart.

        Returns:
            What they wait for that only the operator can give them; empty for nothing.
        """
        opened = self.find() if is_serving else None
        if opened is None:
            gateway_metadata.withdraw(related)
        elif gateway_api.state(opened).is_programmed:
            name = gateway_api.deployment(self._class)
            metadata = gateway_metadata.GatewayMetadata(
                namespace=self._scope.model,
                gateway_name=gateway.NAME,
                deployment_name=name,
                service_account=name,
            )
            gateway_metadata.publish(related, metadata)
        waiting = sorted(bag.application for bag in related.bags(gateway_metadata.ENDPOINT))
        if not waiting or self.is_wanted:
            return ""
        return f"gateway-metadata: {', '.join(waiting)} waits for it; set routing=gateway-api"

    def _remove(self, folder: str) -> None:
        try:
            self._scope.manifests.remove(folder)
        except errors.ForbiddenError as error:
            logger.debug("Nothing of the Gateway API: %s", error)

    @property
    def _selector(self) -> dict[str, str]:
        return {names.GATEWAY_NAME: gateway.NAME}

    @property
    def _redirect(self) -> str:
        """Its name in the model; the guard's is one of those that an application has."""
        return f"istio-integrator.{self._scope.manifests.owner}.https".lower()

    @property
    def _class(self) -> str:
        """Of the Gateway that is there, which can't change it, else the one that it would get."""
        spec = cluster.at(self.find(), "spec")
        found = spec.get("gatewayClassName") or self._offered_class
        return str(found or gateway_api.USUAL_CLASS)

    @property
    def _offered_class(self) -> str:
        try:
            return self._offer.gateway_class
        except errors.ForbiddenError:
            return ""

    @functools.cached_property
    def _offer(self) -> gateway_api.Offer:
        api, mesh, model = self._scope.cluster, self._scope.mesh, self._scope.model
        kinds = (cluster.KUBERNETES_GATEWAY, cluster.HTTP_ROUTE, cluster.GRPC_ROUTE)
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
            environment=gateway_api.environment(istiod),
        )
