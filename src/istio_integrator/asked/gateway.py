"""The gateway that serves the model: its workload, and the certificate of the Gateway object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from istio_integrator.istio.authorization_policy import make_principal
from istio_integrator.kube import cluster
from istio_integrator.messages import Message

NAME = "kubeflow-gateway"
"""The name of this charm's Gateway, which Kubeflow's charms expect in the model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The gateway workload that serves the model, with its ports and hosts."""

    namespace: str
    selector: Mapping[str, str]
    service: str
    http_port: int | None
    https_port: int | None
    hosts: tuple[str, ...] = ()
    """The model's hosts; empty: all hosts."""
    ready: bool = False
    accounts: tuple[str, ...] = ()
    """The ServiceAccounts of its pods."""
    is_own: bool = False
    """Whether it serves only this model."""
    is_managed: bool = False
    """Whether istiod deploys it for a Gateway of the Gateway API."""
    messages: tuple[Message, ...] = ()
    """Problems that do not prevent it from serving the model, and notes."""

    @property
    def is_deployed_here(self) -> bool:
        """Whether this charm deploys it."""
        return self.is_own and not self.is_managed

    @property
    def reference(self) -> str:
        """The name in messages."""
        return f"{self.namespace}/{self.service}"

    @property
    def principals(self) -> list[str]:
        """The identities of its pods."""
        return [make_principal(self.namespace, each) for each in self.accounts]

    @property
    def written_hosts(self) -> list[str]:
        """The hosts in the syntax of Gateways and VirtualServices."""
        return list(self.hosts) or ["*"]

    def make_export_to(self, model: str) -> tuple[str, ...]:
        """Return the `exportTo` by which the workload sees objects of the model."""
        return (".",) if self.namespace == model else (".", self.namespace)


def find_credential(opened: cluster.Object | None) -> str:
    """Return the Secret with the certificate of this charm's Gateway; empty without HTTPS."""
    spec = cluster.at(opened, "spec")
    for server in (*cluster.parts(spec, "servers"), *cluster.parts(spec, "listeners")):
        tls = cluster.at(server, "tls")
        references = [each.get("name") for each in cluster.parts(tls, "certificateRefs")]
        for name in filter(None, [tls.get("credentialName"), *references]):
            return str(name)
    return ""
