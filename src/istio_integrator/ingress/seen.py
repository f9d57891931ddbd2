"""Decisions and messages from the gateway's Envoy configuration, which the workload reads."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence

import msgspec

from integrator_contract.seen import Cause, EnvoyState, Expectation, Protocol, ReadFailure, Server
from istio_integrator import error_messages
from istio_integrator.asked import gateway
from istio_integrator.ingress import record
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template
from istio_integrator.situation.situation import Situation

_SAID = {cause: Template[cause.name] for cause in Cause}
_MOST_LARGEST = 3
"""VirtualServices that are named when a gateway has too many routes."""
_HIDDEN = re.compile(r"x-[0-9a-f]{32}\.")
"""The start of the placeholder host of a Gateway without open hosts; no client requests it."""


def list_servers(
    target: gateway.Target, opened: cluster.Object | None, *, has_tls: bool
) -> tuple[Server, ...]:
    """List the servers of this charm's Gateway, with their current hosts."""
    https = target.https_port if has_tls else None
    ports: list[tuple[int | None, Protocol]] = [(target.http_port, "HTTP"), (https, "HTTPS")]
    return tuple(
        Server(port=port, protocol=protocol, hosts=_read_open_hosts(opened, port))
        for port, protocol in ports
        if port
    )


def decide_hosts(
    expected: Expectation,
    answer: EnvoyState | None,
    target: gateway.Target,
    opened: cluster.Object | None,
    *,
    is_closed: bool,
) -> dict[int, list[str]]:
    """Decide which hosts this charm's Gateway has, by port; none if it is closed.

    A port gets all hosts once each of its filter chains has this charm's filters. It loses them
    if a filter chain lacks the filters. While Envoy's configuration is not known, the hosts do not
    change. A port without hosts gets a random placeholder.
    """
    hidden = choose_placeholder(target, opened)
    seen = answer if answer and answer.unseen is None and answer.of == expected.digest() else None
    result: dict[int, list[str]] = {}
    for server in expected.servers:
        hosts = [host for host in target.written_hosts if host in server.hosts]
        if is_closed:
            hosts = []
        elif seen and server.port in seen.guarded:
            hosts = target.written_hosts
        elif seen and server.port in seen.unguarded:
            hosts = []
        result[server.port] = hosts or [hidden]
    return result


def choose_placeholder(target: gateway.Target, opened: cluster.Object | None) -> str:
    """Return the random host of a port without open hosts: the present one, or a new one.

    It is below the first host, as policies may require of every host of a Gateway.
    """
    # A host has 253 characters at most.
    first = next((host for host in target.hosts if len(host) < 200), "invalid")
    end = f".{first.removeprefix('*.')}"
    named = (
        host for _, hosts in _read_gateway_servers(opened) for host in hosts if _HIDDEN.match(host)
    )
    return next((host for host in named if host.endswith(end)), record.make_random_value() + end)


def list_open_hosts(opened: cluster.Object | None) -> set[str]:
    """List the open hosts of a Gateway."""
    return {
        host
        for _, hosts in _read_gateway_servers(opened)
        for host in hosts
        if not _HIDDEN.match(host)
    }


def is_gone(answer: EnvoyState | None) -> bool:
    """Tell whether the gateway's Envoys no longer have a virtual host of this charm's Gateway."""
    return (
        answer is not None and answer.unseen in (None, ReadFailure.NO_PODS) and not answer.is_open
    )


def report(
    situation: Situation,
    expected: Expectation,
    answer: EnvoyState | None,
    target: gateway.Target,
    count: int,
) -> Iterable[Message]:
    """Report the number of served routes, or the first missing part of the configuration."""
    where = target.reference
    if answer is None:
        yield Template.GATEWAY_NOT_SEEN(gateway=where)
    elif answer.refusal:
        reference = f"port-forwards to pods in {target.namespace}"
        yield error_messages.explain_refusal(answer.refusal, reference, f"{where} is not seen")
    elif answer.unseen is ReadFailure.FORBIDDEN:
        yield Template.PERMISSION_MISSING(right=answer.detail, application=situation.application)
    elif answer.unseen in (ReadFailure.UNREACHABLE, ReadFailure.TOO_LARGE):
        yield Template.ENVOY_NOT_SEEN(
            gateway=where, why=answer.unseen, namespace=target.namespace, detail=answer.detail
        )
    elif answer.missing and answer.is_late and answer.of == expected.digest():
        first, *others = answer.missing
        is_unread = first.cause is Cause.ROUTES_UNREAD
        yield _SAID[first.cause](
            gateway=where,
            namespace=target.namespace,
            istiod=expected.istiod,
            host=first.host,
            port=first.port,
            protocol=first.protocol,
            secrets=first.secrets,
            by=first.by,
            routes=_name_largest_routes(situation) if is_unread else first.routes,
            words=first.words or answer.words or "the log has its words",
            domain=first.domain,
            home=first.home,
            service=first.service,
            others=f"and {len(others)} more" if others else "",
        )
    elif answer.missing or answer.routes < expected.routes or answer.of != expected.digest():
        # A gateway without a Ready pod is reported as such.
        if answer.unseen is not ReadFailure.NO_PODS:
            yield Template.ROUTES_NOT_SEEN_YET(gateway=where)
    elif count:
        routes = f"{count} route{'s' if count > 1 else ''}"
        some = f" ({answer.pods}/{answer.ready} pods seen)" if answer.pods < answer.ready else ""
        yield Template.ROUTES_SERVED(routes=routes, gateway=where, some=some)


def _name_largest_routes(situation: Situation) -> str:
    """Name the largest VirtualServices of gateways, with their sizes."""
    sizes = (
        (len(msgspec.json.encode(each)), cluster.namespaced_name(each))
        for each in situation.cluster.stream(cluster.VIRTUAL_SERVICE)
        if cluster.items(cluster.at(each, "spec"), "gateways") not in ([], ["mesh"])
    )
    largest = heapq.nlargest(_MOST_LARGEST, sizes)
    return ", ".join(f"{name} ({size // 1000} kB)" for size, name in largest)


def _read_gateway_servers(opened: cluster.Object | None) -> Iterable[tuple[object, Sequence[str]]]:
    """List ports and hosts of a Gateway of Istio or of the Gateway API."""
    spec = cluster.at(opened, "spec")
    for each in cluster.parts(spec, "servers"):
        yield cluster.at(each, "port").get("number"), each["hosts"]
    for each in cluster.parts(spec, "listeners"):
        yield each.get("port"), [each.get("hostname", "*")]


def _read_open_hosts(opened: cluster.Object | None, port: int) -> tuple[str, ...]:
    found = (
        host for number, hosts in _read_gateway_servers(opened) if number == port for host in hosts
    )
    return tuple(dict.fromkeys(host for host in found if not _HIDDEN.match(host)))
