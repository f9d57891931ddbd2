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
    return _taken(target, hosts) or ("" if only_https else _within(target, hosts))


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
    return _taken(target, new) or ("" if only_https else _within(target, opened))


def _needs_hosts(target: Target) -> str:
    if not target.neighbours:
        return ""
    return (
        f"Gateway {target.neighbours[0].reference} is on the same workload {target.reference}: "
        "set hosts to the names that this model is reached by"
    )


def _within(target: Target, hosts: Iterable[str]) -> str:
    """Say who serves a host within a wildcard of ours without TLS, where we would do so, too.

    What is theirs there and what is ours, istiod makes one virtual host of.
    """
    for wildcard in (host for host in hosts if host.startswith("*")):
        for neighbour in target.neighbours if target.http_port else ():
            served = sorted(neighbour.hosts_at(target.http_port or 0))
            if inside := next((host for host in served if host.endswith(wildcard[1:])), ""):
                return (
                    f"hosts: Gateway {neighbour.reference} serves '{inside}', which is within "
                    f"'{wildcard}', without TLS: name each host of this model, or have all "
                    "of them on HTTPS alone, by https-redirect=true and a certificate"
                )
    return ""


def _taken(target: Target, hosts: Collection[str]) -> str:
    for neighbour in target.neighbours:
        for port in target.ports:
            if taken := neighbour.hosts_at(port) & set(hosts):
                return (
                    f"Gateway {neighbour.reference} serves host {min(taken)} too: change hosts, "
                    "or have it removed"
                )
    return ""
