"""What every part of the charm offers, and the context that every part works in."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from integrator_contract import charm_facts, names, namespaces, pods
from istio_integrator.config import config
from istio_integrator.istio import installation, meshconfig
from istio_integrator.kube import cluster, manifests
from istio_integrator.messages import Message

if TYPE_CHECKING:
    from charmlibs.interfaces import tls_certificates


class Part(Protocol):
    """One part of what the charm keeps true.

    A note that a part yields is one phrase of the unit's active status; any other message says
    what is not true yet and what to do about it. A part that makes something also has a `remove`.
    """

    name: charm_facts.Part
    """The label of its problems in the metrics."""

    def reconcile(self) -> Sequence[Message]:
        """Make the cluster as it should be, and return what is true then.

        Calling it again changes nothing.
        """
        ...


CLUSTER_DOMAIN = "cluster.local"
"""The domain of a cluster whose installer chose none."""


def cluster_domain(resolver: str) -> str:
    """Read the cluster's domain from what the kubelet writes as a pod's `/etc/resolv.conf`.

    It searches `NAMESPACE.svc.DOMAIN`, `svc.DOMAIN` and `DOMAIN`.
    """
    for line in resolver.splitlines():
        match line.split():
            case ["search", *names]:
                of_services = (name for name in names if name.startswith("svc."))
                return next(of_services, CLUSTER_DOMAIN).removeprefix("svc.").rstrip(".")
            case _:
                pass
    return CLUSTER_DOMAIN


@dataclasses.dataclass(frozen=True)
class Controller:
    """Where charms call Juju's controller, the first time from their pod's init container."""

    ports: tuple[int, ...] = (17070,)
    """By default the port of a controller that was bootstrapped without choosing one."""
    is_named: bool = False
    """Whether it has no address but names, so that a look-up comes before the first call."""

    @classmethod
    def read(cls, addresses: str) -> Controller:
        """Read `HOST:PORT [HOST]:PORT …`, as Juju tells where its controller is."""
        parted = [address.rpartition(":") for address in addresses.split()]
        pairs = [(host.strip("[]"), int(port)) for host, _, port in parted if port.isdecimal()]
        if not pairs:
            return cls()
        ports = tuple(sorted({port for _, port in pairs}))
        return cls(ports, is_named=not any(_is_address(host) for host, _ in pairs))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The cluster, the options and the application that the parts work for."""

    cluster: cluster.Cluster
    """The API server, as the application's ServiceAccount."""
    manifests: manifests.Manifests
    """Renders and applies template folders in the name of this application."""
    config: config.Config
    """The options, already validated."""
    mesh: installation.Mesh | None
    """The Istio to join; None while there is none, or none that can be chosen."""
    model: str
    """The model's name, which is its namespace."""
    application: str
    unit: str
    leader: bool
    """Whether this unit may write cluster objects; every unit may read."""
    controller: Controller = Controller()
    """Juju's, which every charm calls."""
    cluster_domain: str = CLUSTER_DOMAIN
    """What the names of Services end with."""
    data_plane: pods.DataPlane = "sidecar"
    """What takes the model's pods into the mesh, once this event is dealt with."""
    exposes: bool = False
    """Whether an application wants the model to be reached from outside."""
    certificates: tls_certificates.TLSCertificatesRequiresV4 | None = None
    """The library of the relation `certificates`; None while nothing is related."""

    @property
    def served(self) -> namespaces.Served:
        """The namespaces that this application serves."""
        return namespaces.Served(
            model=self.model,
            mesh_namespace=self.mesh.installed_in if self.mesh else "",
            owner=names.owner(self.model, self.application),
            kinds=self.config.served_namespaces,
        )

    @property
    def pod_labels(self) -> Mapping[str, str] | None:
        """The label that makes one pod a member; None while there is no Istio to say."""
        if self.mesh is None:
            return None
        return names.AMBIENT if self.data_plane == "ambient" else self.mesh.pod_labels

    def missing_label(self, namespace: str) -> str:
        """Return the label without which istiod ignores a namespace; empty where it does not."""
        selectors = self.mesh.discovery_selectors if self.mesh else ()
        found = self.cluster.get(cluster.NAMESPACE, namespace) if selectors and namespace else None
        labels = cluster.at(found, "metadata", "labels")
        return meshconfig.unserved(selectors, labels) if found else ""

    @property
    def pod(self) -> str:
        """The name of this unit's own pod."""
        return self.unit.replace("/", "-")
