"""The routes of the model: the gateway serves what related applications request."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import sleep

from integrator_contract.seen import Expectation, Seen
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
from istio_integrator.istio import injectors
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Said
from istio_integrator.relations import endpoints, ingress_route, kubeflow

logger = logging.getLogger(__name__)

GONE_WITHIN = 10
"""Seconds for which a hook waits until the gateway's Envoy has no server of ours. Routes of other
teams on our Gateway depend on it; ours match nothing without the EnvoyFilter."""


class Ingress(parts.Part):
    """EnvoyFilter, routes and Gateway, in this order, and removed in the reverse one."""

    name = "ingress"

    def __init__(
        self,
        scope: parts.Context,
        related: endpoints.Relations,
        look: Callable[[], Seen | None] = lambda: None,
    ) -> None:
        self._scope = scope
        self._related = related
        self._look = look
        self._record = record.Record(scope)
        self.certificate = certificate.GatewayCertificate(scope, related, self._record)
        self._own_gateway = own_gateway.OwnGateway(scope)
        self._managed = managed_gateway.ManagedGateway(scope)
        self._annotations = service_annotations.ServiceAnnotations(scope)
        self._messages: list[Message] = []
        self.is_up: bool | None = None
        """Whether the Gateway of the model is there and a pod of the gateway is ready; None where
        no application is to be reached."""
        self.expected: Expectation | None = None
        """What the gateway's Envoys should have; None where nothing was written."""

    def reconcile(self) -> list[Message]:
        """Make the model reachable as related applications ask for, or unreachable.

        Returns:
            How the model is reached, or what it takes.
        """
        self._messages = []
        if not self._scope.leader:
            return self._messages
        kubeflow.publish_routed(self._related)
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
            self._announce(target, self._expose(target))
        return self._messages

    def remove(self) -> None:
        """Remove everything, the EnvoyFilter once the gateway has no server of ours."""
        self._close()
        self._scope.manifests.remove(guards.FOLDER)
        self.certificate.remove()
        self._annotations.remove()
        self._own_gateway.remove()
        self._record.remove()

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
            kubeflow.forward_auth(self._related),
            strict=self._scope.config.require_authentication,
            application=self._scope.application,
            model=self._scope.model,
            domain=self._scope.cluster_domain,
            services={observed.reference(each) for each in self._services},
        )

    def _expose(self, target: gateway.Target | Message) -> cluster.Object | None:
        """Have the gateway serve the model; return our Gateway, None where there is none."""
        if not isinstance(target, gateway.Target):
            self._messages.append(target)
            self._close()
            return None
        self._messages += target.messages
        asked = routing.Routing(self._scope, self._related)
        plan = asked.plan()
        self._report(asked, plan)
        opened = self._find_gateway()
        if opened is not None and not _is_at(opened, target):
            logger.info("The gateway changes.")
            self._close()
            opened = None
        values, filters = self._guard(target, plan.routes)
        served, problems = asked.apply(plan, target, values)
        self._messages += problems
        credential = self.certificate.credential(target, shown=gateway.credential(opened))
        self._messages += self.certificate.messages
        guard = self.decision.guard
        expected = seen.expect(
            target,
            seen.servers(target, opened, has_tls=bool(credential)),
            served,
            guard.service if guard else None,
            model=self._scope.model,
            filters=filters,
            entry=guards.ask_entry(self._scope.manifests.owner),
            marks=(values.asked, values.free, values.root),
        )
        answer = self._look()
        hosts = seen.open_hosts(expected, answer, target.written_hosts, seen.hidden_host(opened))
        opened = self._open(target, credential, hosts) or opened
        self.certificate.prune()
        servers = seen.servers(target, opened, has_tls=bool(credential))
        self.expected = dataclasses.replace(expected, servers=servers)
        self._messages += seen.messages(
            self.expected,
            answer,
            target,
            count=0 if self.decision.is_closed else len(served),
            application=self._scope.application,
            istiod=self._scope.mesh.namespace if self._scope.mesh else injectors.USUAL_NAMESPACE,
        )
        if not _is_own(target):
            self._own_gateway.remove()
        if problem := self._annotations.reconcile(target):
            self._messages.append(problem)
        if not target.ready:
            self._messages.append(Said.GATEWAY_NOT_READY(gateway=target.reference))
        wildcards = [host for host in target.hosts if host.startswith("*")]
        if wildcards and not (target.is_own or target.only_https):
            self._messages.append(Said.HOSTS_IN_PLAIN_HTTP(host=wildcards[0]))
        return opened

    def _announce(self, target: gateway.Target | Message, opened: cluster.Object | None) -> None:
        """Tell related applications which Gateway there is, and how the model is reached."""
        scope, related = self._scope, self._related
        is_found = isinstance(target, gateway.Target)
        self.is_up = opened is not None and is_found and target.ready
        # With routing=gateway-api there is no Gateway of Istio's own kind.
        up = self.is_up and not (is_found and target.is_managed)
        kubeflow.publish_gateway(related, name=gateway.NAME, namespace=scope.model, up=up)
        awaited = announced.publish_metadata(scope, related, self._managed)
        self._messages += filter(None, [awaited])
        if related.is_related(*kubeflow.INGRESS_ROUTES):
            ingress_route.answer(
                related,
                external_host=announced.external_host(scope, target, self._services),
                tls_enabled=bool(gateway.credential(opened)),
            )

    @property
    def _services(self) -> list[cluster.Object]:
        return self._scope.cluster.list(cluster.SERVICE)

    def _guard(
        self, target: gateway.Target, served: Iterable[routes.Route]
    ) -> tuple[record.Values, tuple[str, ...]]:
        """Apply the EnvoyFilter; return the values that routes need, and its filters."""
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

    def _open(
        self, target: gateway.Target, credential: str, hosts: Mapping[int, Sequence[str]]
    ) -> cluster.Object | None:
        """Apply our Gateway with its certificate and hosts; None where it would have no port."""
        if self.certificate.is_wanted and not target.https_port:
            service = f"{target.namespace}/{target.service}"
            self._messages.append(Said.GATEWAY_WITHOUT_HTTPS_PORT(service=service))
        if not hosts:
            self._messages.append(Said.GATEWAY_WITHOUT_HTTP_PORT(gateway=target.reference))
            return None
        if target.is_managed:
            return self._managed.open(target, credential, hosts)
        context = gateway.Context(
            name=gateway.NAME, target=target, credential=credential, hosts=hosts
        )
        (opened,) = self._scope.manifests.apply(gateway.FOLDER, context)
        return opened

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

    def _close(self) -> None:
        """Remove routes and Gateway, and wait until the gateway's Envoy has no server of ours."""
        opened = self._find_gateway()
        routing.remove(self._scope)
        self._scope.manifests.remove(gateway.FOLDER)
        self._managed.remove()
        for _ in range(GONE_WITHIN if opened else 0):
            if seen.is_gone(self._look()):
                break
            sleep(1)

    def _find_gateway(self) -> cluster.Object | None:
        opened = self._scope.manifests.own(cluster.GATEWAY, gateway.NAME)
        return opened or self._managed.find()


def _is_own(target: gateway.Target | Message) -> bool:
    """Tell whether a gateway is the workload that this charm itself deploys."""
    return isinstance(target, gateway.Target) and target.is_own and not target.is_managed


def _is_at(opened: cluster.Object, target: gateway.Target) -> bool:
    """Tell whether our Gateway is that of a gateway workload."""
    is_managed = opened.get("apiVersion") == cluster.KUBERNETES_GATEWAY.api_version
    selector = cluster.at(opened, "spec").get("selector")
    return is_managed == target.is_managed and (is_managed or selector == dict(target.selector))
