"""Checks of calls out of the model that a proxy would break."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import cluster
import modeloperator

from . import finding

SERVER_FIRST = {25: "SMTP", 3306: "MySQL", 5432: "PostgreSQL", 27017: "MongoDB"}
"""Where the server, or a handshake that is not HTTP, speaks first (istio.io, "Protocol Selection",
Server First Protocols)."""
EXCLUDED = "traffic.sidecar.istio.io/excludeOutboundPorts"
EXCLUDED_RANGES = "traffic.sidecar.istio.io/excludeOutboundIPRanges"

_HTTP = ("http", "http2", "grpc", "grpc-web")


def registry(
    sidecars: Iterable[cluster.Object],
    entries: Iterable[cluster.Object],
    *,
    registry_only: bool,
    namespaces: Iterable[str],
) -> Iterable[finding.Finding]:
    """Judge whether proxies let out what Istio does not know.

    Args:
        sidecars: Istio's objects of that name.
        entries: ServiceEntries.
        registry_only: What the mesh and its Sidecars come to.
        namespaces: The model's and the mesh's own, whose Sidecars count.
    """
    doubts: list[finding.Finding] = []
    if registry_only:
        hosts = [str(host) for each in entries for host in each.get("spec", {}).get("hosts", ())]
        known = finding.listed(hosts) or "nothing"
        doubts.append(
            finding.doubtful(
                f"proxies are REGISTRY_ONLY: outside of the cluster, pods reach {known}",
                "kubectl get serviceentries -A",
            )
        )
    for each in sidecars:
        metadata = each["metadata"]
        if metadata["namespace"] not in namespaces:
            continue
        spec = cluster.at(each, "spec")
        only = cluster.at(spec, "outboundTrafficPolicy").get("mode") == "REGISTRY_ONLY"
        hosts = [
            str(host) for rule in cluster.items(spec, "egress") for host in rule.get("hosts", ())
        ]
        if only or (hosts and "*/*" not in hosts):
            names = finding.listed(hosts) or "what Istio knows"
            doubts.append(
                finding.doubtful(
                    f"{cluster.reference(each)} lets pods reach only {names}",
                    f"kubectl -n {metadata['namespace']} get sidecar {metadata['name']} -o yaml",
                )
            )
    yield from doubts
    if not doubts:
        yield finding.fine("proxies let calls out of the cluster")


def protocols(services: Iterable[cluster.Object]) -> Iterable[finding.Finding]:
    """Judge Services whose protocol is said to be HTTP where the server speaks first."""
    for service in services:
        for port in cluster.items(cluster.at(service, "spec"), "ports"):
            number = int(port["port"])
            said = str(port.get("appProtocol") or str(port.get("name") or "").partition("-")[0])
            if number in SERVER_FIRST and said.lower() in _HTTP:
                metadata = service["metadata"]
                yield finding.doubtful(
                    f"{cluster.reference(service)} calls port {number} {said}, and a proxy would "
                    f"wait for a request: it is {SERVER_FIRST[number]}'s",
                    f"kubectl -n {metadata['namespace']} edit service {metadata['name']}",
                )


def controller(
    pods: Iterable[cluster.Object], ports: Iterable[int], *, needed: bool
) -> Iterable[finding.Finding]:
    """Judge whether charms reach Juju's controller past their proxy, where they have to.

    Args:
        pods: The model's.
        ports: The controller's.
        needed: Whether a proxy would keep them from it.
    """
    wanted = {str(port) for port in ports}
    cut = [
        pod
        for pod in pods
        if needed
        and "app.kubernetes.io/name" in cluster.at(pod, "metadata", "labels")
        and modeloperator.is_in_mesh(pod)
        and not _passes(cluster.at(pod, "metadata", "annotations"), wanted)
    ]
    if cut:
        first = cut[0]["metadata"]
        names = finding.listed(map(cluster.reference, cut))
        yield finding.broken(
            f"the proxies of {names} keep their charms from Juju's controller",
            f"kubectl -n {first['namespace']} delete pod {first['name']}",
        )


def _passes(annotations: Mapping[str, str], ports: set[str]) -> bool:
    excluded = {part.strip() for part in annotations.get(EXCLUDED, "").split(",")}
    return ports <= excluded or "0.0.0.0/0" in annotations.get(EXCLUDED_RANGES, "")
