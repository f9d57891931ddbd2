"""A Gateway of the Gateway API that is there already and somebody else's: named, and only read."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.config import config
from istio_integrator.ingress import gateway, gateway_api, listeners, observed, offered
from istio_integrator.ingress.gateway import Missing, Refusal, Target
from istio_integrator.kube import cluster, errors
from istio_integrator.relations import gateway_metadata

logger = logging.getLogger(__name__)

MOST_HOSTS = 16
"""Hostnames that a route has at most (HTTPRouteSpec)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """What serves a Gateway."""

    selector: Mapping[str, str]
    """Of its pods."""
    name: str
    service: str
    account: str
    """The ServiceAccount of its pods."""


class ExistingGateway:
    """Decides whether the Gateway that the operator names serves the model; it writes nothing."""

    def __init__(self, scope: parts.Context, offer: offered.Offered) -> None:
        self._scope = scope
        self._offered = offer
        self._namespace, _, self._name = scope.config.gateway.partition("/")

    @property
    def is_wanted(self) -> bool:
        """Whether the options ask for it."""
        return self._scope.config.routing == "gateway-api" and bool(self._name)

    def is_at(self, place: gateway.Place) -> bool:
        """Tell whether a place is the Gateway that is named."""
        return (place.namespace, place.gateway) == (self._namespace, self._name)

    def look(
        self, opened: cluster.Object | None, place: gateway.Place | None
    ) -> Target | Missing | Refusal:
        """Say where the model is served by it, or what it takes.

        Who is served there stays so while istiod has something to say about it.

        Args:
            opened: Istio's own Gateway of the model, where the model is served by that.
            place: Where the model is served until now.
        """
        scope = self._scope
        said = refused_options(scope.config, model=scope.model)
        said = said or self._offered.trouble(opened, scope.config.hosts, deploys=False)
        if said:
            return Refusal(said)
        try:
            found = self._get(self._namespace, self._name)
        except errors.ForbiddenError as error:
            logger.warning("%s", error)
            return Refusal(
                f"missing permission: get gateways in {self._namespace}; "
                f"run: juju trust {scope.application} --scope=cluster; or apply "
                f"rbac/gateway-namespace.yaml there, as gateway={scope.config.gateway} is of "
                f"{listeners.GROUP}"
            )
        if found is None:
            return Missing(
                f"waiting for Gateway {scope.config.gateway} of {listeners.GROUP}, which gateway "
                "names"
            )
        answer = self._at(found)
        state = gateway_api.state(found, scope.config.gateway)
        if state.problem is None or not isinstance(answer, Target):
            return answer
        if place is None or not self.is_at(place):
            return state.problem
        problems = (*answer.problems, state.problem)
        return dataclasses.replace(answer, ready=False, problems=problems, notes=())

    def standing(self, place: gateway.Place, why: Missing | Refusal) -> Target:
        """Describe where the model is served as long as it can't be as wished."""
        workloads = self._workloads(place.namespace, place.selector)
        return Target(
            namespace=place.namespace,
            selector=place.selector,
            service=place.service or "",
            workload=min((each["metadata"]["name"] for each in workloads), default=""),
            http_port=place.http_port,
            https_port=place.https_port,
            hosts=place.hosts,
            gateway=place.gateway or "",
            ready=True,
            problems=(why,),
        )

    def metadata(self, target: Target) -> gateway_metadata.GatewayMetadata | str | None:
        """Say what controllers hear of it, or why they don't; None while nobody knows."""
        try:
            found = self._get(target.namespace, target.gateway)
        except errors.ForbiddenError:
            return None
        workload = self._workload(found) if found is not None else None
        if found is None or not isinstance(workload, Workload):
            return None
        beside = listeners.open_beside(found, target.hosts, self._controllers_namespaces())
        if beside is not None:
            listener, namespace = beside
            return (
                f"gateway-metadata: listener {listener} of Gateway {target.namespace}/"
                f"{target.gateway} takes routes of namespace {namespace} at names that are not in "
                "hosts, where nobody would be asked; have its hostname be one of hosts, or its "
                "allowedRoutes leave that namespace out"
            )
        return gateway_metadata.GatewayMetadata(
            namespace=target.namespace,
            gateway_name=target.gateway,
            deployment_name=workload.name,
            service_account=workload.account,
        )

    def _at(self, found: cluster.Object) -> Target | Missing | Refusal:
        reference = f"Gateway {self._scope.config.gateway}"
        if self._scope.manifests.is_ours(found):
            return Refusal(
                f"gateway: {reference} is this charm's own; leave gateway empty to be served by it"
            )
        name = cluster.at(found, "spec").get("gatewayClassName")
        if name not in self._offered.classes:
            return Refusal(
                f"{reference} is of GatewayClass {name}, which is not of "
                f"{names.GATEWAY_CONTROLLER}: name a Gateway that istiod serves"
            )
        offer = listeners.offer(found, self._guest)
        if not offer.ways:
            return Refusal(f"{reference} has no listener for this model: {offer.refused}")
        workload = self._workload(found)
        if not isinstance(workload, Workload):
            return workload
        return self._target(workload, offer, gateway_api.state(found).address)

    def _target(self, workload: Workload, offer: listeners.Offer, address: str) -> Target:
        hosts = self._scope.config.hosts
        missing = offer.missing(hosts)
        problem = Refusal(
            f"Gateway {self._scope.config.gateway} has no listener for {observed.listed(missing)} "
            f"of hosts: {offer.refused}"
        )
        note = f"Gateway {self._scope.config.gateway} at {address}"
        return Target(
            namespace=self._namespace,
            selector=workload.selector,
            service=workload.service,
            workload=workload.name,
            # Applications are told the first of hosts.
            http_port=offer.port(hosts[0], is_https=False),
            https_port=offer.port(hosts[0], is_https=True),
            hosts=hosts,
            gateway=self._name,
            takes_calls=offer.takes_calls,
            ready=True,
            problems=(problem,) if missing else (),
            notes=(note,) if address else (),
        )

    @property
    def _guest(self) -> listeners.Guest:
        model = self._scope.cluster.get(cluster.NAMESPACE, self._scope.model)
        labels = cluster.at(model, "metadata", "labels")
        return listeners.Guest(
            namespace=self._scope.model, labels=labels, hosts=self._scope.config.hosts
        )

    def _controllers_namespaces(self) -> dict[str, Mapping[str, str]]:
        """List where controllers make routes: the model, and namespaces of its users."""
        labels = {
            each["metadata"]["name"]: cluster.at(each, "metadata", "labels")
            for each in self._scope.cluster.list(cluster.NAMESPACE)
        }
        return {
            name: marks
            for name, marks in labels.items()
            if name == self._scope.model or self._scope.served.is_tenants(name, marks)
        }

    def _get(self, namespace: str, name: str) -> cluster.Object | None:
        return self._scope.cluster.get(cluster.KUBERNETES_GATEWAY, name, namespace)

    def _workload(self, found: cluster.Object) -> Workload | Missing | Refusal:
        """Find what serves a Gateway: what istiod deploys for it, or what its addresses name."""
        namespace = found["metadata"]["namespace"]
        reference = observed.reference(found)
        service = named_service(found, self._scope.cluster_domain)
        if isinstance(service, Refusal):
            return service
        services = [
            observed.Service.of(each)
            for each in self._scope.cluster.list(cluster.SERVICE, namespace)
        ]
        selector = {names.GATEWAY_NAME: str(found["metadata"]["name"])}
        if service:
            (named, *_) = [one for one in services if one.name == service] or [None]
            if named is None:
                return Missing(f"waiting for Service {namespace}/{service} of Gateway {reference}")
            if not 0 < len(named.selector) <= observed.MOST_SELECTED:
                return Refusal(
                    f"Service {named.reference} of Gateway {reference} selects no pods that a "
                    "guard could be put before: give it a selector"
                )
            selector = dict(named.selector)
        workloads = self._workloads(namespace, selector)
        if not workloads:
            return Missing(f"waiting for the workload of Gateway {reference}")
        best = min(workloads, key=observed.reference)
        marks = observed.Workload.of(best).labels
        leading = sorted(one.name for one in services if observed.matches(one.selector, marks))
        name = str(best["metadata"]["name"])
        spec = cluster.at(best, "spec", "template", "spec")
        return Workload(
            selector=selector,
            name=name,
            service=service or (name if name in leading else next(iter(leading), name)),
            account=str(spec.get("serviceAccountName") or "default"),
        )

    def _workloads(self, namespace: str, selector: Mapping[str, str]) -> list[cluster.Object]:
        return [
            each
            for kind in (cluster.DEPLOYMENT, cluster.DAEMON_SET)
            for each in self._scope.cluster.list(kind, namespace)
            if observed.matches(selector, observed.Workload.of(each).labels)
        ]


