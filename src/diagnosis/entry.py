"""Checks of the way in: the gateway's address and ports, Gateways that routes name, backends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import cluster
import gateway

from . import finding

_EVERY_PROXY = "mesh"
"""Not a Gateway: a route that names it is for sidecars."""


def address(service: cluster.Object | None, target: gateway.Target) -> Iterable[finding.Finding]:
    """Judge whether the gateway runs and can be reached from outside.

    Args:
        service: The gateway's, None where it has gone.
        target: The gateway workload.
    """
    look = f"kubectl -n {target.namespace} describe service {target.service}"
    if not target.ready:
        pods = ",".join(f"{key}={value}" for key, value in sorted(target.selector.items()))
        yield finding.broken(
            f"gateway {target.reference} has no ready pod",
            f"kubectl -n {target.namespace} get pods -l {pods}",
        )
    if service is None:
        yield finding.broken(f"Service {target.namespace}/{target.service} has gone", look)
        return
    spec = cluster.at(service, "spec")
    kind = spec.get("type", "ClusterIP")
    given = [
        str(each.get("ip") or each.get("hostname"))
        for each in cluster.items(cluster.at(service, "status", "loadBalancer"), "ingress")
    ]
    outside = given or [str(each) for each in cluster.items(spec, "externalIPs")]
    if kind == "LoadBalancer" and not outside:
        yield finding.doubtful(
            f"Service {target.namespace}/{target.service} is a LoadBalancer and nobody gave it an "
            "address",
            look,
        )
    elif target.ready:
        shown = ", ".join(outside) or f"{spec.get('clusterIP')} ({kind})"
        yield finding.fine(f"{target.reference} is reached at {shown}")


def listeners(
    opened: cluster.Object,
    service: cluster.Object,
    pod: cluster.Object,
    listening: Collection[int],
    *,
    istiod: str,
) -> Iterable[finding.Finding]:
    """Judge whether the gateway listens where our Gateway says.

    Args:
        opened: Our Gateway.
        service: The gateway's.
        pod: One of the gateway's.
        listening: Ports at which its Envoy has listeners.
        istiod: The Deployment that configures it, `-n NAMESPACE deploy/NAME`.
    """
    ports = [
        int(server["port"]["number"])
        for server in cluster.items(cluster.at(opened, "spec"), "servers")
    ]
    deaf = [port for port in ports if target_port(service, pod, port) not in listening]
    name = opened["metadata"]["name"]
    for port in deaf:
        yield finding.broken(
            f"Gateway {name} has port {port}, and {cluster.reference(pod)} does not listen there",
            f"kubectl logs {istiod} | grep {name}",
        )
    if not deaf:
        yield finding.fine(f"the gateway listens at {', '.join(map(str, ports))}")


def target_port(service: cluster.Object, pod: cluster.Object, port: int) -> int:
    """Find the port at which a pod serves a port of its Service; the same where there is none."""
    for entry in cluster.items(cluster.at(service, "spec"), "ports"):
        if entry["port"] == port:
            wanted = entry.get("targetPort", port)
            return int(wanted) if str(wanted).isdigit() else _named(pod, str(wanted), port)
    return port


def _named(pod: cluster.Object, name: str, otherwise: int) -> int:
    for container in cluster.items(cluster.at(pod, "spec"), "containers"):
        for entry in cluster.items(container, "ports"):
            if entry.get("name") == name:
                return int(entry["containerPort"])
    return otherwise


def missing_gateways(
    routes: Iterable[cluster.Object], gateways: Iterable[cluster.Object]
) -> Iterable[finding.Finding]:
    """Judge whether the Gateways that routes are bound to exist.

    Args:
        routes: VirtualServices.
        gateways: All there are.
    """
    there = {_reference(obj) for obj in gateways}
    missing: dict[str, list[str]] = {}
    for route in routes:
        namespace = route["metadata"]["namespace"]
        for name in map(str, cluster.items(cluster.at(route, "spec"), "gateways")):
            full = name if "/" in name else f"{namespace}/{name}"
            if name != _EVERY_PROXY and full not in there:
                missing.setdefault(full, []).append(_reference(route))
    for name, users in sorted(missing.items()):
        yield finding.broken(
            f"there is no Gateway {name}, which VirtualService {finding.listed(users)} names",
            "kubectl get gateways.networking.istio.io -A",
        )
    if not missing:
        yield finding.fine("every Gateway that a route names exists")


def backends(
    routes: Iterable[cluster.Object],
    services: Iterable[cluster.Object],
    slices: Iterable[cluster.Object],
    *,
    domain: str,
    owner: str,
) -> Iterable[finding.Finding]:
    """Judge whether each route leads to an application that is ready.

    Args:
        routes: VirtualServices.
        services: All there are.
        slices: Their endpoints.
        domain: Of the cluster.
        owner: Ours; the routes of others are doubted only.
    """
    known = {_reference(obj): obj for obj in services}
    ready = _ready_ports(slices)
    count = 0
    for route in routes:
        ours = (
            cluster.at(route, "metadata", "labels").get("istio-integrator.charmhub.io/owner")
            == owner
        )
        say = finding.broken if ours else finding.doubtful
        for host, port in dict.fromkeys(_destinations(route)):
            name = service_name(host, route["metadata"]["namespace"], domain)
            if not name:
                continue
            count += 1
            if problem := _problem(name, port, known.get(name), ready):
                where = f"VirtualService {_reference(route)}"
                namespace, _, service = name.partition("/")
                look = f"kubectl -n {namespace} get service,endpointslices -l "
                look += f"kubernetes.io/service-name={service}"
                yield say(f"{where}: {problem}", look)
                count -= 1
    if count:
        yield finding.fine(f"{count} backends of routes are ready")


def _problem(
    name: str,
    port: int | None,
    service: cluster.Object | None,
    ready: Mapping[str, Collection[str]],
) -> str:
    if service is None:
        return f"there is no Service {name}"
    if cluster.at(service, "spec").get("type") == "ExternalName":
        return ""
    entries: list[Any] = cluster.items(cluster.at(service, "spec"), "ports")
    wanted = [entry for entry in entries if port in (None, entry["port"])]
    if not wanted:
        return f"Service {name} has no port {port}"
    if not any(str(entry.get("name") or "") in ready.get(name, ()) for entry in wanted):
        return f"Service {name} has no ready endpoint"
    return ""


def _ready_ports(slices: Iterable[cluster.Object]) -> dict[str, set[str]]:
    """List the names of the ports at which each Service has a ready endpoint."""
    found: dict[str, set[str]] = {}
    for part in slices:
        service = cluster.at(part, "metadata", "labels").get("kubernetes.io/service-name")
        ready = any(
            # Absent is ready (discovery/v1, EndpointConditions).
            cluster.at(endpoint, "conditions").get("ready") in (True, None)
            for endpoint in cluster.items(part, "endpoints")
        )
        if service and ready:
            names = {str(port.get("name") or "") for port in cluster.items(part, "ports")}
            found.setdefault(f"{part['metadata']['namespace']}/{service}", set()).update(names)
    return found


def _destinations(route: cluster.Object) -> Iterable[tuple[str, int | None]]:
    spec = cluster.at(route, "spec")
    for protocol in ("http", "tls", "tcp"):
        for entry in cluster.items(spec, protocol):
            for target in cluster.items(entry, "route"):
                destination = cluster.at(target, "destination")
                port = cluster.at(destination, "port").get("number")
                if host := destination.get("host"):
                    yield str(host), port


def service_name(host: str, namespace: str, domain: str) -> str:
    """Read a destination as `namespace/name` of a Service; empty where it is none of this cluster.

    A name without dots is a Service beside the route (istio.io, Destination).
    """
    if "." not in host:
        return f"{namespace}/{host}"
    parts = host.removesuffix(f".{domain}").split(".")
    if len(parts) == 3 and parts[2] == "svc":
        return f"{parts[1]}/{parts[0]}"
    return ""


def relevant(
    routes: Iterable[cluster.Object], *, namespaces: Collection[str], model: str
) -> Sequence[cluster.Object]:
    """Pick the routes of the model, of its profiles, and those bound to the model's Gateways."""
    return [
        route
        for route in routes
        if route["metadata"]["namespace"] in namespaces
        or any(
            str(name).startswith(f"{model}/")
            for name in cluster.items(cluster.at(route, "spec"), "gateways")
        )
    ]


def _reference(obj: cluster.Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
