"""Which listeners of somebody else's Gateway of the Gateway API serve a model, and why not others.

A route is attached to each listener that lets its namespace and its kind in and has a hostname in
common with it (Gateway API, AllowedRoutes and Hostname). What is of no known shape lets nobody in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from integrator_contract import pods, selectors
from istio_integrator import texts
from istio_integrator.ingress import observed
from istio_integrator.kube import cluster

GROUP = "gateway.networking.k8s.io"
MOST = 64
"""Listeners that a Gateway has at most (GatewaySpec)."""
_MOST_NAMED = 3
"""Of those that don't serve us; a status is one line."""
_PROTOCOLS = ("HTTP", "HTTPS")
"""Those that take routes of HTTP."""
_SELECTORS = {"matchLabels": dict, "matchExpressions": list}
"""Fields of a LabelSelector."""
_OPERATORS = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
"""Of selectors, and whether each takes values (LabelSelectorRequirement)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guest:
    """Who is to have routes on the Gateway."""

    namespace: str
    labels: Mapping[str, str]
    """Of the namespace."""
    hosts: Sequence[str]
    """Exact names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """A listener by which the guest is reached."""

    listener: str
    port: int
    is_https: bool
    hosts: tuple[str, ...]
    """Of the guest, those that it serves."""
    takes_calls: bool
    """Whether GRPCRoutes may be on it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """What a Gateway has for a guest."""

    ways: tuple[Way, ...] = ()
    refusals: tuple[str, ...] = ()
    """Why each other listener is none, and what it would take."""

    @property
    def takes_calls(self) -> bool:
        """Whether a GRPCRoute is served wherever an HTTPRoute is."""
        return all(way.takes_calls for way in self.ways)

    def port(self, host: str, *, is_https: bool) -> int | None:
        """Find where a host is served; None where it is not."""
        ports = (w.port for w in self.ways if w.is_https is is_https and host in w.hosts)
        return min(ports, default=None)

    def missing(self, hosts: Sequence[str]) -> list[str]:
        """List the hosts that no listener serves."""
        served = {host for way in self.ways for host in way.hosts}
        return [host for host in hosts if host not in served]

    @property
    def refused(self) -> str:
        """Say why listeners don't serve us, of many the first."""
        more = len(self.refusals) - _MOST_NAMED
        shown = "; ".join(self.refusals[:_MOST_NAMED]) or "it has no listener"
        return f"{shown}; and {more} more listeners" if more > 0 else shown


def offer(gateway: cluster.Object, guest: Guest) -> Offer:
    """Decide by which listeners a guest is reached.

    Args:
        gateway: Somebody's Gateway.
        guest: Who is to have routes on it.
    """
    ways: list[Way] = []
    refusals: list[str] = []
    for listener in _listeners(gateway):
        found = _way(listener, _home(gateway), guest)
        if isinstance(found, Way):
            ways.append(found)
        else:
            refusals.append(f"listener {_name(listener)} {found}")
    return Offer(ways=tuple(ways), refusals=tuple(refusals))


def open_beside(
    gateway: cluster.Object, hosts: Sequence[str], others: Mapping[str, Mapping[str, str]]
) -> tuple[str, str] | None:
    """Find where a route of somebody else would be served at names that are not ours.

    A route without hostnames is at all names of a listener, and nobody is asked about those that
    are not ours.

    Args:
        gateway: Somebody's Gateway.
        hosts: Ours.
        others: Labels of the namespaces whose routes have to be ours to guard.

    Returns:
        The listener and the namespace; None where there are none.
    """
    for listener in _listeners(gateway):
        if listener.get("protocol") not in _PROTOCOLS or _hostname(listener) in hosts:
            continue
        for name, labels in sorted(others.items()):
            if _lets_in(listener, _home(gateway), name, labels):
                return _name(listener), name
    return None


