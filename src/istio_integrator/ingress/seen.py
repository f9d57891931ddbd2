"""What the gateway's Envoys should have, and the status of what the workload saw there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract.seen import Expectation, Protocol, Seen, Server, Unseen
from istio_integrator.ingress import authorization, gateway, routes
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Said


def expect(
    target: gateway.Target,
    opened: cluster.Object | None,
    served: Sequence[routes.Route],
    service: authorization.Service | None,
    *,
    model: str,
    has_tls: bool,
    filters: tuple[str, ...],
    marks: tuple[str, ...],
) -> Expectation:
    """Describe what the gateway's Envoys should have.

    Args:
        target: The gateway workload.
        opened: Our Gateway, with the hosts that it has now; None before it exists.
        served: The routes that are written.
        service: The authorization service; None where requests are not authenticated.
        model: The namespace of our Gateway.
        has_tls: Whether our Gateway serves HTTPS.
        filters: The names of our HTTP filters.
        marks: The values that the routes demand of a header.
    """
    matches = sum(len(entry.uris) for route in served for entry in route.entries)
    clusters = {f"outbound|{to.port}||{to.host}" for route in served for to in route.backends}
    return Expectation(
        namespace=target.namespace,
        selector=dict(target.selector),
        gateway=f"{model}/{gateway.NAME}",
        servers=servers(target, opened, has_tls=has_tls),
        filters=filters,
        # An HTTPRoute has one match.
        routes=len(served) if target.is_managed else matches,
        marks=marks,
        clusters=tuple(sorted(clusters | ({service.cluster} if service else set()))),
    )


def servers(
    target: gateway.Target, opened: cluster.Object | None, *, has_tls: bool
) -> tuple[Server, ...]:
    """List the servers of our Gateway, with the hosts that it has now.

    Args:
        target: The gateway workload.
        opened: Our Gateway; None before it exists.
        has_tls: Whether it serves HTTPS.
    """
    https = target.https_port if has_tls else None
    ports: list[tuple[int | None, Protocol]] = [(target.http_port, "HTTP"), (https, "HTTPS")]
    return tuple(
        Server(port=port, protocol=protocol, hosts=_hosts(opened, port))
        for port, protocol in ports
        if port
    )


def filters_of(written: Iterable[cluster.Object]) -> tuple[str, ...]:
    """Return the names of the HTTP filters that EnvoyFilters add."""
    patches = (each for obj in written for each in obj["spec"]["configPatches"])
    values = (each["patch"]["value"] for each in patches if each["applyTo"] == "HTTP_FILTER")
    return tuple(str(value["name"]) for value in values)


def messages(
    expected: Expectation, answer: Seen | None, target: gateway.Target, *, count: int, istiod: str
) -> Iterable[Message]:
    """Say what the gateway serves, or the first thing that it lacks.

    Args:
        expected: What it should have.
        answer: What the workload saw; None where it does not answer.
        target: The gateway workload.
        count: Routes that are written.
        istiod: Its namespace.
    """
    routes, where = f"{count} route{'s' if count > 1 else ''}", target.reference
    if answer is None or answer.of != expected.word() or answer.unseen:
        why = ""
        if answer and answer.unseen is Unseen.FORBIDDEN:
            why = f" (not seen: missing permission: {answer.detail})"
        yield Said.ROUTES_WRITTEN(routes=routes, gateway=where, why=why)
    elif answer.missing and answer.is_late:
        yield _lacking(answer, target, istiod)
    elif answer.missing or answer.routes < expected.routes:
        yield Said.ROUTES_WRITTEN(routes=routes, gateway=where, why="")
    else:
        some = f" ({answer.pods}/{answer.ready} pods seen)" if answer.pods < answer.ready else ""
        yield Said.ROUTES_SERVED(routes=routes, gateway=where, some=some)


def _lacking(answer: Seen, target: gateway.Target, istiod: str) -> Message:
    first, *others = answer.missing
    names = {"gateway": target.reference, "namespace": target.namespace, "istiod": istiod}
    more = f"and {len(others)} more" if others else ""
    return Said[first.cause.name](**first.about, **names, others=more)


def _servers(opened: cluster.Object | None) -> Iterable[tuple[object, Sequence[str]]]:
    """List ports and hosts of our Gateway, which is Istio's or of the Gateway API."""
    spec = cluster.at(opened, "spec")
    for each in cluster.parts(spec, "servers"):
        yield cluster.at(each, "port").get("number"), each["hosts"]
    for each in cluster.parts(spec, "listeners"):
        yield each.get("port"), [each.get("hostname", "*")]


def _hosts(opened: cluster.Object | None, port: int) -> tuple[str, ...]:
    found = (host for number, hosts in _servers(opened) if number == port for host in hosts)
    return tuple(dict.fromkeys(found))
