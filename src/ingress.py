"""The routes of the model: what related applications ask for, behind the gateway and its guard."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import ops
from charms.istio_integrator.v0 import mesh_info

import authentication
import cluster
import component
import errors
import gateway
import gateway_service
import gateway_workload
import mesh
import providers
import relations
import routing
import tls

logger = logging.getLogger(__name__)

GATEWAY_FOLDER = "gateway"
ROUTES_FOLDER = "routes"
GATEWAY_NAME = "kubeflow-gateway"
"""Kubeflow's charms know it by this name, in the model."""
EXPOSING = (relations.INGRESS, relations.INGRESS_AUTH, relations.GATEWAY_INFO)

DRAINED_AFTER = datetime.timedelta(seconds=60)
"""Until connections from before a change of the gateway's filters have ended (Istio's default is
45 s): they would be served our routes without our guard."""
SETTLE = 2.0
"""Seconds in which istiod tells a gateway about removed routes, before their guard may go."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoutesContext:
    """The variables of the templates in routes."""

    routes: Sequence[routing.Route]
    gateway: str
    hosts: Sequence[str]
    export_to: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GatewayContext:
    """The variables of the templates in gateway."""

    name: str
    selector: Mapping[str, str]
    hosts: Sequence[str]
    http_port: int | None
    https_port: int | None
    redirect: bool
    credential: str


class Ingress:
    """Guard, Gateway and routes, in an order that keeps the routes closed at every instant."""

    def __init__(
        self,
        scope: component.Scope,
        related: relations.Relations,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._scope = scope
        self._related = related
        self._sleep = sleep
        self._now = now
        self._tls = tls.Tls(scope, related)
        self._workload = gateway_workload.GatewayWorkload(scope)
        self._service = gateway_service.GatewayService(scope)
        self._statuses: list[ops.StatusBase] = []
        self._opened: gateway.Target | None = None

    def reconcile(self) -> None:
        """Make the model reachable as related applications ask for, or unreachable."""
        self._statuses = []
        if not self._scope.leader:
            return
        found = self._scope.mesh
        if found is not None and found.namespace:
            service = f"{found.service}.{found.namespace}.svc"
            self._related.publish_pilot(service=service, port=15012)
        if not self._related.is_related(*EXPOSING):
            self._withdraw()
        elif found is not None:
            if self._scope.config.gateway_workload:
                self._workload.apply()
            self._expose(self.resolved())
        if found is not None:
            self._related.publish_mesh(self._facts(found))

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
        options, found_mesh = self._scope.config, self._scope.mesh
        own = options.gateway_workload
        wishes = gateway.Wishes(
            model=self._scope.model,
            name=GATEWAY_NAME,
            gateway="" if own else options.gateway,
            selector=self._workload.selector if own else options.gateway_selector,
            service=self._workload.service if own else options.gateway_service,
            hosts=options.hosts,
            only_https=self._only_https,
        )
        found = gateway.look(
            self._scope.cluster,
            istiod_namespace=found_mesh.namespace if found_mesh else "",
            istiod=found_mesh.service if found_mesh else "",
        )
        if not own:
            # Ours ends after the routes have moved to the one that is to serve them.
            others = [one for one in found.workloads if one.reference != self._workload.service]
            found = dataclasses.replace(found, workloads=others)
        return gateway.resolve(wishes, found)

    def _expose(self, target: gateway.Target | gateway.Missing | gateway.Refusal) -> None:
        if not isinstance(target, gateway.Target):
            # What is there stays: closing a model for an option's sake helps nobody.
            status = (
                ops.WaitingStatus if isinstance(target, gateway.Missing) else ops.BlockedStatus
            )
            self._statuses.append(status(target.message))
            self._publish(up=False)
            if isinstance(target, gateway.Refusal) and target.target:
                self._spare_newcomers(target.target)
            return
        decision = self._decide()
        received = self._related.ingress()
        self._report(decision, received)
        if decision.is_closed:
            self._scope.manifests.remove(ROUTES_FOLDER)
        self._leave_what_moved(target)
        if decision.guard and not self._guard(decision.guard, target):
            self._publish(up=False)
            return
        credential = self._tls.credential(target, shown=self._shown)
        self._statuses += self._tls.statuses()
        served = self._open_gateway(target, credential)
        self._tls.prune()
        if not decision.is_closed:
            self._route(target, received)
        if decision.guard is None:
            self._scope.manifests.remove(authentication.FOLDER)
        if not self._scope.config.gateway_workload:
            self._workload.remove()
        if problem := self._service.reconcile(target):
            self._statuses.append(ops.BlockedStatus(problem))
        if not target.ready:
            self._statuses.append(ops.WaitingStatus(f"gateway {target.reference} is not ready"))
        self._publish(up=served and target.ready)

    def _decide(self) -> authentication.Decision:
        return authentication.decide(
            self._related.ingress_auth(),
            strict=self._scope.config.strict_ingress_auth,
            model=self._scope.model,
            domain=self._scope.cluster_domain,
        )

    def _spare_newcomers(self, target: gateway.Target) -> None:
        """Have a guard of all that a gateway serves let those pass who came to it after us."""
        guard = self._decide().guard
        live = self._find_gateway()
        if guard is not None and live is not None and all(self._stays(live, target)):
            self._guard(guard, target)

    def _stays(self, live: cluster.Object, target: gateway.Target) -> tuple[bool, bool]:
        """Tell whether our Gateway stays at its workload, and its hosts and ports as they are."""
        spec = cluster.at(live, "spec")
        same = all(
            server["port"]["number"] in target.ports and server["hosts"] == self._hosts
            for server in cluster.items(spec, "servers")
        )
        return spec.get("selector") == dict(target.selector), same

    def _leave_what_moved(self, target: gateway.Target) -> None:
        """Have a gateway forget routes at hosts and ports that will not be guarded any more."""
        live = self._find_gateway()
        if live is None:
            return
        stays, same = self._stays(live, target)
        if stays and same:
            return
        logger.info("The gateway, its hosts or its ports change: the routes come back with them.")
        self._remove_routes()
        self._sleep(SETTLE)
        if not stays:
            # At another workload it is a new guard, which does not see earlier connections.
            self._scope.manifests.remove(authentication.FOLDER)

    @property
    def _hosts(self) -> list[str]:
        return list(self._scope.config.hosts) or ["*"]

    def _guard(self, guard: authentication.Guard, target: gateway.Target) -> bool:
        """Put up the guard; tell whether every connection of the gateway passes it."""
        if guard.service is not None:
            provider = providers.find(self._scope, guard.service, target.namespace)
            guard = dataclasses.replace(guard, provider=provider)
        context = authentication.context(
            guard,
            target,
            owner=self._scope.manifests.owner,
            gateway=f"{self._scope.model}/{GATEWAY_NAME}",
            hosts=self._scope.config.hosts,
            only_https=self._only_https,
        )
        put_up = _created(self._scope.manifests.apply(authentication.FOLDER, context)[0])
        served = self._find_gateway()
        if served is None and not target.neighbours:
            # Nobody is connected yet; but istiod hears of each kind of object by itself.
            self._sleep(SETTLE)
            return True
        is_first = served is not None and _created(served) > put_up
        if is_first or self._now() - put_up >= DRAINED_AFTER:
            return True
        self._scope.manifests.remove(ROUTES_FOLDER)
        self._statuses.append(
            ops.WaitingStatus("ingress: waiting a minute for the gateway's earlier connections")
        )
        return False

    @property
    def _only_https(self) -> bool:
        """Whether nothing but redirects is served without TLS, also while TLS is not there yet."""
        return self._scope.config.https_redirect and self._tls.is_wanted

    @property
    def _shown(self) -> str:
        """Name the Secret that the Gateway serves HTTPS with; empty while it serves none."""
        servers = cluster.items(cluster.at(self._find_gateway(), "spec"), "servers")
        found = (str(cluster.at(server, "tls").get("credentialName", "")) for server in servers)
        return next(filter(None, found), "")

    def _open_gateway(self, target: gateway.Target, credential: str) -> bool:
        context = GatewayContext(
            name=GATEWAY_NAME,
            selector=target.selector,
            hosts=self._hosts,
            http_port=target.http_port,
            https_port=target.https_port if credential else None,
            redirect=self._only_https,
            credential=credential,
        )
        if self._tls.is_wanted and not target.https_port:
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
        self._scope.manifests.apply(GATEWAY_FOLDER, context)
        self._opened = target
        return True

    def _route(self, target: gateway.Target, received: routing.Requests) -> None:
        found = routing.routes(
            received,
            model=self._scope.model,
            application=self._scope.application,
            domain=self._scope.cluster_domain,
        )
        exported = (".",) if target.namespace == self._scope.model else (".", target.namespace)
        context = RoutesContext(
            routes=found,
            gateway=f"{self._scope.model}/{GATEWAY_NAME}",
            hosts=self._hosts,
            export_to=exported,
        )
        self._scope.manifests.apply(ROUTES_FOLDER, context)
        if found:
            count = f"{len(found)} route{'s' if len(found) > 1 else ''}"
            self._statuses.append(ops.ActiveStatus(f"{count} by {target.reference}"))

    def _report(self, decision: authentication.Decision, received: routing.Requests) -> None:
        for problem in routing.problems(received):
            logger.warning("%s.", problem)
            self._statuses.append(ops.BlockedStatus(problem))
        silent = [one for one in received if one.message is None and not one.problem]
        if silent:
            self._statuses.append(
                ops.WaitingStatus(f"waiting for {relations.names(silent)} on ingress")
            )
        if decision.blocked:
            self._statuses.append(ops.BlockedStatus(decision.blocked))
        if decision.waiting:
            self._statuses.append(ops.WaitingStatus(decision.waiting))

    def _publish(self, *, up: bool) -> None:
        self._related.publish_gateway(name=GATEWAY_NAME, namespace=self._scope.model, up=up)

    def _facts(self, found: mesh.Mesh) -> dict[str, str]:
        facts = mesh_info.MeshInfo(
            root_namespace=found.root_namespace,
            istiod_namespace=found.namespace,
            revision=found.revision,
            version=found.version,
            gateway_name=GATEWAY_NAME if self._opened else "",
            gateway_namespace=self._scope.model if self._opened else "",
            gateway_workload_namespace=self._opened.namespace if self._opened else "",
        ).write()
        if self._opened or not self._related.is_related(*EXPOSING):
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
        there = self._find_gateway() is not None
        self._scope.manifests.remove(ROUTES_FOLDER)
        self._scope.manifests.remove(GATEWAY_FOLDER)
        return there

    def _remove_rest(self) -> None:
        self._scope.manifests.remove(authentication.FOLDER)
        self._tls.remove()
        self._service.remove()
        self._workload.remove()

    def _find_gateway(self) -> cluster.Object | None:
        kind = cluster.kind("networking.istio.io/v1", "Gateway")
        found = self._scope.cluster.get(kind, GATEWAY_NAME, self._scope.model)
        owner = self._scope.manifests.owner
        marks = cluster.at(found, "metadata", "labels")
        return found if marks.get("istio-integrator.charmhub.io/owner") == owner else None


def _created(obj: cluster.Object) -> datetime.datetime:
    return datetime.datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
