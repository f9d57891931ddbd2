"""The input of one hook: the application, its options, its relations and the cluster."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import ops

from integrator_contract import charm_facts, names, namespaces, pods
from istio_integrator.config import config
from istio_integrator.istio import discovery, installation, meshconfig
from istio_integrator.kube import cluster, fences, manifests
from istio_integrator.messages import Message
from istio_integrator.relations import endpoints, kubeflow
from istio_integrator.situation.model import Labels

if TYPE_CHECKING:
    from charmlibs.interfaces import tls_certificates

CLUSTER_DOMAIN = "cluster.local"
"""The default domain of a cluster."""
_RESOLVER = pathlib.Path("/etc/resolv.conf")


class Component(Protocol):
    """A component of the charm, which makes the cluster match the Situation.

    A note that a component returns is one phrase of the unit's active status. Any other message
    describes a problem and its fix. A component that creates objects also has a `remove`.
    """

    name: charm_facts.Part
    """The metrics label of its problems."""

    def reconcile(self) -> Sequence[Message]:
        """Make the cluster match the Situation, and return the messages about the result.

        It is idempotent.
        """
        ...


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


def _cluster_domain(resolver: str) -> str:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Situation:
    """The values that every component decides by, read from the cluster once."""

    cluster: cluster.Cluster
    """The API server's client, as the application's ServiceAccount."""
    manifests: manifests.Manifests
    """Renders and applies template folders in the name of this application."""
    config: config.Config
    """The options, already validated."""
    mesh: installation.Mesh | None = None
    """The Istio to join; None if none exists or none can be chosen."""
    model: str
    """The model's name, which is its namespace."""
    application: str
    unit: str
    leader: bool
    """Whether this unit may write cluster objects; every unit may read."""
    controller: JujuController = JujuController()
    """Juju's controller, which every charm calls."""
    cluster_domain: str = CLUSTER_DOMAIN
    """The DNS suffix of the cluster's Services."""
    data_plane: pods.DataPlane = "sidecar"
    """How the model's pods are in the mesh after this event."""
    related: endpoints.Relations
    """The relations of this application, and their data bags."""
    certificates: tls_certificates.TLSCertificatesRequiresV4 | None = None
    """The library of the relation `certificates`; None without the relation."""

    @classmethod
    def of(
        cls,
        charm: ops.CharmBase,
        options: config.Config,
        certificates: tls_certificates.TLSCertificatesRequiresV4 | None,
    ) -> Situation:
        """Read the situation of a unit, without looking for an Istio.

        Raises:
            UnreachableError: The pod has no token for the API server.
        """
        api = cluster.CachedCluster(cluster.connect())
        model, application = charm.model.name, charm.app.name
        return cls(
            cluster=api,
            manifests=manifests.Manifests(api, model=model, application=application),
            config=options,
            model=model,
            application=application,
            unit=charm.unit.name,
            leader=charm.unit.is_leader(),
            controller=JujuController.read(os.environ.get("JUJU_API_ADDRESSES", "")),
            cluster_domain=_cluster_domain(_RESOLVER.read_text()),
            related=endpoints.Relations(charm),
            certificates=certificates,
        )

    def discover(self) -> discovery.Discovery:
        """Search for the Istio to join, without writing."""
        search = discovery.Discovery(
            self.cluster,
            self.config,
            model=self.model,
            application=self.application,
            pod=self.pod,
            hint=kubeflow.root_namespace(self.related),
        )
        search.reconcile()
        return search

    @property
    def exposes(self) -> bool:
        """Whether a relation asks to expose the model outside of the cluster."""
        return self.related.is_related(*kubeflow.EXPOSING)

    @property
    def domain(self) -> str:
        """The DNS suffix of the model's Services."""
        return f"{self.model}.svc.{self.cluster_domain}"

    @property
    def served(self) -> namespaces.Served:
        """The kinds of namespaces that this application serves."""
        return namespaces.Served(
            model=self.model,
            mesh_namespace=self.mesh.installed_in if self.mesh else "",
            owner=names.owner(self.model, self.application),
            kinds=self.config.served_namespaces,
        )

    @functools.cached_property
    def served_namespaces(self) -> list[str]:
        """The namespaces in which this application stops proxies, the model's first.

        Without the right to list namespaces it is only the model's, as in the workload.
        """
        found: list[str] = []
        own = cluster.NAMESPACE, self.model
        present = self.cluster.list_if_allowed(cluster.NAMESPACE) or [self.cluster.get(*own)]
        for namespace in filter(None, present):
            with fences.around(cluster.reference(namespace)):
                name = namespace["metadata"]["name"]
                is_going = name != self.model and "deletionTimestamp" in namespace["metadata"]
                labels = cluster.at(namespace, "metadata", "labels")
                if not is_going and self.served.kind_of(name, labels):
                    found.append(name)
        return sorted(found, key=lambda name: (name != self.model, name))

    @property
    def pod_labels(self) -> Mapping[str, str] | None:
        """The label that makes one pod a mesh member; None without an Istio."""
        if self.mesh is None:
            return None
        return names.AMBIENT if self.data_plane == "ambient" else self.mesh.pod_labels

    def missing_label(self, namespace: str) -> str:
        """Return the label that a namespace lacks for istiod's discoverySelectors, else empty."""
        selectors = self.mesh.discovery_selectors if self.mesh else ()
        found = self.cluster.get(cluster.NAMESPACE, namespace) if selectors and namespace else None
        labels = cluster.at(found, "metadata", "labels")
        return meshconfig.unserved(selectors, labels) if found else ""

    @property
    def pod(self) -> str:
        """The name of this unit's own pod."""
        return self.unit.replace("/", "-")