def refused_options(options: config.Config, *, model: str) -> str:
    """Say which options don't fit a Gateway of somebody else; empty: all do.

    Args:
        options: All.
        model: Where a Gateway of ours would be.
    """
    theirs = f"with routing=gateway-api and gateway={options.gateway}"
    if options.gateway == f"{model}/{gateway.NAME}":
        return f"gateway={options.gateway} is this charm's own Gateway: leave gateway empty"
    wildcards = [host for host in options.hosts if host.startswith("*")]
    if not options.hosts or wildcards:
        said = f"has '{wildcards[0]}'" if wildcards else "is empty"
        return (
            f"hosts {said}: others are on that Gateway, too, so {theirs} name each host by which "
            "this model is reached"
        )
    if len(options.hosts) > MOST_HOSTS:
        return f"hosts has {len(options.hosts)} names: {theirs} {MOST_HOSTS} are the most"
    for option, value in _of_its_owner(options):
        if value:
            return f"{option} can't be set {theirs}: that is up to the Gateway's owner; unset it"
    return ""


def _of_its_owner(options: config.Config) -> Iterable[tuple[str, object]]:
    yield "tls-secret", options.tls_secret
    yield "https-redirect", options.https_redirect
    yield "gateway-workload", options.gateway_workload
    yield "gateway-selector", options.gateway_selector
    yield "gateway-service", options.gateway_service
    yield "gateway-service-annotations", options.gateway_service_annotations


def named_service(found: cluster.Object, domain: str) -> str | Refusal:
    """Read which Service's pods a Gateway is for; empty where istiod deploys its own.

    istiod deploys one without addresses or with one IP address, and binds one with the name of a
    Service to that one's pods in the same namespace (istio pilot/pkg/config/kube/gateway,
    IsManaged and extractGatewayServices).

    Args:
        found: Somebody's Gateway.
        domain: The cluster's.
    """
    addresses = cluster.parts(cluster.at(found, "spec"), "addresses")
    if not addresses or (
        len(addresses) == 1 and addresses[0].get("type", "IPAddress") == "IPAddress"
    ):
        return ""
    namespace = cluster.at(found, "metadata").get("namespace")
    for suffix in ("", f".{namespace}.svc.{domain}"):
        said = str(addresses[0].get("value", ""))
        name = said.removesuffix(suffix)
        is_named = len(addresses) == 1 and addresses[0].get("type") == "Hostname"
        if is_named and name and "." not in name and (not suffix or name != said):
            return name
    return Refusal(
        f"Gateway {observed.reference(found)} has spec.addresses that are not one Service of its "
        f"namespace: have it be of type Hostname, with the value NAME.{namespace}.svc.{domain}"
    )
