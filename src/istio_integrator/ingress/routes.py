"""What related applications ask for, as routes that don't depend on the order they came in."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from istio_integrator.kube import owners
from istio_integrator.relations import kubeflow

FOLDER = "routes"


@dataclasses.dataclass(frozen=True)
class Match:
    """One prefix of a route."""

    prefix: str
    rewrite: str
    without: str = ""
    """Paths below the prefix that are other routes', as a regular expression."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Route:
    """One relation's way to its Service."""

    name: str
    """Of its VirtualService."""
    relation: str
    """`ingress:3 kfp-ui`, for people."""
    host: str
    port: int
    matches: tuple[Match, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in routes."""

    routes: Sequence[Route]
    gateway: str
    hosts: Sequence[str]
    export_to: Sequence[str]


Requests = Sequence[kubeflow.Received[kubeflow.IngressRequest]]


def from_requests(received: Requests, *, model: str, application: str, domain: str) -> list[Route]:
    """Turn requests into routes; of several for the same prefix the oldest relation has it.

    Args:
        received: What the applications that are related to `ingress` said.
        model: Where their Services are, if they don't say so.
        application: Ours.
        domain: The cluster's, which ends the names of Services.
    """
    served = _served(received)
    prefixes = [request.prefix for _, request in served]
    return [
        Route(
            name=owners.object_name(application, f"ingress-{one.relation}"),
            relation=f"{kubeflow.INGRESS}:{one.relation} {one.application}",
            host=f"{request.service}.{request.namespace or model}.svc.{domain}",
            port=request.port,
            matches=matches(request.prefix, request.rewrite or request.prefix, prefixes),
        )
        for one, request in served
    ]


def problems(received: Requests) -> Iterable[str]:
    """Say what is wrong with requests, each with who has to correct it."""
    owners = {request.prefix: one for one, request in _served(received)}
    for one in received:
        where = f"{kubeflow.INGRESS}:{one.relation} {one.application}"
        if one.problem:
            yield f"{where}: {one.problem}"
        elif one.message and owners[one.message.prefix] is not one:
            owner = owners[one.message.prefix].application
            yield f"{where}: prefix {one.message.prefix} belongs to {owner}"


def matches(prefix: str, rewrite: str, others: Iterable[str]) -> tuple[Match, ...]:
    """Write what a prefix matches beside the others, whatever the order they are looked at in.

    Istio looks at `/` last by itself; other prefixes that contain each other would be served by
    whichever VirtualService is older.
    """
    inner = sorted({other for other in others if other.startswith(prefix) and other != prefix})
    without = f"(?:{'|'.join(map(re.escape, inner))}).*" if inner and prefix != "/" else ""
    exact = Match(prefix, rewrite, without)
    if rewrite.endswith("/") and not prefix.endswith("/"):
        # Of /volumes/x, replacing /volumes by / alone would leave //x.
        return (Match(f"{prefix}/", rewrite, without), exact)
    return (exact,)


def _served(
    received: Requests,
) -> list[tuple[kubeflow.Received[kubeflow.IngressRequest], kubeflow.IngressRequest]]:
    found: dict[
        str, tuple[kubeflow.Received[kubeflow.IngressRequest], kubeflow.IngressRequest]
    ] = {}
    for one in sorted(received, key=lambda one: one.relation):
        if one.message:
            found.setdefault(one.message.prefix, (one, one.message))
    return list(found.values())
