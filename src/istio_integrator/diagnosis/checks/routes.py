"""Are the routes of the model and its profiles served, and do their backends exist?

KServe and Knative write a host for each inference service, in profile namespaces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from integrator_contract import names
from istio_integrator import texts
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Said, Severity

_MOST_HOSTS = 32
"""Hosts of one route that are checked; net-istio writes four for each tag, KServe two."""
_EVERY_PROXY = "mesh"
"""Not a Gateway: a route with this name is for sidecars."""


def _of_model(facts: Facts) -> list[cluster.Object]:
    """List the routes of the model, of its profiles, and those bound to the model's Gateways."""
    namespaces = (facts.model, *facts.profiles)
    return [
        route
        for route in facts.cluster.list(cluster.VIRTUAL_SERVICE)
        if route["metadata"]["namespace"] in namespaces
        or any(name.startswith(f"{facts.model}/") for name in _gateways_of(route))
    ]


@registry.check("routes", place=120, symptoms=("no-healthy-upstream",))
def backends(facts: Facts) -> Iterable[Message]:
    """Check whether each route of the model and its profiles has a backend that is ready."""
    if not (routes := _of_model(facts)):
        return
    known = {cluster.namespaced_name(obj): obj for obj in facts.cluster.list(cluster.SERVICE)}
    ready = _ready_ports(facts.cluster.list(cluster.ENDPOINT_SLICE))
    count = 0
    for route in routes:
        with fences.around(cluster.reference(route)):
            severity = (
                Severity.BLOCKED if facts.situation.manifests.is_ours(route) else Severity.DOUBT
            )
            for host, port in dict.fromkeys(_destinations(route)):
                name = _service(
                    host, route["metadata"]["namespace"], facts.situation.cluster_domain
                )
                namespace, _, service = name.partition("/")
                if problem := name and _problem(name, port, known.get(name), ready):
                    said = Said.BACKEND_NOT_READY(
                        route=cluster.namespaced_name(route),
                        problem=problem,
                        namespace=namespace,
                        service=service,
                    )
                    yield dataclasses.replace(said, severity=severity)
                elif name:
                    count += 1
    if count:
        yield Said.BACKENDS_READY(count=count)


def _problem(
    name: str,
    port: int | None,
    service: cluster.Object | None,
    ready: Mapping[str, Collection[str]],
) -> str:
    spec = cluster.at(service, "spec")
    wanted = [each for each in cluster.parts(spec, "ports") if port in (None, each.get("port"))]
    if service is None:
        return f"Service {name} does not exist"
    if spec.get("type") == "ExternalName":
        return ""
    if not wanted:
        return f"Service {name} has no port {port}"
    is_ready = any(str(each.get("name") or "") in ready.get(name, ()) for each in wanted)
    return "" if is_ready else f"Service {name} has no ready endpoint"


def _ready_ports(slices: Iterable[cluster.Object]) -> dict[str, set[str]]:
    """List the names of the ports at which each Service has a ready endpoint."""
    found: dict[str, set[str]] = {}
    for part in slices:
        with fences.around(cluster.reference(part)):
            service = cluster.at(part, "metadata", "labels").get(names.SERVICE_NAME)
            endpoints = cluster.parts(part, "endpoints")
            # A missing condition means ready (discovery/v1, EndpointConditions).
            if any(cluster.at(one, "conditions").get("ready") is not False for one in endpoints):
                ports = {str(port.get("name") or "") for port in cluster.parts(part, "ports")}
                found.setdefault(f"{part['metadata']['namespace']}/{service}", set()).update(ports)
    return found


def _destinations(route: cluster.Object) -> Iterable[tuple[str, int | None]]:
    """List the destination hosts of a route, each with a port of its Service; None: any port."""
    spec = cluster.at(route, "spec")
    for protocol in ("http", "tls", "tcp"):
        for entry in cluster.parts(spec, protocol):
            for target in cluster.parts(entry, "route"):
                destination = cluster.at(target, "destination")
                port = cluster.at(destination, "port").get("number")
                if host := destination.get("host"):
                    yield str(host), port if isinstance(port, int) else None


def _service(host: str, namespace: str, domain: str) -> str:
    """Read a destination as `namespace/name` of a Service; empty for hosts outside the cluster.

    A name without dots is a Service in the route's namespace (istio.io, Destination).
    """
    if "." not in host:
        return f"{namespace}/{host}"
    parts = host.removesuffix(f".{domain}").split(".")
    return f"{parts[1]}/{parts[0]}" if len(parts) == 3 and parts[2] == "svc" else ""


@registry.check("hosts", place=110, symptoms=("404-at-the-gateway",))
def hosts(facts: Facts) -> Iterable[Message]:
    """Name routes whose Gateway does not exist, or which have no host that the Gateway serves."""
    if not (routes := _of_model(facts)):
        return
    there = {cluster.namespaced_name(obj) for obj in facts.cluster.list(cluster.GATEWAY)}
    missing: dict[str, list[str]] = {}
    for route in routes:
        with fences.around(cluster.reference(route)):
            for name in {*_gateways_of(route)} - there:
                missing.setdefault(name, []).append(cluster.namespaced_name(route))
    for name, users in sorted(missing.items()):
        yield Said.ROUTE_WITHOUT_GATEWAY(gateway=name, routes=texts.listed(users))
    if not missing:
        yield Said.GATEWAYS_EXIST()
    if facts.gateway is not None:
        yield judge_hosts(routes, f"{facts.model}/{gateway.NAME}", facts.gateway.written_hosts)


def judge_hosts(routes: Iterable[cluster.Object], own: str, served: Collection[str]) -> Message:
    """Check whether this charm's Gateway serves a host of each route that names it."""
    unserved: list[str] = []
    lacking: list[str] = []
    for route in routes:
        with fences.around(cluster.reference(route)):
            listed = cluster.items(cluster.at(route, "spec"), "hosts")[:_MOST_HOSTS]
            hosts = [str(each).lower() for each in listed]
            is_served = any(_meet(name, host) for name in hosts for host in served)
            if hosts and not is_served and own in _gateways_of(route):
                unserved.append(cluster.namespaced_name(route))
                # Only pods use the hosts of Services.
                inside = (f".{route['metadata']['namespace']}", ".svc")
                outside = [n for n in hosts if not n.endswith(inside) and ".svc." not in n]
                lacking += (outside or hosts)[:1]
    if not unserved:
        return Said.HOSTS_SERVED()
    namespace, _, name = unserved[0].partition("/")
    return Said.HOSTS_NOT_SERVED(
        gateway=own,
        routes=texts.listed(unserved),
        hosts=texts.listed(lacking),
        namespace=namespace,
        name=name,
    )


def _gateways_of(route: cluster.Object) -> Iterable[str]:
    """List the Gateways that a route names, each as `namespace/name`."""
    namespace = route["metadata"]["namespace"]
    for name in map(str, cluster.items(cluster.at(route, "spec"), "gateways")):
        if name != _EVERY_PROXY:
            yield name if "/" in name else f"{namespace}/{name}"


def _meet(one: str, other: str) -> bool:
    """Tell whether two hosts, which may begin with a wildcard, have a name in common."""
    if one.startswith("*") and (other.endswith(one[1:]) or one == "*"):
        return True
    return one == other or (other.startswith("*") and one.endswith(other[1:]))
