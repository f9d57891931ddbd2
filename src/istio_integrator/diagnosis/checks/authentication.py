"""Whom does the gateway's Envoy ask before our routes?"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable
from typing import Any

import ops

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import authorization, guards
from istio_integrator.kube import cluster

_EXT_AUTHZ = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
_MANAGER = "envoy.filters.network.http_connection_manager"


@registry.check(
    "authentication",
    place=130,
    question="who is asked before this model's routes, as the gateway's Envoy has it",
    reads="the gateway's Envoy",
    symptoms=("403-at-the-gateway",),
)
def authentication(facts: Facts) -> Iterable[Finding]:
    """Look at whom the gateway asks."""
    target = facts.gateway
    if target is None:
        return
    asked = facts.authentication.guard.service if facts.authentication.guard else None
    if asked is not None:
        service, namespace, *_ = asked.host.split(".")
        if not facts.pods_of(service, namespace):
            show = f"kubectl -n {namespace} get service,endpointslices"
            yield findings.broken(f"Service {namespace}/{service} has no pods", show)
    owner = facts.manifests.owner
    ours = [
        str(entry.get("name", ""))
        for route in facts.objects(cluster.VIRTUAL_SERVICE, facts.model)
        if cluster.at(route, "metadata", "labels").get(names.OWNER) == owner
        for entry in cluster.parts(cluster.at(route, "spec"), "http")
    ]
    unasked = [
        name
        for found in facts.objects(cluster.ENVOY_FILTER)
        if facts.manifests.is_ours(found)
        for name in guards.exempted(found)
    ]
    for pod in facts.gateway_pods[:1]:
        name = pod["metadata"]["name"]
        yield from judge(
            virtual_hosts(
                facts.envoy(pod, "/config_dump?resource=dynamic_listeners"),
                facts.envoy(pod, "/config_dump?resource=dynamic_route_configs"),
                unasked=unasked,
            ),
            facts.authentication,
            ours=ours,
            domains=facts.config.hosts,
            application=facts.application,
            show=f"istioctl -n {target.namespace} proxy-config routes {name} -o yaml",
        )


@dataclasses.dataclass(frozen=True)
class VirtualHost:
    """One of a gateway's, and who is asked before it."""

    name: str
    """Host and port, as istiod names it."""
    routes: tuple[str, ...]
    """The names of its routes, which are those of VirtualServices' entries."""
    asked: tuple[str, ...]
    """Envoy's clusters of the authorization services."""
    unasked: tuple[str, ...] = ()
    """Those of its routes about which nobody is to be asked, and nobody is."""


def virtual_hosts(
    listeners: str, routes: str, *, unasked: Collection[str] = ()
) -> list[VirtualHost]:
    """Read what an Envoy does from its configuration.

    Args:
        listeners: Its `/config_dump?resource=dynamic_listeners`.
        routes: Its `/config_dump?resource=dynamic_route_configs`.
        unasked: The names of routes about which nobody is to be asked.
    """
    configurations = {
        configuration.get("name"): configuration
        for each in _configs(routes)
        if (configuration := cluster.at(each, "route_config"))
    }
    found: dict[str, VirtualHost] = {}
    for manager in _managers(listeners):
        filters = _authorizing(manager)
        name = cluster.at(manager, "rds").get("route_config_name")
        configuration = configurations.get(name, {})
        for host in cluster.items(configuration, "virtual_hosts"):
            read = _virtual_host(configuration, host, filters, unasked)
            found.setdefault(host["name"], read)
    return list(found.values())


def _configs(dump: str) -> list[Any]:
    try:
        return cluster.items(cluster.at({"dump": json.loads(dump)}, "dump"), "configs")
    except ValueError:
        return []


def _managers(dump: str) -> Iterable[cluster.Object]:
    for each in _configs(dump):
        listener = cluster.at(each, "active_state", "listener")
        chains = [*cluster.items(listener, "filter_chains")]
        for chain in [*chains, cluster.at(listener, "default_filter_chain")]:
            for network_filter in cluster.items(chain, "filters"):
                if network_filter["name"] == _MANAGER:
                    yield cluster.at(network_filter, "typed_config")


@dataclasses.dataclass(frozen=True)
class _Filter:
    name: str
    cluster: str
    disabled: bool


