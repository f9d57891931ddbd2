"""The gateway that serves the model: where it is, and what our Gateway object says about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pydantic

from istio_integrator.ingress import observed
from istio_integrator.kube import cluster
from istio_integrator.relations import kubeflow

FOLDER = "gateway"
NAME = "kubeflow-gateway"
"""Kubeflow's charms know our Gateway by this name, in the model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in gateway."""

    name: str
    selector: Mapping[str, str]
    hosts: Sequence[str]
    http_port: int | None
    https_port: int | None
    redirect: bool
    credential: str

    @classmethod
    def of(cls, target: Target, credential: str) -> Context:
        """Put what is to be served into the words of the template.

        Args:
            target: Where.
            credential: The Secret with the certificate; empty for none.
        """
        return cls(
            name=NAME,
            selector=target.selector,
            hosts=target.written_hosts,
            http_port=target.http_port,
            https_port=target.https_port if credential else None,
            redirect=target.only_https,
            credential=credential,
        )


Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9][-a-z0-9.]*$", max_length=253)]
Mark = Annotated[str, pydantic.StringConstraints(max_length=317)]
"""A label's key, which is the longer part of a label."""
Host = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=253)]


class Place(pydantic.BaseModel):
    """Where and by which names the model is served: decided once, and remembered.

    It has no UID, so that a gateway which is installed anew is the same one.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", defer_build=True)

    namespace: Name
    service: Name | None = None
    """None where only the guard is known, which names none."""
    selector: Annotated[
        dict[Mark, Mark], pydantic.Field(min_length=1, max_length=observed.MOST_SELECTED)
    ]
    hosts: tuple[Host, ...] = ()
    only_https: bool = False
    http_port: kubeflow.Port | None = None
    https_port: kubeflow.Port | None = None


@dataclasses.dataclass(frozen=True)
class Missing:
    """There is no such gateway yet."""

    message: str


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The operator has to say something."""

    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The gateway workload that serves the model, and what is served by it."""

    namespace: str
    selector: Mapping[str, str]
    service: str
    http_port: int | None
    https_port: int | None
    hosts: tuple[str, ...] = ()
    """Of the model; none: all."""
    only_https: bool = False
    """Whether nothing but redirects is served without TLS."""
    neighbours: tuple[observed.Neighbour, ...] = ()
    ready: bool = False
    workload: str = ""
    is_own: bool = False
    """Whether we run it, for this model alone."""
    problems: tuple[Missing | Refusal, ...] = ()
    """Why it is not as the operator wants it; it serves meanwhile."""
    notes: tuple[str, ...] = ()
    """What others do around it that changes nothing."""

    @property
    def reference(self) -> str:
        """How people name it."""
        return f"{self.namespace}/{self.workload or self.service}"

    @property
    def written_hosts(self) -> list[str]:
        """The hosts as Gateways and VirtualServices have them."""
        return list(self.hosts) or ["*"]

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of the Service, as a Gateway names them."""
        return tuple(port for port in (self.http_port, self.https_port) if port)

    @property
    def place(self) -> Place:
        """What of it is remembered."""
        return Place.model_construct(
            namespace=self.namespace,
            service=self.service,
            selector=dict(self.selector),
            hosts=self.hosts,
            only_https=self.only_https,
            http_port=self.http_port,
            https_port=self.https_port,
        )

    def seen_from(self, model: str) -> tuple[str, ...]:
        """List where what is in the model has to be exported to, for the workload to see it."""
        return (".",) if self.namespace == model else (".", self.namespace)

    def is_at(self, place: Place) -> bool:
        """Tell whether a guard of that place is this one's guard."""
        return (place.namespace, place.selector) == (self.namespace, dict(self.selector))


def served(opened: cluster.Object) -> dict[str, Any]:
    """Read from our own Gateway what is served: hosts, ports and whether TLS is needed."""
    servers = cluster.parts(cluster.at(opened, "spec"), "servers")
    hosts = {
        host
        for server in servers
        for host in cluster.items(server, "hosts")
        if isinstance(host, str) and host
    }
    ports = [cluster.at(server, "port") for server in servers]
    numbers = {str(port.get("protocol")): port.get("number") for port in ports}
    return {
        "hosts": tuple(sorted(hosts - {"*"})),
        "only_https": any(cluster.at(one, "tls").get("httpsRedirect") for one in servers),
        "http_port": numbers.get("HTTP"),
        "https_port": numbers.get("HTTPS"),
    }


def is_served(opened: cluster.Object, target: Target) -> bool:
    """Tell whether whatever our Gateway serves stays served: by this gateway, host and port."""
    spec = cluster.at(opened, "spec")
    return spec.get("selector") == dict(target.selector) and all(
        server["port"]["number"] in target.ports and server["hosts"] == target.written_hosts
        for server in cluster.parts(spec, "servers")
    )


def credential(opened: cluster.Object | None) -> str:
    """Name the Secret that our Gateway serves HTTPS with; empty while it serves none."""
    servers = cluster.items(cluster.at(opened, "spec"), "servers")
    names = (str(cluster.at(server, "tls").get("credentialName", "")) for server in servers)
    return next(filter(None, names), "")
