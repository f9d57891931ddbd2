"""The routes of the model: what related applications ask for, behind the gateway and its guard."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Iterable, Sequence

import ops

from integrator_contract import service
from istio_integrator import parts
from istio_integrator.ingress import (
    announced,
    authorization,
    certificate,
    gateway,
    gateway_api,
    gateways,
    guard_change,
    guards,
    http_routing,
    managed_gateway,
    observed,
    offered,
    own_gateway,
    route_token,
    routes,
    routing,
    service_annotations,
)
from istio_integrator.kube import cluster, errors
from istio_integrator.relations import endpoints, forward_auth, kubeflow

logger = logging.getLogger(__name__)

DRAINED_AFTER = datetime.timedelta(seconds=service.DRAINED_AFTER)
SETTLE = 2.0
"""Seconds in which istiod tells a gateway about removed routes, before their guard may go."""


class Ingress:
    """Guard, Gateway and routes, in an order that keeps the routes closed at every instant."""

    def __init__(
        self,
        scope: parts.Context,
        related: endpoints.Relations,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._scope = scope
        self._related = related
        self._sleep = sleep
        self._now = now
        self.certificate = certificate.GatewayCertificate(scope, related)
        self._own_gateway = own_gateway.OwnGateway(scope)
        self._http = http_routing.HttpRouting(scope)
        offer = offered.Offered(scope, self._http)
        self._managed = managed_gateway.ManagedGateway(scope, offer)
        self.announced = announced.Announced(scope, related, self._managed)
        self._annotations = service_annotations.ServiceAnnotations(scope)
        self._statuses: list[ops.StatusBase] = []
        self.is_up = False
        """Whether the Gateway of the model is there and a pod of the gateway is ready."""
        self.decision: authorization.Decision | None = None
        """Who is asked about requests; None where no application is to be reached."""
        self._foreseen: gateway.Target | gateway.Refusal | None = None
        """What another part was told that asked before."""

    def reconcile(self) -> None:
        """Make the model reachable as related applications ask for, or unreachable."""
        self._statuses = []
        if not self._scope.leader:
            return
        forward_auth.publish(self._related)
        found = self._scope.mesh
        if found is not None and found.pilot is not None:
            service, port = found.pilot
            kubeflow.publish_pilot(self._related, service=service, port=port)
        if not self._related.is_related(*kubeflow.EXPOSING):
            self._withdraw()
        elif found is not None:
            target = self._foreseen or self.resolved()
            self._foreseen = None
            if self._is_own(target):
                target = self._own_gateway.apply() or target
            self._expose(target)
            self._announce(target)

    def remove(self) -> None:
        """Take everything away, the guard last and not before the gateway forgot the routes."""
        self._statuses = []
        if self._remove_routes():
            self._sleep(SETTLE)
        self._remove_rest()

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say how the model is reached, or what it takes."""
        return tuple(self._statuses)

    def resolved(self) -> gateway.Target | gateway.Refusal:
        """Say which gateway serves the model; nothing is written."""
        if self._foreseen is not None:
            return self._foreseen
        only_https = self._scope.config.https_redirect and self.certificate.is_wanted
        self._foreseen = gateways.resolve(
            self._scope, self._own_gateway, self._managed, only_https=only_https
        )
        return self._foreseen

    def _is_own(self, target: gateway.Target | gateway.Refusal) -> bool:
        """Tell whether a gateway is the workload that this charm itself deploys."""
        if not (isinstance(target, gateway.Target) and target.is_own):
            return False
        return not self._managed.is_at(target)

    def _expose(self, target: gateway.Target | gateway.Refusal) -> None:
        decision = self.decision = self.decided()
        if decision.is_closed:
            self._close()
        if not isinstance(target, gateway.Target):
            self._statuses.append(_status(target))
            self._remove_routes()
            return
        self._statuses += map(_status, target.problems)
        asked = routing.Routing(self._scope, self._related)
        plan = asked.plan(token=route_token.token(self._scope) if asked.needs_token else "")
        self._report(decision, asked, plan)
        self._leave_what_moved(target)
        unasked = routes.unasked(plan.routes)
        if decision.guard and not self._guard(decision.guard, target, unasked):
            return
        self._open_ours(target)
        if not decision.is_closed:
            self._route(target, asked, plan)
        if decision.guard is None:
            self._scope.manifests.remove(guards.FOLDER)
        if not self._is_own(target):
            self._own_gateway.remove()
        if problem := self._annotations.reconcile(target):
            self._statuses.append(ops.BlockedStatus(problem))
        if not target.ready:
            self._statuses.append(ops.WaitingStatus(f"gateway {target.reference} is not ready"))
        self._statuses += map(ops.ActiveStatus, target.notes)

    def _announce(self, target: gateway.Target | gateway.Refusal) -> None:
        """Tell related applications which Gateway there is, and how the model is reached."""
        opened = self._find_gateway()
        is_ready = isinstance(target, gateway.Target) and target.ready
        self.is_up = opened is not None and is_ready
        # With routing=gateway-api there is no Gateway of Istio's own kind.
        self.announced.gateway(up=self.is_up and self._find_istio_gateway() is not None)
        if said := self.announced.controllers():
            self._statuses.append(ops.BlockedStatus(said))
        if self._related.is_related(*kubeflow.INGRESS_ROUTES):
            has_tls = bool(gateway.credential(opened) or gateway_api.credential(opened))
            self.announced.routed(target, has_tls=has_tls, services=self._services)

    @property
    def _services(self) -> list[cluster.Object]:
        return self._scope.cluster.list(cluster.SERVICE)

    def decided(self) -> authorization.Decision:
        """Decide which authorization service is asked; nothing is written."""
        return authorization.decide(
            kubeflow.ingress_auth(self._related),
            forward_auth.received(self._related),
            strict=self._scope.config.require_authentication,
            application=self._scope.application,
            model=self._scope.model,
            domain=self._scope.cluster_domain,
            services={observed.reference(each) for each in self._services},
        )

    def _leave_what_moved(self, target: gateway.Target) -> None:
        """Have a gateway forget routes at hosts and ports that will not be guarded any more."""
        opened = self._find_gateway()
        found = self._scope.manifests.owned_in(guards.FOLDER)
        is_guarded_here = all(map(target.has_guard, found))
        if opened is not None and not (is_guarded_here and self._is_served(opened, target)):
            logger.info("The gateway, its hosts or its ports change: routes come back with them.")
            self._remove_routes()
            self._sleep(SETTLE)
        if not is_guarded_here:
            # At another workload it is a new guard, which does not see earlier connections.
            self._scope.manifests.remove(guards.FOLDER)

    def _is_served(self, opened: cluster.Object, target: gateway.Target) -> bool:
        """Tell whether whatever a Gateway of ours serves stays served, and guarded."""
        if gateway_api.is_ours_alone(opened):
            # There everything is guarded, whatever its hosts are.
            return self._managed.is_at(target)
        return gateway.is_served(opened, target)

    def _guard(
        self, guard: authorization.Guard, target: gateway.Target, unasked: Sequence[str] = ()
    ) -> bool:
        """Put up the guard; tell whether every connection of the gateway passes it.

        Args:
            guard: Who is asked.
            target: Where.
            unasked: The names of routes about which nobody is.
        """
        served = self._find_gateway()
        context = guards.context(
            guard,
            target,
            owner=self._scope.manifests.owner,
            model=self._scope.model,
            domain=self._scope.cluster_domain,
            redirects=served is None or gateway.redirects(served),
            unasked=unasked,
        )
        if guard.service and (left := set(unasked) - set(context.unasked)):
            self._statuses.append(ops.BlockedStatus(guards.too_many(len(left))))
        steps = guard_change.filters_first(lambda: self._sleep(SETTLE))
        put_up = _created(self._scope.manifests.apply(guards.FOLDER, context, steps)[0])
        if served is None and target.is_own:
            # No client is connected yet; but istiod hears of each kind of object by itself.
            self._sleep(SETTLE)
            return True
        is_first = served is not None and _created(served) > put_up
        if is_first or self._now() - put_up >= DRAINED_AFTER:
            return True
        self._close()
        self._statuses.append(
            ops.WaitingStatus("ingress: waiting a minute for the gateway's earlier connections")
        )
        return False

    def _open_ours(self, target: gateway.Target) -> None:
        opened = self._find_gateway()
        shown = gateway.credential(opened) or gateway_api.credential(opened)
        credential = self.certificate.credential(target, shown=shown)
        self._statuses += self.certificate.statuses()
        self._open_gateway(target, credential)
        self.certificate.prune()

    def _open_gateway(self, target: gateway.Target, credential: str) -> None:
        context = gateway.Context.of(target, credential)
        if self.certificate.is_wanted and not target.https_port:
            service = f"{target.namespace}/{target.service}"
            self._statuses.append(ops.BlockedStatus(f"Service {service} has no port for HTTPS"))
        if not (context.http_port or context.https_port):
            self._statuses.append(
                ops.BlockedStatus(
                    f"gateway {target.reference} has an https port only: integrate certificates "
                    "or set tls-secret"
                )
            )
            return
        if self._managed.is_at(target):
            self._managed.open(target, credential)
        else:
            self._scope.manifests.apply(gateway.FOLDER, context)

    def _route(self, target: gateway.Target, asked: routing.Routing, plan: routes.Plan) -> None:
        if self._managed.is_at(target):
            said = asked.write_grpc(plan.routes, target)
            served, problems = self._http.route(plan.routes)
            problems = [*problems, *([said] if said else [])]
        else:
            served, problems = asked.apply(plan, target)
        self._statuses += map(ops.BlockedStatus, problems)
        self._statuses += map(ops.ActiveStatus, plan.notes)
        if served:
            count = f"{len(served)} route{'s' if len(served) > 1 else ''}"
            self._statuses.append(ops.ActiveStatus(f"{count} by {target.reference}"))

    def _report(
        self, decision: authorization.Decision, asked: routing.Routing, plan: routes.Plan
    ) -> None:
        for problem in plan.problems:
            logger.warning("%s.", problem)
            self._statuses.append(ops.BlockedStatus(problem))
        for endpoint, names in asked.silent.items():
            self._statuses.append(ops.WaitingStatus(f"waiting for {names} on {endpoint}"))
        if decision.blocked:
            self._statuses.append(ops.BlockedStatus(decision.blocked))
        if decision.waiting:
            self._statuses.append(ops.WaitingStatus(decision.waiting))

    def _withdraw(self) -> None:
        """Take away what nobody is related for any more; the guard outlives the routes."""
        try:
            if not self._remove_routes():
                self._remove_rest()
        except errors.ForbiddenError:
            # Nothing was ever made without the right to see it.
            logger.debug("The ingress can't be listed, so none of it was made here.")

    def _remove_routes(self) -> bool:
        """Remove routes and Gateway; tell whether there were any."""
        there = self._find_istio_gateway() is not None
        routing.remove(self._scope)
        self._scope.manifests.remove(gateway.FOLDER)
        was_routed = self._http.close()
        return self._managed.remove() or there or was_routed

    def _close(self) -> None:
        routing.remove(self._scope)
        self._http.close()

    def _remove_rest(self) -> None:
        self._scope.manifests.remove(guards.FOLDER)
        self.certificate.remove()
        self._annotations.remove()
        self._own_gateway.remove()
        self._scope.manifests.remove(route_token.FOLDER)

    def _find_gateway(self) -> cluster.Object | None:
        return self._find_istio_gateway() or self._managed.find()

    def _find_istio_gateway(self) -> cluster.Object | None:
        return self._scope.manifests.own(cluster.GATEWAY, gateway.NAME)


def _created(obj: cluster.Object) -> datetime.datetime:
    return datetime.datetime.fromisoformat(obj["metadata"]["creationTimestamp"])


def _status(problem: gateway.Missing | gateway.Refusal) -> ops.StatusBase:
    is_missing = isinstance(problem, gateway.Missing)
    return (ops.WaitingStatus if is_missing else ops.BlockedStatus)(problem.message)
