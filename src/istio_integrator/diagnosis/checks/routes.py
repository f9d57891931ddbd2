"""Do the routes of the model and its profiles lead anywhere?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import observed
from istio_integrator.kube import cluster, fences

_EVERY_PROXY = "mesh"
"""Not a Gateway: a route that names it is for sidecars."""


@registry.check(
    "gateways",
    place=110,
    question="do the Gateways exist that routes name",
    reads="VirtualServices",
    symptoms=("404-at-the-gateway",),
)
def gateways(facts: Facts) -> Iterable[Finding]:
    """Look at the Gateways that routes name."""
    routes = _of_model(facts)
    return judge_gateways(routes, facts.objects(cluster.GATEWAY)) if routes else ()


@registry.check(
    "routes",
    place=120,
    question="has each one a backend that is ready",
    reads="EndpointSlices",
    symptoms=("no-healthy-upstream",),
)
def backends(facts: Facts) -> Iterable[Finding]:
    """Look at what routes lead to."""
    routes = _of_model(facts)
    if not routes:
        return ()
    return judge_backends(
        routes,
        facts.objects(cluster.SERVICE),
        facts.objects(cluster.ENDPOINT_SLICE),
        domain=facts.domain,
        owner=facts.manifests.owner,
        model=facts.model,
    )


def _of_model(facts: Facts) -> Sequence[cluster.Object]:
    """List the routes of the model and its profiles."""
    namespaces = (facts.model, *facts.profiles)
    routes = facts.objects(cluster.VIRTUAL_SERVICE)
    return relevant(routes, namespaces=namespaces, model=facts.model)


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


def gateways_of(route: cluster.Object) -> Iterable[str]:
    """List the Gateways that a route names, each as `namespace/name`."""
    namespace = route["metadata"]["namespace"]
    for name in map(str, cluster.items(cluster.at(route, "spec"), "gateways")):
        if name != _EVERY_PROXY:
            yield name if "/" in name else f"{namespace}/{name}"


def judge_gateways(
    routes: Iterable[cluster.Object], gateways: Iterable[cluster.Object]
) -> Iterable[Finding]:
    """Judge whether the Gateways that routes are bound to exist.

    Args:
        routes: VirtualServices.
        gateways: All there are.
    """
    there = {observed.reference(obj) for obj in gateways}
    missing: dict[str, list[str]] = {}
    for route in routes:
        with fences.around(cluster.reference(route)):
            for name in gateways_of(route):
                if name not in there:
                    missing.setdefault(name, []).append(observed.reference(route))
    for name, users in sorted(missing.items()):
        yield findings.broken(
            f"there is no Gateway {name}, which VirtualService {report.listed(users)} names",
            "kubectl get gateways.networking.istio.io -A",
        )
    if not missing:
        yield findings.fine("every Gateway that a route names exists")


def judge_backends(
    routes: Iterable[cluster.Object],
    services: Iterable[cluster.Object],
    slices: Iterable[cluster.Object],
    *,
    domain: str,
    owner: str,
    model: str,
) -> Iterable[Finding]:
    """Judge whether each route leads to an application that is ready.

    Args:
        routes: VirtualServices.
        services: All there are.
        slices: Their endpoints.
        domain: Of the cluster.
        owner: Ours; the routes of others are doubted only.
        model: Where ours are.
    """
    known = {observed.reference(obj): obj for obj in services}
    ready = _ready_ports(slices)
    count = 0
    for route in routes:
        with fences.around(cluster.reference(route)):
            marks = cluster.at(route, "metadata", "labels")
            place = route["metadata"]["namespace"]
            # Anybody may write our label on a route of their own.
            ours = marks.get(names.OWNER) == owner and place == model
            say = findings.broken if ours else findings.doubtful
            for host, port in dict.fromkeys(_destinations(route)):
                name = service_name(host, place, domain)
                if not name:
                    continue
                if problem := _problem(name, port, known.get(name), ready):
                    where = f"VirtualService {observed.reference(route)}"
                    namespace, _, service = name.partition("/")
                    show = f"kubectl -n {namespace} get service,endpointslices -l "
                    show += f"{names.SERVICE_NAME}={service}"
                    yield say(f"{where}: {problem}", show)
                else:
                    count += 1
    if count:
        yield findings.fine(f"{count} backends of routes are ready")


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
    entries = cluster.parts(cluster.at(service, "spec"), "ports")
    wanted = [entry for entry in entries if port in (None, entry.get("port"))]
    if not wanted:
        return f"Service {name} has no port {port}"
    if not any(str(entry.get("name") or "") in ready.get(name, ()) for entry in wanted):
        return f"Service {name} has no ready endpoint"
    return ""


def _ready_ports(slices: Iterable[cluster.Object]) -> dict[str, set[str]]:
    """List the names of the ports at which each Service has a ready endpoint."""
    found: dict[str, set[str]] = {}
    for part in slices:
        with fences.around(cluster.reference(part)):
            service = cluster.at(part, "metadata", "labels").get(names.SERVICE_NAME)
            ready = any(
                # Absent is ready (discovery/v1, EndpointConditions).
                cluster.at(endpoint, "conditions").get("ready") in (True, None)
                for endpoint in cluster.parts(part, "endpoints")
            )
            if service and ready:
                ports = {str(port.get("name") or "") for port in cluster.parts(part, "ports")}
                found.setdefault(f"{part['metadata']['namespace']}/{service}", set()).update(ports)
    return found


def _destinations(route: cluster.Object) -> Iterable[tuple[str, int | None]]:
    spec = cluster.at(route, "spec")
    for protocol in ("http", "tls", "tcp"):
        for entry in cluster.parts(spec, protocol):
            for target in cluster.parts(entry, "route"):
                destination = cluster.at(target, "destination")
                port = cluster.at(destination, "port").get("number")
                if host := destination.get("host"):
                    yield str(host), port if isinstance(port, int) else None


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


def show(name: str) -> str:
    """Return the command that prints a VirtualService, `namespace/name`."""
    namespace, _, name = name.partition("/")
    return f"kubectl -n {namespace} get virtualservice {name} -o yaml"
