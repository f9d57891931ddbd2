"""The routes of the model: the gateway serves what related applications request."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from integrator_contract import seen as contract
from istio_integrator import parts
from istio_integrator.ingress import (
    announced,
    authorization,
    certificate,
    gateway,
    gateways,
    guards,
    managed_gateway,
    observed,
    own_gateway,
    record,
    routes,
    routing,
    seen,
    service_annotations,
)
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Said
from istio_integrator.relations import endpoints, forward_auth, kubeflow

logger = logging.getLogger(__name__)

SETTLE = 2.0
"""Seconds until istiod has told a gateway of a new EnvoyFilter, or that our Gateway is gone. Only
routes of other teams on our Gateway depend on it; ours match nothing without the EnvoyFilter."""


class Ingress(parts.Part):
    """EnvoyFilter, Gateway and routes, in this order, and removed in the reverse one."""

    name = "ingress"

    def __init__(
        self,
        scope: parts.Context,
        related: endpoints.Relations,
        *,
        look: Callable[[], contract.Seen | None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._scope = scope
        self._related = related
        self._look = look
        self._sleep = sleep
        self._record = record.Record(scope)
        self.certificate = certificate.GatewayCertificate(scope, related, self._record)
        self._own_gateway = own_gateway.OwnGateway(scope)
        self._managed = managed_gateway.ManagedGateway(scope)
        self.announced = announced.Announced(scope, related, self._managed)
        self._annotations = service_annotations.ServiceAnnotations(scope)
        self._messages: list[Message] = []
        self.is_up: bool | None = None
        """Whether the Gateway of the model is there and a pod of the gateway is ready; None where
        no application is to be reached."""
        self.expected: contract.Expectation | None = None
        """What the gateway's Envoys should have; None while no route is written."""

    def reconcile(self) -> None:
        """Make the model reachable as related applications ask for, or unreachable."""
        self._messages = []
        if not self._scope.leader:
            return
        forward_auth.publish(self._related)
        found = self._scope.mesh
        if found is not None and found.pilot is not None:
            service, port = found.pilot
            kubeflow.publish_pilot(self._related, service=service, port=port)
        if not self.is_wanted:
            self._withdraw()
        elif found is not None:
            logger.debug("Authentication: %s.", self.decision.word)
            self.is_up = False
            target = self.target
            if _is_own(target):
                target = self._own_gateway.apply() or target
            self._expose(target)
            self._announce(target)

    def remove(self) -> None:
        """Remove everything, the EnvoyFilter once the gateway has no routes."""
        self._messages = []
        if self._remove_routes():
            self._sleep(SETTLE)
        self._scope.manifests.remove(guards.FOLDER)
        self.certificate.remove()
        self._annotations.remove()
        self._own_gateway.remove()
        self._record.remove()

    def messages(self) -> Iterable[Message]:
        """Say how the model is reached, or what it takes."""
        return tuple(self._messages)

    @property
    def is_wanted(self) -> bool:
        """Whether an application is related that has the model reached."""
        return self._related.is_related(*kubeflow.EXPOSING)

    @functools.cached_property
    def target(self) -> gateway.Target | Message:
        """The gateway that serves the model; looking for it writes nothing."""
        only_https = self._scope.config.https_redirect and self.certificate.is_wanted
        return gateways.resolve(
            self._scope, self._own_gateway, self._managed, only_https=only_https
        )

    @functools.cached_property
    def decision(self) -> authorization.Decision:
        """What authenticates requests."""
        return authorization.decide(
            kubeflow.ingress_auth(self._related),
            forward_auth.received(self._related),
            strict=self._scope.config.require_authentication,
            application=self._scope.application,
            model=self._scope.model,
            domain=self._scope.cluster_domain,
            services={observed.reference(each) for each in self._services},
        )

    def _expose(self, target: gateway.Target | Message) -> None:
        if not isinstance(target, gateway.Target):
            self._messages.append(target)
            self._remove_routes()
            return
        self._messages += target.messages
        asked = routing.Routing(self._scope, self._related)
        plan = asked.plan()
        self._report(asked, plan)
        opened = self._find_gateway()
        if opened is not None and not _is_at(opened, target):
            logger.info("The gateway changes: routes come back at the next one.")
            self._remove_routes()
            self._sleep(SETTLE)
            opened = None
        values, filters = self._guard(target, plan.routes)
        if opened is None:
            self._sleep(SETTLE)
        self._open(target, opened)
        served, problems = asked.apply(plan, target, values)
        self._messages += problems
        if served and not self.decision.is_closed:
            self._say_what_is_seen(target, served, values, filters)
        if not _is_own(target):
            self._own_gateway.remove()
        if problem := self._annotations.reconcile(target):
            self._messages.append(problem)
        if not target.ready:
            self._messages.append(Said.GATEWAY_NOT_READY(gateway=target.reference))
        wildcards = [host for host in target.hosts if host.startswith("*")]
        if wildcards and not (target.is_own or target.only_https):
            self._messages.append(Said.HOSTS_IN_PLAIN_HTTP(host=wildcards[0]))

    def _announce(self, target: gateway.Target | Message) -> None:
        """Tell related applications which Gateway there is, and how the model is reached."""
        opened = self._find_gateway()
        is_ready = isinstance(target, gateway.Target) and target.ready
        self.is_up = opened is not None and is_ready
        # With routing=gateway-api there is no Gateway of Istio's own kind.
        self.announced.gateway(up=self.is_up and self._find_istio_gateway() is not None)
        self._messages += filter(None, [self.announced.controllers()])
        if self._related.is_related(*kubeflow.INGRESS_ROUTES):
            has_tls = bool(gateway.credential(opened))
            self.announced.routed(target, has_tls=has_tls, services=self._services)

    @property
    def _services(self) -> list[cluster.Object]:
        return self._scope.cluster.list(cluster.SERVICE)

    def _say_what_is_seen(
        self,
        target: gateway.Target,
        served: Sequence[routes.Route],
        values: record.Values,
        filters: tuple[str, ...],
    ) -> None:
        opened, mesh = self._find_gateway(), self._scope.mesh
        guard = self.decision.guard
        self.expected = seen.expect(
            target,
            opened,
            served,
            guard.service if guard else None,
            model=self._scope.model,
            has_tls=bool(gateway.credential(opened)),
            filters=filters,
            marks=(values.asked, values.free, values.root),
        )
        istiod = mesh.namespace if mesh else ""
        self._messages += seen.messages(
            self.expected, self._look(), target, count=len(served), istiod=istiod
        )

    def _guard(
        self, target: gateway.Target, served: Iterable[routes.Route]
    ) -> tuple[record.Values, tuple[str, ...]]:
        """Apply the EnvoyFilter; return the values that routes need, and the filters' names."""
        guard = self.decision.guard
        values = self._record.values_for(guards.access(guard, target, served))
        context = guards.context(
            guard,
            target,
            values,
            served,
            owner=self._scope.manifests.owner,
            model=self._scope.model,
            domain=self._scope.cluster_domain,
        )
        written = self._scope.manifests.apply(guards.FOLDER, context)
        return values, seen.filters_of(written)

    def _open(self, target: gateway.Target, opened: cluster.Object | None) -> None:
        """Apply our Gateway with its certificate."""
        credential = self.certificate.credential(target, shown=gateway.credential(opened))
        self._messages += self.certificate.messages()
        if self.certificate.is_wanted and not target.https_port:
            service = f"{target.namespace}/{target.service}"
            self._messages.append(Said.GATEWAY_WITHOUT_HTTPS_PORT(service=service))
        if not (target.http_port or (credential and target.https_port)):
            self._messages.append(Said.GATEWAY_WITHOUT_HTTP_PORT(gateway=target.reference))
        elif target.is_managed:
            self._managed.open(target, credential)
        else:
            self._scope.manifests.apply(gateway.FOLDER, gateway.Context.of(target, credential))
        self.certificate.prune()

    def _report(self, asked: routing.Routing, plan: routes.Plan) -> None:
        # Juju shows the first of equally severe statuses. A closed ingress fails every request.
        self._messages += filter(None, [self.decision.problem])
        for problem in plan.problems:
            logger.warning("%s.", problem)
            self._messages.append(Said.REQUEST_INVALID(request=problem))
        for endpoint, names in asked.silent.items():
            self._messages.append(Said.APPLICATION_SILENT(applications=names, endpoint=endpoint))

    def _withdraw(self) -> None:
        """Remove everything when no application is related any more."""
        try:
            self.remove()
        except errors.ForbiddenError:
            # Nothing was ever made without the right to see it.
            logger.debug("The ingress can't be listed, so none of it was made here.")

    def _remove_routes(self) -> bool:
        """Remove routes and Gateway; tell whether there was a Gateway."""
        opened = self._find_gateway()
        routing.remove(self._scope)
        self._scope.manifests.remove(gateway.FOLDER)
        self._managed.remove()
        return opened is not None

    def _find_gateway(self) -> cluster.Object | None:
        return self._find_istio_gateway() or self._managed.find()

    def _find_istio_gateway(self) -> cluster.Object | None:
        return self._scope.manifests.own(cluster.GATEWAY, gateway.NAME)


def _is_own(target: gateway.Target | Message) -> bool:
    """Tell whether a gateway is the workload that this charm itself deploys."""
    return isinstance(target, gateway.Target) and target.is_own and not target.is_managed


def _is_at(opened: cluster.Object, target: gateway.Target) -> bool:
    """Tell whether our Gateway is that of a gateway workload."""
    is_managed = opened.get("apiVersion") == cluster.KUBERNETES_GATEWAY.api_version
    selector = cluster.at(opened, "spec").get("selector")
    return is_managed == target.is_managed and (is_managed or selector == dict(target.selector))
