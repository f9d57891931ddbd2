"""The networks of the cluster's pods, from the option or from objects of its network plugin."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping

from istio_integrator.config.config import Network
from istio_integrator.kube import cluster
from istio_integrator.situation.situation import Situation

_MOST = 1000
"""Networks in one EnvoyFilter, which then has 400 kB; an object may have 1.5 MB."""
_SOURCES: Mapping[cluster.Kind, Callable[[cluster.Object], list[object]]] = {
    cluster.CALICO_POOL: lambda pool: [cluster.at(pool, "spec").get("cidr")],
    cluster.CILIUM_NODE: lambda node: cluster.items(cluster.at(node, "spec", "ipam"), "podCIDRs"),
    cluster.NODE: lambda node: cluster.items(cluster.at(node, "spec"), "podCIDRs"),
}
"""The networks of an object, by kind. Every object of a kind has to have some. Calico and Cilium
may take addresses from the whole network of which each Node has a part, so they are read first."""


def find_pod_networks(situation: Situation) -> list[Network]:
    """Return the networks that hold pods and no other hosts; empty if they are not known.

    A network plugin may ignore the networks of the Nodes. Those of a kind therefore count only if
    they contain this unit's own pod.
    """
    if situation.config.pod_networks:
        return collapse(situation.config.pod_networks)
    pod = situation.cluster.get(cluster.POD, situation.pod_name, situation.model)
    own = _read_networks(
        each.get("ip") for each in cluster.parts(cluster.at(pod, "status"), "podIPs")
    )
    for kind, networks_of in _SOURCES.items():
        objects = [*filter(_is_for_pods, situation.cluster.list_if_allowed(kind))]
        read = cluster.read_each(objects, lambda obj: [_read_networks(networks_of(obj))])  # noqa: B023
        found = collapse(network for networks in read for network in networks)
        is_complete = all(read) and len(read) == len(objects)
        has_own = bool(own) and all(_overlaps(each, found) for each in own)
        if is_complete and has_own and len(found) <= _MOST:
            return found
    return []


def _is_for_pods(obj: cluster.Object) -> bool:
    """Tell whether a Calico pool gives addresses to pods; every other object is for pods.

    Operators disable pools for networks of other hosts, to which Calico then adds no NAT (Calico,
    "Configure outgoing NAT"). Selectors of nodes and namespaces leave a pool to fewer pods.
    """
    spec = cluster.at(obj, "spec")
    uses = cluster.items(spec, "allowedUses") or ["Workload"]
    return not spec.get("disabled") and "Workload" in uses


def find_service_network(situation: Situation, networks: Iterable[Network]) -> str:
    """Return a network of Services that overlaps some of the networks; empty if none does."""
    found = cluster.read_each(
        situation.cluster.list_if_allowed(cluster.SERVICE_CIDR),
        lambda obj: _read_networks(cluster.items(cluster.at(obj, "spec"), "cidrs")),
    )
    return next((str(each) for each in found if _overlaps(each, networks)), "")


def collapse(networks: Iterable[Network]) -> list[Network]:
    """Merge adjacent networks, and leave out those within another."""
    found = [*networks]
    four = (each for each in found if isinstance(each, ipaddress.IPv4Network))
    six = (each for each in found if isinstance(each, ipaddress.IPv6Network))
    return [*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six)]


def _read_networks(texts: Iterable[object]) -> list[Network]:
    return [ipaddress.ip_network(str(each)) for each in texts]


def _overlaps(network: Network, others: Iterable[Network]) -> bool:
    return any(network.version == each.version and network.overlaps(each) for each in others)