def _authorizing(manager: cluster.Object) -> list[_Filter]:
    found: list[_Filter] = []
    for each in cluster.items(manager, "http_filters"):
        settings = cluster.at(each, "typed_config")
        if str(settings.get("@type", "")).endswith(_EXT_AUTHZ):
            http = cluster.at(settings, "http_service", "server_uri").get("cluster", "")
            grpc = cluster.at(settings, "grpc_service", "envoy_grpc").get("cluster_name", "")
            found.append(_Filter(each["name"], http or grpc, bool(each.get("disabled"))))
    return found


def _virtual_host(
    configuration: cluster.Object,
    host: cluster.Object,
    filters: Iterable[_Filter],
    unasked: Collection[str],
) -> VirtualHost:
    routes: list[Any] = cluster.items(host, "routes")
    guarded = [route for route in routes if route.get("name") not in unasked]
    # Where nobody is to be asked about any route, the host itself says who would be.
    looked = guarded or [{}] * bool(routes)
    asked = [
        each.cluster
        for each in filters
        if looked and all(_is_in_force(each, configuration, host, route) for route in looked)
    ]
    names = list(dict.fromkeys(str(route.get("name", "")) for route in routes))
    opened = tuple(name for name in names if name in unasked)
    return VirtualHost(host["name"], tuple(names), tuple(asked), opened)


def _is_in_force(one: _Filter, *places: cluster.Object) -> bool:
    """Follow Envoy: the setting of the last place that has one, before the filter's.

    A filter that may spare a host by its name counts as in force: ours are never spared.
    """
    disabled = one.disabled
    for place in places:
        setting = cluster.at(place, "typed_per_filter_config").get(one.name)
        if isinstance(setting, dict):
            own = cluster.at({"setting": setting}, "setting")
            # ExtAuthzPerRoute may be wrapped in a FilterConfig; both have `disabled`.
            inner = cluster.at(own, "config").get("disabled", False)
            disabled = bool(own.get("disabled", False) or inner)
    return not disabled


def judge(
    hosts: Collection[VirtualHost],
    decision: authorization.Decision,
    *,
    ours: Collection[str],
    domains: Collection[str],
    application: str,
    show: str,
) -> Iterable[Finding]:
    """Judge whether the gateway asks whom it should before our routes.

    Args:
        hosts: Of the gateway, all of them.
        decision: Who should be asked.
        ours: The names of our routes.
        domains: Our hosts; none: every host.
        application: Ours.
        show: The command that shows the configuration.
    """
    served = [each for each in hosts if set(each.routes) & set(ours) or _names(each, domains)]
    open_to = [each.name for each in served if not each.asked]
    if decision.guard is None:
        yield findings.doubtful(
            "everybody is let in: require-authentication=false, and nothing on ingress-auth or "
            "forward-auth",
            f"juju integrate {application}:ingress-auth oidc-gatekeeper",
        )
        return
    service = decision.guard.service
    if service is None:
        related = f"juju status {application} --relations"
        if serving := [each.name for each in served if set(each.routes) & set(ours)]:
            yield findings.broken(f"the ingress is closed, but {', '.join(serving)} serves", show)
        elif decision.blocked:
            yield from report.of_statuses([ops.BlockedStatus(decision.blocked)], related)
        else:
            yield findings.doubtful(decision.waiting, related)
        return
    wrong = [each.name for each in served if each.asked and service.cluster not in each.asked]
    where = f"{service.host}:{service.port}"
    if open_to:
        names = report.listed(open_to)
        yield findings.broken(f"the gateway asks nobody before {names}", show)
    if wrong:
        names = report.listed(wrong)
        yield findings.broken(f"before {names} the gateway asks another than {where}", show)
    if not open_to and not wrong:
        names = report.listed(each.name for each in served) or "nothing: no route is served yet"
        opened = len({route for each in served for route in each.unasked})
        plural = "s" if opened > 1 else ""
        also = f", and nobody before {opened} unauthenticated route{plural}" if opened else ""
        yield findings.fine(f"the gateway asks {where} before {names}{also}")


def _names(host: VirtualHost, domains: Collection[str]) -> bool:
    return host.name.rpartition(":")[0] in domains
