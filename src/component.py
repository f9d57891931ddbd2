"""What each part of the charm looks like to the charm, and what each part is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import ops

if TYPE_CHECKING:
    import cluster
    import config
    import manifests
    import mesh


class Component(Protocol):
    """One part of what the charm keeps true.

    An `ActiveStatus` that a component yields is one phrase of the unit's message; any other
    status says what is not true yet and what to do about it.
    """

    def reconcile(self) -> None:
        """Make the cluster as it should be; calling it again changes nothing."""
        ...

    def remove(self) -> None:
        """Take away everything that `reconcile` ever made, from any state, any number of times."""
        ...

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say what is true after `reconcile` ran in this process."""
        ...


CONTROLLER_PORTS = (17070,)
"""Of a Juju controller that was bootstrapped without a wish."""


CLUSTER_DOMAIN = "cluster.local"
"""Of a cluster that was installed without a wish."""


def cluster_domain(resolver: str) -> str:
    """Read the cluster's domain from what the kubelet writes as a pod's `/etc/resolv.conf`.

    It searches `NAMESPACE.svc.DOMAIN`, `svc.DOMAIN` and `DOMAIN`.
    """
    for line in resolver.splitlines():
        match line.split():
            case ["search", *names]:
                found = (name for name in names if name.startswith("svc."))
                return next(found, CLUSTER_DOMAIN).removeprefix("svc.").rstrip(".")
            case _:
                pass
    return CLUSTER_DOMAIN


def ports(addresses: str) -> tuple[int, ...]:
    """Read the ports of `HOST:PORT [HOST]:PORT …`, as Juju tells where its controller is."""
    found = {address.rpartition(":")[2] for address in addresses.split()}
    return tuple(sorted(int(port) for port in found if port.isdigit())) or CONTROLLER_PORTS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scope:
    """What every component may use."""

    cluster: cluster.Cluster
    """The API server, as the application's ServiceAccount."""
    manifests: manifests.Manifests
    """Renders and applies template folders in the name of this application."""
    config: config.Config
    """The options, already validated."""
    mesh: mesh.Mesh | None
    """The Istio to join; None while there is none, or none that can be chosen."""
    model: str
    """The model's name, which is its namespace."""
    application: str
    unit: str
    leader: bool
    """Whether this unit may write cluster objects; every unit may read."""
    controller_ports: tuple[int, ...] = CONTROLLER_PORTS
    """Of Juju's controller, which every charm calls."""
    cluster_domain: str = CLUSTER_DOMAIN
    """What the names of Services end with."""

    @property
    def pod(self) -> str:
        """The name of this unit's own pod."""
        return self.unit.replace("/", "-")
