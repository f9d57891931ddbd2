"""Which routes of the model and its profiles have no host that the model's Gateway serves?

KServe and Knative have a host for each model, in the namespaces of their users.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import gateway, observed
from istio_integrator.kube import cluster, fences

from . import routes

_MOST_HOSTS = 32
"""Hosts of one route that are looked at; net-istio writes four for each tag, KServe two."""


@registry.check(
    "hosts",
    place=125,
    question="which routes of the model and its profiles, such as KServe's, have no host that the "
    "model's Gateway serves",
    reads="VirtualServices",
    symptoms=("404-at-the-gateway",),
)
def hosts(facts: Facts) -> Iterable[Finding]:
    """Look at the hosts of routes."""
    if facts.gateway is None:
        return ()
    found = routes.relevant(
        facts.objects(cluster.VIRTUAL_SERVICE),
        namespaces=(facts.model, *facts.profiles),
        model=facts.model,
    )
    own = f"{facts.model}/{gateway.NAME}"
    return judge(found, own, facts.gateway.written_hosts) if found else ()


def judge(
    virtual_services: Iterable[cluster.Object], own: str, served: Collection[str]
) -> Iterable[Finding]:
    """Judge whether our Gateway serves a host of each route that names it.

    Args:
        virtual_services: Of the model, of its profiles, and those bound to our Gateway.
        own: Our Gateway, `namespace/name`.
        served: Its hosts.
    """
    unserved: dict[str, str] = {}
    for route in virtual_services:
        with fences.around(cluster.reference(route)):
            listed = cluster.items(cluster.at(route, "spec"), "hosts")[:_MOST_HOSTS]
            names = [str(each).lower() for each in listed]
            is_served = any(_meet(name, host) for name in names for host in served)
            if names and not is_served and own in routes.gateways_of(route):
                unserved[observed.reference(route)] = _outward(
                    names, route["metadata"]["namespace"]
                )
    if unserved:
        yield findings.doubtful(
            f"Gateway {own} serves no host of VirtualService {report.listed(unserved)}: add "
            f"{report.listed(unserved.values())} to the option hosts, or a wildcard for them",
            routes.show(next(iter(unserved))),
        )
    else:
        yield findings.fine("the model's Gateway serves every route of the model and its profiles")


def _outward(names: Sequence[str], namespace: str) -> str:
    """Choose the host that is meant for people outside, among those for pods."""
    inward = (f".{namespace}", ".svc")
    meant = (name for name in names if not name.endswith(inward) and ".svc." not in name)
    return next(meant, names[0])


def _meet(one: str, other: str) -> bool:
    """Tell whether two hosts have a name in common, each of which may begin with a wildcard."""
    if one.startswith("*") and (other.endswith(one[1:]) or one == "*"):
        return True
    return one == other or (other.startswith("*") and one.endswith(other[1:]))
