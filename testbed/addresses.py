"""The addresses of one testbed, all derived from its slot number.

Testbeds run side by side, each in a slot. The ranges come from 198.18.0.0/15, which is set
aside for benchmarks (RFC 2544) and therefore rarely routed on a development machine.
"""

import dataclasses
import ipaddress
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network

from testbed import errors

_WHOLE = IPv4Network("198.18.0.0/15")
_SIZE = 19
NODES = 4
"""That a testbed may have: each has a part of the addresses of pods."""
SLOTS = 2 ** (_SIZE - _WHOLE.prefixlen)


class NoSlotError(errors.TestbedError):
    """Every slot is taken or overlaps with a route of the host."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Where everything of one testbed listens."""

    slot: int
    whole: IPv4Network
    """Everything of this testbed; what must not overlap with routes of the host."""
    link: IPv4Network
    """Between the host and the node."""
    services: IPv4Network
    pods: IPv4Network
    """Of all nodes."""

    @property
    def host(self) -> IPv4Address:
        """The host's end of the link."""
        return self.link[1]

    @property
    def node(self) -> IPv4Address:
        """The first node's end of the link: apiserver, NodePorts, CoreDNS."""
        return self.link[2]

    @property
    def _istiod_link(self) -> IPv4Network:
        return IPv4Network((int(self.link.broadcast_address) + 1, self.link.prefixlen))

    @property
    def istiod_gateway(self) -> IPv4Address:
        """The node's end of the link to an istiod outside of the cluster."""
        return self._istiod_link[1]

    @property
    def istiod(self) -> IPv4Address:
        """An istiod outside of the cluster."""
        return self._istiod_link[2]

    def _link_to(self, index: int) -> IPv4Network:
        first = int(self.link.network_address)
        # The host's link and istiod's come first.
        return IPv4Network((first + (1 + index) * self.link.num_addresses, self.link.prefixlen))

    def gateway_to(self, index: int) -> IPv4Address:
        """The first node's end of the link to a further one, which are counted from 1."""
        return self._link_to(index)[1]

    def node_of(self, index: int) -> IPv4Address:
        """A node's own address; number 0 is the first."""
        return self._link_to(index)[2] if index else self.node

    def pods_of(self, index: int) -> IPv4Network:
        """The addresses of the pods on a node."""
        bits = (NODES - 1).bit_length()
        return list(self.pods.subnets(prefixlen_diff=bits))[index]

    @property
    def kubernetes(self) -> IPv4Address:
        """The Service `kubernetes.default`."""
        return self.services[1]

    @property
    def dns(self) -> IPv4Address:
        """The Service `kube-dns`."""
        return self.services[10]

    @property
    def interface(self) -> str:
        """Name of the host's end of the link."""
        return f"testbed{self.slot}"


def plan(slot: int) -> Plan:
    """Return the addresses of a slot."""
    whole = list(_WHOLE.subnets(new_prefix=_SIZE))[slot]
    quarters = list(whole.subnets(prefixlen_diff=2))
    return Plan(
        slot=slot,
        whole=whole,
        link=next(quarters[0].subnets(new_prefix=30)),
        services=quarters[1],
        pods=list(whole.subnets(prefixlen_diff=1))[1],
    )


def choose_slot(taken: Collection[int], routes: Iterable[IPv4Network]) -> int:
    """Return the first slot that no testbed has and no route of the host overlaps.

    Raises:
        NoSlotError: when there is none.
    """
    # A default route overlaps with everything and says nothing.
    specific = [route for route in routes if route.prefixlen]
    for slot in range(SLOTS):
        if slot in taken:
            continue
        whole = plan(slot).whole
        if not any(whole.overlaps(route) for route in specific):
            return slot
    raise NoSlotError(f"none of the {SLOTS} ranges below {_WHOLE} is free")


def parse_routes(destinations: Iterable[str]) -> list[IPv4Network]:
    """Return the IPv4 networks among `ip route` destinations such as `default` or `10.0.0.1`."""
    networks: list[IPv4Network] = []
    for destination in destinations:
        try:
            networks.append(ipaddress.IPv4Network(destination, strict=False))
        except ValueError:
            continue
    return networks
