"""What others have on the gateway workload that serves the model, and what that forbids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from istio_integrator.ingress import observed
from istio_integrator.ingress.gateway import Place, Target
from istio_integrator.kube import cluster


def neighbours(
    gateways: Iterable[cluster.Object],
    marks: Mapping[str, str],
    *,
    ours: str,
    hosts: Collection[str],
) -> tuple[observed.Neighbour, ...]:
    """Read the Gateways of others on a workload.

    Of too many those count that serve our hosts, then the oldest: newcomers displace nobody.

    Args:
        gateways: All there are.
        marks: Labels of the workload's pods.
        ours: Our Gateway, `namespace/name`.
        hosts: Of the model.
    """
    others = [
        observed.Neighbour.of(obj, hosts)
        for obj in gateways
        if observed.reference(obj) != ours and observed.matches(observed.selector_of(obj), marks)
    ]
    others.sort(key=lambda one: (not _shares(one, hosts), one.created, one.reference))
    return tuple(sorted(others[: observed.MOST_NEIGHBOURS], key=lambda one: one.reference))


def _shares(neighbour: observed.Neighbour, hosts: Collection[str]) -> bool:
    return any(not neighbour.hosts_at(one.port).isdisjoint(hosts) for one in neighbour.servers)


def trouble(target: Target, hosts: Collection[str], *, only_https: bool) -> str:
    """Say what keeps these hosts from a workload that others use too; empty: nothing."""
    if not hosts:
        return _needs_hosts(target)
    return ("" if only_https else _needs_https(target, hosts)) or _taken(target, hosts)


def refused_change(
    target: Target, current: Place, hosts: Collection[str], *, only_https: bool
) -> str:
    """Say what keeps hosts that are not served yet from being so; empty: nothing.

    Args:
        target: Where they are to be served.
        current: What is served there now.
        hosts: What is to be served.
        only_https: Whether nothing but redirects will be served without TLS.
    """
    if not hosts:
        return _needs_hosts(target) if current.hosts else ""
    new = [host for host in hosts if host not in current.hosts]
    opened = hosts if current.only_https else new
    return ("" if only_https else _needs_https(target, opened)) or _taken(target, new)


def _needs_hosts(target: Target) -> str:
    if not target.neighbours:
        return ""
    return (
        f"Gateway {target.neighbours[0].reference} is on the same workload {target.reference}: "
        "set hosts to the names that this model is reached by"
    )


def _needs_https(target: Target, hosts: Iterable[str]) -> str:
    # Routes to a host within the wildcard would be in a virtual host that we can't name.
    wildcards = [host for host in hosts if host.startswith("*")]
    if not (wildcards and target.neighbours and target.http_port):
        return ""
    return (
        f"hosts: '{wildcards[0]}' on a shared gateway needs TLS and https-redirect=true, or name "
        f"each host (Gateway {target.neighbours[0].reference} is on it too)"
    )


def _taken(target: Target, hosts: Collection[str]) -> str:
    for neighbour in target.neighbours:
        for port in target.ports:
            if taken := neighbour.hosts_at(port) & set(hosts):
                return (
                    f"Gateway {neighbour.reference} serves host {min(taken)} too: change hosts, "
                    "or have it removed"
                )
    return ""
