"""Which routes of the model and its profiles does no Gateway serve?

KServe and Knative have a host for each model, in the namespaces of their users.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import gateway, observed
from istio_integrator.kube import cluster, fences

from . import routes

_MOST_HOSTS = 32
"""Hosts of one route that are looked at; net-istio writes four for each tag, KServe two."""
_EVERY_PROXY = "mesh"
"""Not a Gateway: a route that names it is for sidecars."""


@registry.check(
    "hosts",
    place=110,
    symptoms=("404-at-the-gateway",),
)
def hosts(facts: Facts) -> Iterable[Finding]:
    """Name routes whose Gateway does not exist, or which have no host that the Gateway serves."""
    found = routes.of_model(facts)
    if not found:
        return
    yield from judge_gateways(found, facts.objects(cluster.GATEWAY))
    if facts.gateway is not None:
        yield from judge(found, f"{facts.model}/{gateway.NAME}", facts.gateway.written_hosts)


def judge_gateways(
    virtual_services: Iterable[cluster.Object], gateways: Iterable[cluster.Object]
) -> Iterable[Finding]:
    """Judge whether the Gateways exist that routes name."""
    there = {observed.reference(obj) for obj in gateways}
    missing: dict[str, list[str]] = {}
    for route in virtual_services:
        with fences.around(cluster.reference(route)):
            for name in _gateways_of(route):
                if name not in there:
                    missing.setdefault(name, []).append(observed.reference(route))
    for name, users in sorted(missing.items()):
        yield findings.broken(
            f"there is no Gateway {name}, which VirtualService {report.listed(users)} names",
            "kubectl get gateways.networking.istio.io -A",
        )
    if not missing:
        yield findings.fine("every Gateway that a route names exists")


def judge(
    virtual_services: Iterable[cluster.Object], own: str, served: Collection[str]
) -> Iterable[Finding]:
    """Judge whether our Gateway serves a host of each route that names it."""
    unserved: list[str] = []
    lacking: list[str] = []
    for route in virtual_services:
        with fences.around(cluster.reference(route)):
            listed = cluster.items(cluster.at(route, "spec"), "hosts")[:_MOST_HOSTS]
            names = [str(each).lower() for each in listed]
            is_served = any(_meet(name, host) for name in names for host in served)
            if names and not is_served and own in _gateways_of(route):
                unserved.append(observed.reference(route))
                # The others are for pods.
                inside = (f".{route['metadata']['namespace']}", ".svc")
                outside = [n for n in names if not n.endswith(inside) and ".svc." not in n]
                lacking += (outside or names)[:1]
    if unserved:
        namespace, _, name = unserved[0].partition("/")
        yield findings.doubtful(
            f"Gateway {own} serves no host of VirtualService {report.listed(unserved)}: add "
            f"{report.listed(lacking)} to the option hosts, or a wildcard for them",
            f"kubectl -n {namespace} get virtualservice {name} -o yaml",
        )
    else:
        yield findings.fine("the model's Gateway serves every route of the model and its profiles")


def _gateways_of(route: cluster.Object) -> Iterable[str]:
    """List the Gateways that a route names, each as `namespace/name`."""
    namespace = route["metadata"]["namespace"]
    for name in map(str, cluster.items(cluster.at(route, "spec"), "gateways")):
        if name != _EVERY_PROXY:
            yield name if "/" in name else f"{namespace}/{name}"


def _meet(one: str, other: str) -> bool:
    """Tell whether two hosts have a name in common, each of which may begin with a wildcard."""
    if one.startswith("*") and (other.endswith(one[1:]) or one == "*"):
        return True
    return one == other or (other.startswith("*") and one.endswith(other[1:]))
