"""Which authorization service does the gateway's Envoy ask before our routes?"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import authorization, guards
from istio_integrator.kube import cluster

_EXT_AUTHZ = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
_MANAGER = "envoy.filters.network.http_connection_manager"


@registry.check("authentication", place=130, symptoms=("403-at-the-gateway", "404-at-the-gateway"))
def authentication(facts: Facts) -> Iterable[Finding]:
    """Ask the gateway's Envoy which service authenticates before this model's routes."""
    target = facts.gateway
    if target is None:
        return
    guard = facts.authentication.guard
    if guard is None:
        yield findings.doubtful(
            "everybody is let in: require-authentication=false, and nothing on ingress-auth or "
            "forward-auth",
            f"juju integrate {facts.application}:ingress-auth oidc-gatekeeper",
        )
        return
    if guard.service is None:
        return  # Nothing is served, as the status says.
    service, namespace, *_ = guard.service.host.split(".")
    slices = facts.cluster.list(cluster.ENDPOINT_SLICE, namespace, {names.SERVICE_NAME: service})
    if not any(cluster.parts(each, "endpoints") for each in slices):
        show = f"kubectl -n {namespace} get service,endpointslices"
        yield findings.broken(f"Service {namespace}/{service} has no pods", show)
    ours = [
        str(entry.get("name", ""))
        for route in facts.objects(cluster.VIRTUAL_SERVICE, facts.model)
        if facts.manifests.is_ours(route)
        for entry in cluster.parts(cluster.at(route, "spec"), "http")
    ]
    for pod in facts.gateway_pods[:1]:
        listeners = facts.envoy(pod, "/config_dump?resource=dynamic_listeners")
        routes = facts.envoy(pod, "/config_dump?resource=dynamic_route_configs")
        yield from judge(
            virtual_hosts(listeners, routes, entry=guards.ask_entry(facts.manifests.owner)),
            guard.service,
            ours=ours,
            domains=facts.config.hosts,
            show=f"istioctl -n {target.namespace} proxy-config routes {pod['metadata']['name']} "
            "-o yaml",
        )


class VirtualHost(NamedTuple):
    """A virtual host of a gateway's Envoy."""

    name: str
    """Host and port, as istiod names it."""
    routes: tuple[str, ...]
    """The names of its routes, which are those of VirtualServices' entries."""
    asked: tuple[str, ...]
    """Envoy's clusters of the authorization services that are asked before all its routes."""


def virtual_hosts(listeners: str, routes: str, *, entry: str) -> list[VirtualHost]:
    """Read two parts of an Envoy's `/config_dump`; `entry` names the one that authenticates."""
    read = [cluster.at(each, "route_config") for each in _configs(routes)]
    configurations = {each.get("name"): each for each in read}
    found: dict[str, VirtualHost] = {}
    for manager in _managers(listeners):
        configuration = configurations.get(cluster.at(manager, "rds").get("route_config_name"), {})
        for host in cluster.parts(configuration, "virtual_hosts"):
            entries = cluster.parts(host, "routes")
            asks = next((each for each in entries if each.get("name") == entry), host)
            asked = tuple(
                to
                for each in cluster.parts(manager, "http_filters")
                if (to := _asks(each)) and _is_in_force(each, configuration, host, asks)
            )
            if entries:
                known = tuple(str(each.get("name", "")) for each in entries)
                found.setdefault(host["name"], VirtualHost(host["name"], known, asked))
    return list(found.values())


def _configs(dump: str) -> list[Any]:
    try:
        return cluster.parts(cluster.at({"dump": json.loads(dump)}, "dump"), "configs")
    except ValueError:
        return []


def _managers(dump: str) -> Iterable[cluster.Object]:
    for each in _configs(dump):
        listener = cluster.at(each, "active_state", "listener")
        chains = cluster.parts(listener, "filter_chains")
        for chain in [*chains, cluster.at(listener, "default_filter_chain")]:
            for network_filter in cluster.parts(chain, "filters"):
                if network_filter.get("name") == _MANAGER:
                    yield cluster.at(network_filter, "typed_config")


def _asks(http_filter: cluster.Object) -> str:
    """Return the cluster that a filter asks; empty where it is no filter that authorizes."""
    settings = cluster.at(http_filter, "typed_config")
    if not str(settings.get("@type", "")).endswith(_EXT_AUTHZ):
        return ""
    http = cluster.at(settings, "http_service", "server_uri").get("cluster")
    return http or cluster.at(settings, "grpc_service", "envoy_grpc").get("cluster_name", "")


def _is_in_force(http_filter: cluster.Object, *places: cluster.Object) -> bool:
    """Follow Envoy: the last place that has a setting for the filter wins."""
    disabled = http_filter.get("disabled")
    for place in places:
        settings = cluster.at(place, "typed_per_filter_config")
        if http_filter["name"] in settings:
            own = cluster.at(settings, http_filter["name"])
            # ExtAuthzPerRoute may be wrapped in a FilterConfig; both have `disabled`.
            disabled = own.get("disabled") or cluster.at(own, "config").get("disabled")
    return not disabled


def judge(
    hosts: Iterable[VirtualHost],
    service: authorization.Service,
    *,
    ours: Collection[str],
    domains: Collection[str],
    show: str,
) -> Iterable[Finding]:
    """Judge whether the gateway asks the service before our routes and at our domains."""
    served = [
        each
        for each in hosts
        if set(each.routes) & set(ours) or each.name.rpartition(":")[0] in domains
    ]
    where = f"{service.host}:{service.port}"
    open_to = [each.name for each in served if not each.asked]
    wrong = [each.name for each in served if each.asked and service.cluster not in each.asked]
    if open_to:
        yield findings.broken(f"the gateway asks nobody before {report.listed(open_to)}", show)
    if wrong:
        shown = report.listed(wrong)
        yield findings.broken(f"before {shown} the gateway asks another than {where}", show)
    if not open_to and not wrong:
        shown = report.listed(each.name for each in served) or "nothing: no route is served yet"
        yield findings.fine(f"the gateway asks {where} before {shown}")
