"""The application of a hook, its options, its relations, the cluster and the workload."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import pathlib
from typing import TYPE_CHECKING

import ops

from istio_integrator.config import config
from istio_integrator.istio import discovery
from istio_integrator.kube import cluster, manifests
from istio_integrator.relations import endpoints, kubeflow
from istio_integrator.situation import workload
from istio_integrator.situation.model import Labels

if TYPE_CHECKING:
    from charmlibs.interfaces import tls_certificates

CLUSTER_DOMAIN = "cluster.local"
"""The default domain of a cluster."""
_RESOLVER = pathlib.Path("/etc/resolv.conf")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exposure:
    """The gateway and the Services that it calls, each with a port."""

    gateways: tuple[str, ...] = ()
    """Principals of the gateway; empty until a pod shows its ServiceAccount."""
    gateway_pods: tuple[Labels, ...] = ()
    """Labels of the charm's gateways in the model, including one that is not created yet."""
    routed: frozenset[tuple[str, int]] = frozenset()
    """The backends of routes."""
    guards: frozenset[tuple[str, int]] = frozenset()
    """The authorization service, if it is in the model."""


def _read_cluster_domain(resolver: str) -> str:
    """Read the cluster's domain from a pod's `/etc/resolv.conf`, which the kubelet writes.

    It has the line `search NAMESPACE.svc.DOMAIN svc.DOMAIN DOMAIN`.
    """
    for line in resolver.splitlines():
        keyword, *searched = line.split() or [""]
        if keyword == "search":
            of_services = (name for name in searched if name.startswith("svc."))
            return next(of_services, CLUSTER_DOMAIN).removeprefix("svc.").rstrip(".")
    return CLUSTER_DOMAIN


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class JujuController:
    """The address of Juju's controller. Charms call it first from their init container."""

    ports: tuple[int, ...] = (17070,)
    """By default, the port of a controller that was bootstrapped without choosing one."""
    is_named: bool = False
    """Whether it has only host names, so that the first call needs DNS."""

    @classmethod
    def read(cls, addresses: str) -> JujuController:
        """Read Juju's `HOST:PORT [HOST]:PORT …`."""
        parted = [address.rpartition(":") for address in addresses.split()]
        pairs = [(host.strip("[]"), int(port)) for host, _, port in parted if port.isdecimal()]
        if not pairs:
            return cls()
        ports = tuple(sorted({port for _, port in pairs}))
        return cls(ports, is_named=not any(_is_address(host) for host, _ in pairs))


class Situation:
    """The application, its options, its relations, the cluster and the workload."""

    def __init__(
        self,
        charm: ops.CharmBase,
        options: config.Config,
        certificates: tls_certificates.TLSCertificatesRequiresV4 | None,
    ) -> None:
        """Connect a unit's hook.

        Raises:
            UnreachableError: The pod has no token for the API server.
        """
        self.config = options
        self.model = charm.model.name
        """The model's name, which is its namespace."""
        self.application = charm.app.name
        self.unit = charm.unit.name
        self.leader = charm.unit.is_leader()
        """Whether this unit may write cluster objects; every unit may read."""
        self.cluster = cluster.connect()
        self.manifests = manifests.Manifests(
            self.cluster, model=self.model, application=self.application
        )
        self.workload = workload.WorkloadClient(charm.unit.get_container(workload.CONTAINER))
        self.controller = JujuController.read(os.environ.get("JUJU_API_ADDRESSES", ""))
        """Juju's controller, which every charm calls."""
        self.cluster_domain = _read_cluster_domain(_RESOLVER.read_text())
        """The DNS suffix of the cluster's Services."""
        self.related = endpoints.Relations(charm)
        self.certificates = certificates
        """The library of the relation `certificates`; None without the relation."""

    def discover(self) -> discovery.Discovery:
        """Search for the Istio to join, without writing."""
        search = discovery.Discovery(
            self.cluster,
            self.config,
            model=self.model,
            application=self.application,
            pod=self.pod_name,
            hint=kubeflow.read_root_namespace(self.related),
        )
        search.reconcile()
        return search

    @property
    def is_exposed(self) -> bool:
        """Whether a relation asks to expose the model outside of the cluster."""
        return self.related.is_related(*kubeflow.EXPOSING)

    @property
    def domain(self) -> str:
        """The DNS suffix of the model's Services."""
        return f"{self.model}.svc.{self.cluster_domain}"

    @property
    def pod_name(self) -> str:
        """The name of this unit's own pod."""
        return self.unit.replace("/", "-")
