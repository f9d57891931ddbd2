"""Backends that speak gRPC, with which the gateway has to speak HTTP/2."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

from istio_integrator.ingress import gateway
from istio_integrator.ingress.routes import Route
from istio_integrator.kube import cluster, owners

FOLDER = "grpc"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backend:
    """The DestinationRule of one Service."""

    name: str
    host: str
    ports: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in grpc."""

    backends: Sequence[Backend]
    export_to: str

    @classmethod
    def of(
        cls,
        routes: Iterable[Route],
        target: gateway.Target,
        *,
        others: Iterable[cluster.Object],
        application: str,
    ) -> Context:
        """Name the Services of gRPC routes that nobody else has a DestinationRule for.

        Args:
            routes: All of the model.
            target: The gateway workload that serves them.
            others: DestinationRules of others in the model, whose word counts.
            application: Ours.
        """
        ports: dict[str, set[int]] = {}
        for route in routes:
            for backend in route.backends if route.is_grpc else ():
                ports.setdefault(backend.host, set()).add(backend.port)
        taken = [str(cluster.at(rule, "spec").get("host", "")) for rule in others]
        return cls(
            backends=[
                Backend(name=_name(application, host), host=host, ports=tuple(sorted(numbers)))
                for host, numbers in sorted(ports.items())
                if not any(_is_for(rule, host) for rule in taken)
            ],
            export_to=target.namespace,
        )


def _name(application: str, host: str) -> str:
    digest = hashlib.sha256(host.encode()).hexdigest()[:10]
    return owners.object_name(application, f"{FOLDER}-{digest}")


def _is_for(rule: str, host: str) -> bool:
    """Tell whether a DestinationRule of the same namespace is for a Service."""
    if rule.startswith("*"):
        return host.endswith(rule[1:])
    service, namespace, svc, *_ = host.split(".")
    shorter = {service, f"{service}.{namespace}", f"{service}.{namespace}.{svc}"}
    return rule == host or rule in shorter
