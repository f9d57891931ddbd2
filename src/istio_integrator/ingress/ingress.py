"""The component for ingress, which serves the routes that related applications request."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence

from integrator_contract.seen import Expectation
from istio_integrator import error_messages
from istio_integrator.asked import gateway
from istio_integrator.asked.gateways import managed, named
from istio_integrator.component import Component
from istio_integrator.facts import Facts
from istio_integrator.ingress import (
    certificate,
    envoyfilter,
    own_gateway,
    record,
    render,
    seen,
    service_annotations,
)
from istio_integrator.kube import cluster, errors, manifests
from istio_integrator.messages import Message, Template
from istio_integrator.relations import ingress_route, kubeflow

logger = logging.getLogger(__name__)

_ISTIO_GATEWAY = "gateway"
_KUBERNETES_GATEWAY = "managed-gateway"
"""Folders of templates, by the API of the Gateway."""
GONE_WITHIN = 10
"""Seconds for which a hook waits until the gateway's Envoy has no server of this charm's Gateway.
Other teams' routes on this Gateway would be served without authentication if the EnvoyFilter were
removed earlier. The charm's own routes match nothing without the EnvoyFilter."""


class Ingress(Component):
    """Applies EnvoyFilter, routes and Gateway in this order; removes the EnvoyFilter last."""

    name = "ingress"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._related = facts.situation.related
        self._record = record.Record(facts.situation)
        self.certificate = certificate.GatewayCertificate(facts.situation, self._record)
        self._messages: list[Message] = []
        self.is_up: bool | None = None
        """Whether the model's Gateway exists and a pod of the gateway is ready; None if no
        application requests ingress."""
        self.expected: Expectation | None = None
        """The expected configuration of the gateway's Envoys; None if nothing was written."""

    def reconcile(self) -> list[Message]:
        """Serve the model as related applications request, or remove the ingress."""
        self._messages = []
        if not self._situation.leader:
            return self._messages
        kubeflow.publish_routed(self._related)
        found = self._facts.mesh
        if found is not None and found.pilot is not None:
            service, port = found.pilot
            kubeflow.publish_pilot(self._related, service=service, port=port)
        if not self._situation.is_exposed:
            # Without the permission to list the objects, the charm has never created any.
            with self._situation.cluster.skip_if_forbidden():
                self.remove()
                self._report_options()
        elif found is not None:
            logger.debug("Authentication: %s.", self._facts.authentication.guard_state)
            self.is_up = False
            target = self._facts.gateway_target
            if isinstance(target, gateway.Target) and target.is_deployed_here:
                target = own_gateway.apply(self._situation, found, target) or target
            if isinstance(target, gateway.Target):
                target = self._keep_accepted_hosts(target)
            self._publish_gateway(target, self._expose_model(target))
        return self._messages

    def remove(self) -> None:
        """Remove all objects."""
        self.remove_gateway()
        self.remove_routes()
        self.remove_guard()

    def remove_gateway(self) -> None:
        """Remove the Gateway, without waiting until its servers are gone from Envoy."""
        for folder in (_ISTIO_GATEWAY, _KUBERNETES_GATEWAY):
            self._situation.manifests.remove(folder)

    def remove_routes(self) -> None:
        """Remove the routes, and what the charm keeps or changes for them."""
        service_annotations.remove(self._situation, self._record)
        render.remove_routes(self._situation)
        self.certificate.remove()
        self._record.remove()

    def remove_guard(self) -> None:
        """Remove the EnvoyFilter after the servers are gone, then the model's own gateway."""
        if self._situation.manifests.list_owned_in(envoyfilter.FOLDER):
            self._wait_until_gone()
        for folder in (envoyfilter.FOLDER, own_gateway.FOLDER):
            self._situation.manifests.remove(folder)

    @property
    def _redirects_to_https(self) -> bool:
        return self._situation.config.https_redirect and self.certificate.is_wanted

    def _expose_model(self, target: gateway.Target | Message) -> cluster.Object | None:
        if not isinstance(target, gateway.Target):
            self._messages.append(target)
            self._remove_routes_and_gateway()
            if target.template in named.TAKEN:
                # This guard would reject what the other integrator's guard admits.
                self._situation.manifests.remove(envoyfilter.FOLDER)
            return None
        self._messages += target.messages
        self._report_requests()
        opened = self._find_gateway()
        if opened is not None and not _is_of_target(opened, target):
            logger.info("The gateway changes.")
            self._remove_routes_and_gateway()
            opened = None
        decision, routes = self._facts.authentication, self._facts.route_plan.routes
        values = self._record.renew_values(envoyfilter.list_access(decision, target, routes))
        latest, *filters = envoyfilter.apply(self._situation, decision, target, values, routes)
        served, problems = render.apply_routes(self._situation, routes, target, values)
        self._messages += problems
        credential = self.certificate.apply(target)
        self._messages += self.certificate.messages
        clusters = {
            f"outbound|{one.port}||{one.service}.{self._situation.domain}" for one in served
        }
        if decision.service:
            clusters.add(decision.service.cluster)
        matches = sum(len(entry.uris) for route in served for entry in route.entries)
        expected = Expectation(
            namespace=target.namespace,
            selector=dict(target.selector),
            gateway=f"{self._situation.model}/{gateway.NAME}",
            servers=seen.list_servers(target, opened, has_tls=bool(credential)),
            hosts=() if target.is_own else tuple(target.written_hosts),
            filters=tuple(filters),
            latest=latest,
            entry=envoyfilter.name_authentication_entry(self._situation.manifests.owner),
            # An HTTPRoute has one match.
            routes=len(served) if target.is_managed else matches,
            marks=(values.asked, values.free, values.root),
            proof=(values.metadata, values.seen),
            istiod=self._facts.mesh.injector.namespace if self._facts.mesh else "",
            clusters=tuple(sorted(clusters)),
        )
        if target.is_deployed_here:
            self._messages += own_gateway.report_port_conflicts(self._situation, target, opened)
        answer = self._facts.envoy_state
        # HTTP would carry what HTTPS has protected.
        is_lost = self.certificate.is_wanted and bool(self._record.certificate_namespace)
        hosts = seen.decide_hosts(
            expected, answer, target, opened, is_closed=is_lost and not credential
        )
        opened = self._apply_gateway(target, credential, hosts) or opened
        self.certificate.prune()
        servers = seen.list_servers(target, opened, has_tls=bool(credential))
        self.expected = dataclasses.replace(expected, servers=servers)
        count = 0 if decision.is_closed else len(served)
        self._messages += seen.report(self._situation, self.expected, answer, target, count)
        if not target.is_deployed_here:
            self._situation.manifests.remove(own_gateway.FOLDER)
        if problem := service_annotations.apply(self._situation, target, self._record):
            self._messages.append(problem)
        if not target.ready:
            place = {"gateway": target.reference, "namespace": target.namespace}
            self._messages.append(Template.GATEWAY_NOT_READY(**place))
        wildcards = [host for host in target.hosts if host.startswith("*")]
        if wildcards and not (target.is_own or self._redirects_to_https):
            self._messages.append(Template.HOSTS_IN_PLAIN_HTTP(host=wildcards[0]))
        return opened

    def _report_options(self) -> None:
        """Report options that name no possible gateway before an application needs one."""
        config = self._situation.config
        if config.gateway_service or config.routing == "gateway-api":
            target = self._facts.gateway_target
            self._messages += [target] if isinstance(target, Message) else []

    def _report_requests(self) -> None:
        # Juju shows the first of equally severe statuses. A closed ingress fails every request.
        self._messages += filter(None, [self._facts.authentication.problem])
        for problem in self._facts.route_plan.problems:
            logger.warning("%s.", problem)
            self._messages.append(Template.REQUEST_INVALID(request=problem))
        for endpoint in kubeflow.ROUTING:
            received = (one for one in self._facts.route_requests if one.endpoint == endpoint)
            silent = [one for one in received if one.message is None and not one.problem]
            if names := kubeflow.format_senders(silent):
                said = Template.APPLICATION_SILENT(applications=names, endpoint=endpoint)
                self._messages.append(said)

    def _apply_gateway(
        self, target: gateway.Target, credential: str, hosts: Mapping[int, Sequence[str]]
    ) -> cluster.Object | None:
        """Apply this charm's Gateway with its certificate and hosts; None if it has no port."""
        if self._situation.config.https_redirect and not self.certificate.is_wanted:
            application = self._situation.application
            self._messages.append(Template.REDIRECT_WITHOUT_CERTIFICATE(application=application))
        if self.certificate.is_wanted and not target.https_port:
            self._messages.append(Template.GATEWAY_WITHOUT_HTTPS_PORT(service=target.reference))
        if not hosts:
            self._messages.append(
                Template.GATEWAY_WITHOUT_HTTP_PORT(
                    gateway=target.reference, application=self._situation.application
                )
            )
            return None
        rendered = self._describe_gateway(target, credential, hosts)
        return self._situation.manifests.apply(*rendered)[-1]

    def _describe_gateway(
        self, target: gateway.Target, credential: str, hosts: Mapping[int, Sequence[str]]
    ) -> tuple[str, manifests.Context]:
        """Return the folder of the Gateway's templates and their variables."""
        context = {
            "name": gateway.NAME,
            "target": target,
            "credential": credential,
            "hosts": hosts,
            "only_https": self._redirects_to_https,
        }
        if not target.is_managed:
            return _ISTIO_GATEWAY, context
        situation, mesh = self._situation, self._facts.mesh
        return _KUBERNETES_GATEWAY, {
            **context,
            "gateway_class": managed.find_class(situation),
            "revision": "" if mesh is None or mesh.injector.is_default else mesh.injector.revision,
            # The name of an EnvoyFilter in the model, which must differ from that of the guard.
            "redirect": f"istio-integrator.{situation.manifests.owner}.https".lower(),
        }

    def _keep_accepted_hosts(self, target: gateway.Target) -> gateway.Target:
        """Return the target, with the present hosts if the API server rejects its hosts.

        Raises:
            ApiError: The API server rejects the Gateway or the routes for this target.
        """
        opened, ports = self._find_gateway(), [target.http_port]
        served, moves = seen.list_open_hosts(opened), not _is_of_target(opened, target)
        if not served or (served == set(target.written_hosts) and not moves):
            return target
        if self.certificate.is_wanted:
            ports.append(target.https_port)
        reference = f"Gateway {self._situation.model}/{gateway.NAME}"
        try:
            # The Gateway gets a random host first, and then the wanted ones.
            for hosts in ([seen.choose_placeholder(target, None)], target.written_hosts):
                named = {port: hosts for port in ports if port}
                self._situation.manifests.dry_run(
                    *self._describe_gateway(target, self.certificate.name, named)
                )
            reference = f"routes in {self._situation.model}"
            routes, values = self._facts.route_plan.routes, record.RandomValues()
            render.apply_routes(self._situation, routes, target, values, is_dry_run=True)
        except errors.ApiError as error:
            if moves or not error.is_about_the_object:
                raise
            self._messages.append(error_messages.explain_refused_object(error, reference))
            return dataclasses.replace(target, hosts=tuple(sorted(served - {"*"})))
        return target

    def _remove_routes_and_gateway(self) -> None:
        """Remove routes and Gateway, and wait until the Gateway's servers are gone from Envoy."""
        # The Gateway goes after the routes: without it, a hook after a failed one would skip them.
        opened = self._find_gateway()
        render.remove_routes(self._situation)
        self.remove_gateway()
        if opened is not None:
            self._wait_until_gone()

    def _wait_until_gone(self) -> None:
        for _ in range(GONE_WITHIN):
            if seen.is_gone(self._situation.workload.read_envoy_state()):
                break
            time.sleep(1)

    def _find_gateway(self) -> cluster.Object | None:
        opened = self._situation.manifests.find_own(cluster.GATEWAY, gateway.NAME)
        return opened or managed.find_gateway(self._situation)

    def _publish_gateway(
        self, target: gateway.Target | Message, opened: cluster.Object | None
    ) -> None:
        related = self._related
        found = target if isinstance(target, gateway.Target) else None
        self.is_up = bool(opened and found and found.ready)
        # With routing=gateway-api the Gateway is not of Istio's API group.
        up = self.is_up and not (found and found.is_managed)
        kubeflow.publish_gateway(
            related, name=gateway.NAME, namespace=self._situation.model, up=up
        )
        self._publish_metadata()
        if related.is_related(*kubeflow.INGRESS_ROUTES):
            ingress_route.publish_host(
                related,
                external_host=self._find_external_host(found),
                tls_enabled=bool(gateway.find_credential(opened)),
            )

    def _publish_metadata(self) -> None:
        """Publish the Gateway for controllers' HTTPRoutes, once istiod serves it.

        The data is kept while routing=gateway-api is set. Otherwise each restart of a gateway pod
        would restart every controller.
        """
        if self._situation.config.routing == "gateway-api":
            target = managed.read_target(self._situation)
            if target.ready:
                metadata = kubeflow.GatewayMetadata(
                    namespace=target.namespace,
                    gateway_name=gateway.NAME,
                    deployment_name=target.service,
                    service_account=target.accounts[0],
                )
                kubeflow.publish_metadata(self._related, metadata)
            return
        kubeflow.publish_metadata(self._related, None)
        bags = self._related.list_bags(kubeflow.GATEWAY_METADATA)
        if waiting := ", ".join(sorted(bag.application for bag in bags)):
            self._messages.append(Template.GATEWAY_METADATA_AWAITED(applications=waiting))

    def _find_external_host(self, target: gateway.Target | None) -> str:
        """Return the host of the model's URL; empty while no gateway is known."""
        hosts = target.hosts if target else self._situation.config.hosts
        if exact := [host for host in hosts if not host.startswith("*")]:
            return exact[0]
        if target is None:
            return ""
        service = self._situation.cluster.get(cluster.SERVICE, target.service, target.namespace)
        balancers = cluster.parts(cluster.at(service, "status", "loadBalancer"), "ingress")
        addresses = [each.get(key) for each in balancers[:1] for key in ("hostname", "ip")]
        inside = f"{target.service}.{target.namespace}.svc.{self._situation.cluster_domain}"
        host = str(next(filter(None, addresses), inside))
        # A URL has an IPv6 address in brackets (RFC 3986, 3.2.2).
        return f"[{host}]" if ":" in host else host


def _is_of_target(opened: cluster.Object | None, target: gateway.Target) -> bool:
    is_managed = cluster.at(opened).get("apiVersion") == cluster.KUBERNETES_GATEWAY.api_version
    selector = cluster.at(opened, "spec").get("selector")
    return is_managed == target.is_managed and (is_managed or selector == dict(target.selector))