def serves(hostname: str, host: str) -> bool:
    """Tell whether a listener's hostname has an exact one in common.

    A wildcard stands for one label or several, and not for none.
    """
    if hostname.startswith("*."):
        return host.endswith(hostname[1:]) and len(host) >= len(hostname)
    return hostname in ("", host)


def _way(listener: cluster.Object, home: str, guest: Guest) -> Way | str:
    protocol = listener.get("protocol")
    port = listener.get("port")
    if protocol not in _PROTOCOLS or not pods.is_port(port):
        return f"is none for HTTP or HTTPS but for {texts.plain(str(protocol), 20)}"
    if protocol == "HTTPS" and cluster.at(listener, "tls").get("mode", "Terminate") != "Terminate":
        return "does not end TLS (tls.mode: set Terminate)"
    if not _lets_in(listener, home, guest.namespace, guest.labels):
        return (
            f"lets no routes of namespace {guest.namespace} in (allowedRoutes.namespaces: set "
            "from to All, or to Selector with one that matches its labels)"
        )
    kinds = _kinds(listener)
    if "HTTPRoute" not in kinds:
        return "takes no HTTPRoutes (allowedRoutes.kinds: add HTTPRoute)"
    hostname = _hostname(listener)
    hosts = tuple(host for host in guest.hosts if serves(hostname, host.lower()))
    if not hosts:
        wanted = observed.listed(guest.hosts)
        return f"is for {hostname} only, and hosts has {wanted} (hostname: name one of hosts)"
    return Way(
        listener=_name(listener),
        port=port,
        is_https=protocol == "HTTPS",
        hosts=hosts,
        takes_calls="GRPCRoute" in kinds,
    )


def _lets_in(
    listener: cluster.Object, home: str, namespace: str, labels: Mapping[str, str]
) -> bool:
    allowed = cluster.at(listener, "allowedRoutes", "namespaces")
    match allowed.get("from", "Same"):
        case "All":
            return True
        case "Same":
            return namespace == home
        case "Selector":
            return _selects(allowed.get("selector"), labels)
        case _:
            return False


def _selects(selector: object, labels: Mapping[str, str]) -> bool:
    """Tell whether a LabelSelector selects labels: none selects nothing, an empty one all."""
    said = cluster.at({"selector": selector}, "selector")
    if not isinstance(selector, dict) or any(
        not isinstance(value, _SELECTORS.get(key, ())) for key, value in said.items()
    ):
        return False
    pairs = cluster.at(said, "matchLabels")
    if not all(labels.get(key) == value for key, value in pairs.items()):
        return False
    return all(_meets(each, labels) for each in cluster.items(said, "matchExpressions"))


def _meets(expression: object, labels: Mapping[str, str]) -> bool:
    said = cluster.at({"said": expression}, "said")
    operator, key, values = said.get("operator"), said.get("key"), cluster.items(said, "values")
    if not isinstance(key, str) or _OPERATORS.get(str(operator)) is not bool(values):
        return False
    return selectors.Requirement(key, str(operator), tuple(map(str, values))).matches(labels)


def _kinds(listener: cluster.Object) -> set[str]:
    """List the kinds of routes that may be on a listener for HTTP: without a word both."""
    said = cluster.parts(cluster.at(listener, "allowedRoutes"), "kinds")
    if not said:
        return {"HTTPRoute", "GRPCRoute"}
    return {str(each.get("kind")) for each in said if each.get("group", GROUP) == GROUP}


def _listeners(gateway: cluster.Object) -> Iterable[cluster.Object]:
    return cluster.parts(cluster.at(gateway, "spec"), "listeners")[:MOST]


def _name(listener: cluster.Object) -> str:
    return texts.plain(str(listener.get("name", "")), selectors.LONGEST_PART)


def _hostname(listener: cluster.Object) -> str:
    return str(listener.get("hostname") or "").lower()


def _home(gateway: cluster.Object) -> str:
    return str(cluster.at(gateway, "metadata").get("namespace", ""))
