"""The gateway that serves the model: where it is, and what our Gateway object says about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from istio_integrator.kube import cluster
from istio_integrator.messages import Message

FOLDER = "gateway"
NAME = "kubeflow-gateway"
"""Kubeflow's charms know our Gateway by this name, in the model."""


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
    ready: bool = False
    workload: str = ""
    account: str = ""
    """The ServiceAccount of its pods."""
    is_own: bool = False
    """Whether it is this model's alone."""
    is_managed: bool = False
    """Whether istiod deploys it for a Gateway of the Gateway API."""
    messages: tuple[Message, ...] = ()
    """Why it is not as the operator wants it, though it serves the model; and notes."""

    @property
    def is_deployed_here(self) -> bool:
        """Whether this charm itself deploys it."""
        return self.is_own and not self.is_managed

    @property
    def reference(self) -> str:
        """How people name it."""
        return f"{self.namespace}/{self.workload or self.service}"

    @property
    def written_hosts(self) -> list[str]:
        """The hosts as Gateways and VirtualServices have them."""
        return list(self.hosts) or ["*"]

    def seen_from(self, model: str) -> tuple[str, ...]:
        """List where what is in the model has to be exported to, for the workload to see it."""
        return (".",) if self.namespace == model else (".", self.namespace)


def credential(opened: cluster.Object | None) -> str:
    """Name the Secret that our Gateway serves HTTPS with; empty while it serves none."""
    spec = cluster.at(opened, "spec")
    for server in (*cluster.parts(spec, "servers"), *cluster.parts(spec, "listeners")):
        tls = cluster.at(server, "tls")
        references = [each.get("name") for each in cluster.parts(tls, "certificateRefs")]
        for name in filter(None, [tls.get("credentialName"), *references]):
            return str(name)
    return ""
