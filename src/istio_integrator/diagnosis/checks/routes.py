"""Are the routes of the model and its profiles served, and do their backends exist?

KServe and Knative write a host for each inference service, in profile namespaces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from integrator_contract import names
from istio_integrator import texts
from istio_integrator.asked import gateway
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts, VirtualService
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Severity, Template


@registry.check("routes", place=120, symptoms=("no-healthy-upstream",))
def check_backends(facts: Facts) -> Iterable[Message]:
    """Check whether each route of the model and its profiles has a backend that is ready."""
    domain = facts.situation.cluster_domain
    wanted = {
        (route, _find_service(host, route.namespace, domain), port): None
        for route in facts.virtual_services
        for host, port in route.destinations
    }
    names = {name for _, name, _ in wanted if name}
    if not names:
        return
    known = {
        name: cluster.at(obj, "spec")
        for obj in facts.situation.cluster.stream(cluster.SERVICE)
        if (name := cluster.namespaced_name(obj)) in names
    }
    ready = _find_ready_ports(facts.situation.cluster.stream(cluster.ENDPOINT_SLICE), names)
    count = 0
    for route, name, port in wanted:
        namespace, _, service = name.partition("/")
        if problem := name and _find_problem(name, port, known.get(name), ready):
            said = Template.BACKEND_NOT_READY(
                route=route.name, problem=problem, namespace=namespace, service=service
            )
            severity = Severity.BLOCKED if route.is_ours else Severity.DOUBT
            yield dataclasses.replace(said, severity=severity)
        elif name:
            count += 1
    if count:
        yield Template.BACKENDS_READY(count=count)


def _find_problem(
    name: str,
    port: int | None,
    spec: cluster.Object | None,
    ready: Mapping[str, Collection[str]],
) -> str:
    if spec is None:
        return f"Service {name} does not exist"
    if spec.get("type") == "ExternalName":
        return ""
    wanted = [each for each in cluster.parts(spec, "ports") if port in (None, each.get("port"))]
    if not wanted:
        return f"Service {name} has no port {port}"
    is_ready = any(str(each.get("name") or "") in ready.get(name, ()) for each in wanted)
    return "" if is_ready else f"Service {name} has no ready endpoint"


def _find_ready_ports(
    slices: Iterable[cluster.Object], services: Collection[str]
) -> dict[str, set[str]]:
    """List the names of the ports at which each of some Services has a ready endpoint."""
    found: dict[str, set[str]] = {}
    for part in slices:
        with fences.isolate(cluster.reference(part)):
            label = cluster.at(part, "metadata", "labels").get(names.SERVICE_NAME)
            service = f"{part['metadata']['namespace']}/{label}"
            endpoints = cluster.parts(part, "endpoints") if service in services else []
            # A missing condition means ready (discovery/v1, EndpointConditions).
            if any(cluster.at(one, "conditions").get("ready") is not False for one in endpoints):
                ports = {str(port.get("name") or "") for port in cluster.parts(part, "ports")}
                found.setdefault(service, set()).update(ports)
    return found


def _find_service(host: str, namespace: str, domain: str) -> str:
    """Read a destination as `namespace/name` of a Service; empty for hosts outside the cluster.

    A name without dots is a Service in the route's namespace (istio.io, Destination).
    """
    if "." not in host:
        return f"{namespace}/{host}"
    parts = host.removesuffix(f".{domain}").split(".")
    return f"{parts[1]}/{parts[0]}" if len(parts) == 3 and parts[2] == "svc" else ""


@registry.check("hosts", place=110, symptoms=("404-at-the-gateway",))
def check_hosts(facts: Facts) -> Iterable[Message]:
    """Name routes whose Gateway does not exist, or which have no host that the Gateway serves."""
    if not (routes := facts.virtual_services):
        return
    there = {
        cluster.namespaced_name(obj) for obj in facts.situation.cluster.stream(cluster.GATEWAY)
    }
    missing: dict[str, list[str]] = {}
    for route in routes:
        for name in {*route.gateways} - there:
            missing.setdefault(name, []).append(route.name)
    for name, users in sorted(missing.items()):
        yield Template.ROUTE_WITHOUT_GATEWAY(gateway=name, routes=texts.join_names(users))
    if not missing:
        yield Template.GATEWAYS_EXIST()
    if facts.gateway is not None:
        yield judge_hosts(
            routes, f"{facts.situation.model}/{gateway.NAME}", facts.gateway.written_hosts
        )


def judge_hosts(routes: Iterable[VirtualService], own: str, served: Collection[str]) -> Message:
    """Check whether this charm's Gateway serves a host of each route that names it."""
    unserved: list[str] = []
    lacking: list[str] = []
    for route in routes:
        hosts = route.hosts
        is_served = any(_do_hosts_overlap(name, host) for name in hosts for host in served)
        if hosts and not is_served and own in route.gateways:
            unserved.append(route.name)
            # Only pods use the hosts of Services.
            inside = (f".{route.namespace}", ".svc")
            outside = [n for n in hosts if not n.endswith(inside) and ".svc." not in n]
            lacking += (outside or hosts)[:1]
    if not unserved:
        return Template.HOSTS_SERVED()
    namespace, _, name = unserved[0].partition("/")
    return Template.HOSTS_NOT_SERVED(
        gateway=own,
        routes=texts.join_names(unserved),
        hosts=texts.join_names(lacking),
        namespace=namespace,
        name=name,
    )


def _do_hosts_overlap(one: str, other: str) -> bool:
    """Tell whether two hosts, which may begin with a wildcard, have a name in common."""
    if one.startswith("*") and (other.endswith(one[1:]) or one == "*"):
        return True
    return one == other or (other.startswith("*") and one.endswith(other[1:]))
