"""The routes of the model: what related applications ask for, behind the gateway and its guard."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Iterable, Sequence

import ops
from charms.istio_integrator.v0 import mesh_info

from integrator_contract import service
from istio_integrator import parts
from istio_integrator.ingress import (
    certificate,
    gateway,
    gateway_api,
    guard_change,
    guards,
    managed_gateway,
    memory,
    own_gateway,
    placement,
    routes,
    routing,
    service_annotations,
)
from istio_integrator.kube import cluster, errors
from istio_integrator.mesh import installation
from istio_integrator.relations import (
    endpoints,
    forward_auth,
    ingress_route,
    kubeflow,
    mesh_facts,
)

logger = logging.getLogger(__name__)

DRAINED_AFTER = datetime.timedelta(seconds=service.DRAINED_AFTER)
_NAMED = 3
"""Gateways of others that one line of the log names, of however many there are."""
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
        self._certificate = certificate.GatewayCertificate(scope, related)
        self._own_gateway = own_gateway.OwnGateway(scope)
        self._managed = managed_gateway.ManagedGateway(scope)
        self._memory = memory.Memory(scope)
        self._annotations = service_annotations.ServiceAnnotations(scope)
        self._statuses: list[ops.StatusBase] = []
        self._current: gateway.Place | None = None
        self._services: frozenset[str] = frozenset()
        self._addresses: dict[str, str] = {}
        self._has_tls: bool | None = None
        """Whether HTTPS is served; None while this hook has not come to it."""
        self._opened: gateway.Target | None = None

    def reconcile(self) -> None:
        """Make the model reachable as related applications ask for, or unreachable."""
        self._statuses = []
        if not self._scope.leader:
            return
        forward_auth.publish(self._related)
        found = self._scope.mesh
        if found is not None and found.namespace:
            service = f"{found.service}.{found.namespace}.svc"
            kubeflow.publish_pilot(self._related, service=service, port=15012)
        if not self._related.is_related(*kubeflow.EXPOSING):
            self._withdraw()
        elif found is not None:
            if self._scope.config.gateway_workload and not self._managed.is_wanted:
                self._own_gateway.apply()
            target = self.resolved()
            self._expose(target)
            self._answer(target)
        if found is not None:
            mesh_facts.publish(self._related, self._facts(found))

    def remove(self) -> None:
        """Take everything away, the guard last and not before the gateway forgot the routes."""
        self._statuses = []
        if self._remove_routes():
            self._sleep(SETTLE)
        self._remove_rest()

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say how the model is reached, or what it takes."""
        return tuple(self._statuses)

    def resolved(self) -> gateway.Target | gateway.Missing | gateway.Refusal:
        """Look which gateway workload serves the model; nothing is written."""
        placed = placement.Placement(
            self._scope, self._memory, self._managed, self._own_gateway.own
        ).look(
            opened=self._find_istio_gateway() if self._managed.is_wanted else None,
            only_https=self._scope.config.https_redirect and self._certificate.is_wanted,
        )
        self._current, self._services = placed.current, placed.services
        self._addresses = placed.addresses
        return placed.answer

    def _expose(self, target: gateway.Target | gateway.Missing | gateway.Refusal) -> None:
        decision = self._decide()
        if decision.is_closed:
            self._close()
        if not isinstance(target, gateway.Target):
            # What is there stays: closing a model for an option's sake helps nobody.
            self._statuses.append(_status(target))
            self._publish(up=False)
            return
        self._statuses += map(_status, target.problems)
        asked = routing.Routing(self._scope, self._related)
        token = self._memory.token() if asked.needs_token else ""
        plan = asked.plan(target, token=token)
        self._report(decision, asked, plan)
        self._leave_what_moved(target)
        self._memory.remember(target)
        unasked = routes.unasked(plan.routes)
        if decision.guard and not self._guard(decision.guard, target, unasked):
            self._publish(up=False)
            return
        opened = self._find_gateway()
        shown = gateway.credential(opened) or gateway_api.credential(opened)
        credential = self._certificate.credential(target, shown=shown)
        self._statuses += self._certificate.statuses()
        served = self._open_gateway(target, credential)
        self._certificate.prune()
        if not decision.is_closed:
            self._route(target, asked, plan)
        if decision.guard is None:
            self._scope.manifests.remove(guards.FOLDER)
        if not target.is_own or self._managed.is_at(target):
            self._own_gateway.remove()
        self._annotate(target)
        if not target.ready:
            self._statuses.append(ops.WaitingStatus(f"gateway {target.reference} is not ready"))
        for note in target.notes:
            logger.info("%s.", note)
            self._statuses.append(ops.ActiveStatus(note))
        self._publish(up=served and target.ready)
        self._tell_controllers()

    def _decide(self) -> guards.Decision:
        return guards.decide(
            kubeflow.ingress_auth(self._related),
            forward_auth.received(self._related),
            strict=self._scope.config.strict_ingress_auth,
            application=self._scope.application,
            model=self._scope.model,
            domain=self._scope.cluster_domain,
            services=self._services,
        )

    def _annotate(self, target: gateway.Target) -> None:
        """Annotate the Service that is named, not one that serves until that is there."""
        named = self._scope.config.gateway_service
        if not target.is_own and named not in ("", f"{target.namespace}/{target.service}"):
            return
        if problem := self._annotations.reconcile(target):
            self._statuses.append(ops.BlockedStatus(problem))

    def _leave_what_moved(self, target: gateway.Target) -> None:
        """Have a gateway forget routes at hosts and ports that will not be guarded any more."""
        opened = self._find_gateway()
        if opened is None:
            return
        stays = self._current is None or target.is_at(self._current)
        # At a managed one everything is guarded, whatever its hosts are.
        is_open = gateway.is_served(opened, target) or gateway_api.is_ours_alone(opened)
        if stays and is_open:
            return
        logger.info("The gateway, its hosts or its ports change: the routes come back with them.")
        self._remove_routes()
        self._sleep(SETTLE)
        if not stays:
            # At another workload it is a new guard, which does not see earlier connections.
            self._scope.manifests.remove(guards.FOLDER)

    def _guard(
        self, guard: guards.Guard, target: gateway.Target, unasked: Sequence[str] = ()
    ) -> bool:
        """Put up the guard; tell whether every connection of the gateway passes it.

        Args:
            guard: Who is asked.
            target: Where.
            unasked: The names of routes about which nobody is.
        """
        context = guards.context(
            guard,
            target,
            owner=self._scope.manifests.owner,
            model=self._scope.model,
            domain=self._scope.cluster_domain,
            unasked=unasked,
        )
        if guard.service and (left := set(unasked) - set(context.unasked)):
            self._statuses.append(ops.BlockedStatus(guards.too_many(len(left))))
        if names := guards.guarded_too(context, target):
            shown = ", ".join(names[:_NAMED])
            logger.warning("%d Gateways of others are guarded as ours: %s.", len(names), shown)
        guard_change.filters_first(self._scope, context, lambda: self._sleep(SETTLE))
        put_up = _created(self._scope.manifests.apply(guards.FOLDER, context)[0])
        served = self._find_gateway()
        if served is None and not target.neighbours:
            # Nobody is connected yet; but istiod hears of each kind of object by itself.
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

    def _open_gateway(self, target: gateway.Target, credential: str) -> bool:
        context = gateway.Context.of(target, credential)
        if self._certificate.is_wanted and not target.https_port:
            service = f"{target.namespace}/{target.service}"
            self._statuses.append(ops.BlockedStatus(f"Service {service} has no port for HTTPS"))
        if not (context.http_port or context.https_port):
            self._statuses.append(
                ops.BlockedStatus(
                    f"gateway {target.reference} has an https port only: integrate certificates "
                    "or set tls-secret"
                )
            )
            return False
        self._opened = target
        self._has_tls = context.https_port is not None
        if self._managed.is_at(target):
            self._managed.open(target, credential)
        else:
            self._scope.manifests.apply(gateway.FOLDER, context)
        return True

    def _route(self, target: gateway.Target, asked: routing.Routing, plan: routes.Plan) -> None:
        if self._managed.is_at(target):
            said = asked.write_grpc(plan.routes, target)
            served, problems = self._managed.route(plan.routes)
            problems = [*problems, *([said] if said else [])]
        else:
            served, problems = asked.apply(plan, target)
        self._statuses += map(ops.BlockedStatus, problems)
        self._statuses += map(ops.ActiveStatus, plan.notes)
        if served:
            count = f"{len(served)} route{'s' if len(served) > 1 else ''}"
            self._statuses.append(ops.ActiveStatus(f"{count} by {target.reference}"))

    def _report(
        self, decision: guards.Decision, asked: routing.Routing, plan: routes.Plan
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

    def _publish(self, *, up: bool) -> None:
        """Say which Gateway of Istio's own kind there is; a managed one is none."""
        kubeflow.publish_gateway(
            self._related,
            name=gateway.NAME,
            namespace=self._scope.model,
            up=up and not self._is_managed,
        )

    def _tell_controllers(self) -> None:
        """Say which Gateway of the Gateway API there is, or what it takes."""
        said = self._managed.publish(self._related, is_serving=self._is_managed)
        self._statuses += [ops.BlockedStatus(said)] if said else []

    @property
    def _is_managed(self) -> bool:
        return self._opened is not None and self._managed.is_at(self._opened)

    def _answer(self, target: gateway.Target | gateway.Missing | gateway.Refusal) -> None:
        """Tell applications how the model is reached, whether or not they asked for routes yet."""
        if not self._related.is_related(*kubeflow.INGRESS_ROUTES):
            return
        if self._has_tls is None:
            opened = self._find_gateway()
            self._has_tls = bool(gateway.credential(opened) or gateway_api.credential(opened))
        ingress_route.answer(
            self._related, external_host=self._external_host(target), tls_enabled=self._has_tls
        )

    def _external_host(self, target: gateway.Target | gateway.Missing | gateway.Refusal) -> str:
        is_found = isinstance(target, gateway.Target)
        hosts = target.hosts if is_found else self._scope.config.hosts
        for host in hosts:
            if not host.startswith("*"):
                return host
        if not is_found:
            return ""
        name = f"{target.service}.{target.namespace}.svc.{self._scope.cluster_domain}"
        return self._addresses.get(f"{target.namespace}/{target.service}") or name

    def _facts(self, found: installation.Mesh) -> dict[str, str]:
        is_bound = self._opened is not None and not self._is_managed
        facts = mesh_info.MeshInfo(
            root_namespace=found.root_namespace,
            istiod_namespace=found.namespace,
            revision=found.revision,
            version=found.version,
            gateway_name=gateway.NAME if is_bound else "",
            gateway_namespace=self._scope.model if is_bound else "",
            gateway_workload_namespace=self._opened.namespace if self._opened else "",
        ).write()
        if self._opened or not self._related.is_related(*kubeflow.EXPOSING):
            return facts
        # While nobody knows which gateway it is to be, the one that there was serves on.
        return {key: value for key, value in facts.items() if not key.startswith("gateway_")}

    def _withdraw(self) -> None:
        """Take away what nobody is related for any more; the guard outlives the routes."""
        try:
            if not self._remove_routes():
                self._remove_rest()
        except errors.ForbiddenError:
            # Nothing was ever made without the right to see it.
            logger.debug("Nothing of the ingress can be seen, so there is nothing of ours.")

    def _remove_routes(self) -> bool:
        """Remove routes and Gateway; tell whether there was one."""
        there = self._find_istio_gateway() is not None
        routing.remove(self._scope)
        self._scope.manifests.remove(gateway.FOLDER)
        return self._managed.remove() or there

    def _close(self) -> None:
        routing.remove(self._scope)
        self._managed.close()

    def _remove_rest(self) -> None:
        self._scope.manifests.remove(guards.FOLDER)
        self._certificate.remove()
        self._annotations.remove()
        self._own_gateway.remove()
        self._memory.forget()

    def _find_gateway(self) -> cluster.Object | None:
        return self._find_istio_gateway() or self._managed.find()

    def _find_istio_gateway(self) -> cluster.Object | None:
        found = self._scope.cluster.get(cluster.GATEWAY, gateway.NAME, self._scope.model)
        return found if self._scope.manifests.is_ours(found) else None


def _created(obj: cluster.Object) -> datetime.datetime:
    return datetime.datetime.fromisoformat(obj["metadata"]["creationTimestamp"])


def _status(problem: gateway.Missing | gateway.Refusal) -> ops.StatusBase:
    is_missing = isinstance(problem, gateway.Missing)
    return (ops.WaitingStatus if is_missing else ops.BlockedStatus)(problem.message)
