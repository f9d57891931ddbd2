"""Checks of authentication: what the gateway's Envoy really does, and whom it asks."""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
from collections.abc import Collection, Iterable
from typing import Any

import ops

import authentication
import cluster
import streams

from . import finding

_EXT_AUTHZ = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
_MANAGER = "envoy.filters.network.http_connection_manager"
WELL_KNOWN = "/.well-known/openid-configuration"


@dataclasses.dataclass(frozen=True)
class VirtualHost:
    """One of a gateway's, and who is asked before it."""

    name: str
    """Host and port, as istiod names it."""
    routes: tuple[str, ...]
    """The names of its routes, which are those of VirtualServices' entries."""
    asked: tuple[str, ...]
    """Envoy's clusters of the authorization services."""


def virtual_hosts(listeners: str, routes: str) -> list[VirtualHost]:
    """Read what an Envoy does from its configuration.

    Args:
        listeners: Its `/config_dump?resource=dynamic_listeners`.
        routes: Its `/config_dump?resource=dynamic_route_configs`.
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
        for host in cluster.items(configurations.get(name, {}), "virtual_hosts"):
            found.setdefault(host["name"], _virtual_host(host, filters))
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


def _virtual_host(host: cluster.Object, filters: Iterable[_Filter]) -> VirtualHost:
    routes: list[Any] = cluster.items(host, "routes")
    asked = [
        each.cluster
        for each in filters
        if routes and all(_is_in_force(each, host, route) for route in routes)
    ]
    names = dict.fromkeys(str(route.get("name", "")) for route in routes)
    return VirtualHost(host["name"], tuple(names), tuple(asked))


def _is_in_force(one: _Filter, host: cluster.Object, route: cluster.Object) -> bool:
    """Follow Envoy: the route's own setting before its virtual host's before the filter's."""
    disabled = one.disabled
    for place in (host, route):
        setting = cluster.at(place, "typed_per_filter_config").get(one.name)
        if isinstance(setting, dict):
            own = cluster.at({"setting": setting}, "setting")
            # ExtAuthzPerRoute may be wrapped in a FilterConfig; both have `disabled`.
            inner = cluster.at(own, "config").get("disabled", False)
            disabled = bool(own.get("disabled", False) or inner)
    return not disabled


def in_force(
    hosts: Collection[VirtualHost],
    decision: authentication.Decision,
    *,
    ours: Collection[str],
    domains: Collection[str],
    application: str,
    look: str,
) -> Iterable[finding.Finding]:
    """Judge whether the gateway asks whom it should before our routes.

    Args:
        hosts: Of the gateway, all of them.
        decision: Who should be asked.
        ours: The names of our routes.
        domains: Our hosts; none: every host.
        application: Ours.
        look: The command that shows the configuration.
    """
    served = [each for each in hosts if set(each.routes) & set(ours) or _names(each, domains)]
    open_to = [each.name for each in served if not each.asked]
    if decision.guard is None:
        yield finding.doubtful(
            "everybody is let in: strict-ingress-auth=false and nothing on ingress-auth",
            f"juju integrate {application}:ingress-auth oidc-gatekeeper",
        )
        return
    service = decision.guard.service
    if service is None:
        related = f"juju status {application} --relations"
        if serving := [each.name for each in served if set(each.routes) & set(ours)]:
            yield finding.broken(f"the ingress is closed, but {', '.join(serving)} serves", look)
        elif decision.blocked:
            yield from finding.of_statuses([ops.BlockedStatus(decision.blocked)], related)
        else:
            yield finding.doubtful(decision.waiting, related)
        return
    wrong = [each.name for each in served if each.asked and service.cluster not in each.asked]
    where = f"{service.host}:{service.port}"
    if open_to:
        names = finding.listed(open_to)
        yield finding.broken(f"the gateway asks nobody before {names}", look)
    if wrong:
        names = finding.listed(wrong)
        yield finding.broken(f"before {names} the gateway asks another than {where}", look)
    if not open_to and not wrong:
        names = finding.listed(each.name for each in served) or "nothing: no route is served yet"
        yield finding.fine(f"the gateway asks {where} before {names}")


def _names(host: VirtualHost, domains: Collection[str]) -> bool:
    return host.name.rpartition(":")[0] in domains


def issuers(location: str) -> list[str]:
    """Guess where the discovery document is of whoever has a login page, the longest path first.

    A provider's authorization endpoint may be anywhere below its issuer (OpenID Connect
    Discovery 1.0, section 4).
    """
    parts = urllib.parse.urlsplit(location)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return []
    steps = [step for step in parts.path.split("/") if step][:-1]
    paths = ["/".join(["", *steps[:count]]) for count in range(len(steps), -1, -1)]
    return [f"{parts.scheme}://{parts.netloc}{path}{WELL_KNOWN}" for path in paths]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Issuer:
    """What came of asking for a discovery document."""

    url: str
    answer: streams.Response | str
    """The answer, or why there is none."""
    is_own_view: bool
    """Whether the authorization service's own pod asked."""

    @property
    def is_there(self) -> bool:
        """Whether it is a discovery document."""
        if isinstance(self.answer, str) or self.answer.status != 200:
            return False
        try:
            return bool(cluster.at({"it": json.loads(self.answer.text)}, "it").get("issuer"))
        except ValueError:
            return False


def authservice(
    name: str, answer: streams.Response | str, asked: Iterable[Issuer], *, look: str
) -> Iterable[finding.Finding]:
    """Judge the authorization service and its provider.

    Args:
        name: Of the service.
        answer: To a request without a cookie, or why there is none.
        asked: Its issuers, as far as it names one.
        look: The command that shows the service's log.
    """
    if isinstance(answer, str):
        yield finding.broken(f"{name} does not answer: {answer}", look)
        return
    if answer.status >= 500:
        yield finding.broken(f"{name} answers {answer.status}", look)
        return
    tried = list(asked)
    if not tried:
        yield finding.fine(f"{name} answers {answer.status}")
        return
    if there := next((each for each in tried if each.is_there), None):
        yield finding.fine(f"{name} answers {answer.status}, {there.url} is there")
        return
    first = tried[0]
    why = first.answer if isinstance(first.answer, str) else f"answers {first.answer.status}"
    if first.is_own_view:
        yield finding.broken(f"{name} does not reach {first.url}: {why}", look)
    else:
        yield finding.doubtful(f"{first.url}, to which {name} sends users: {why}", look)
