"""The settings of the service: one file, which the charm writes and the service follows.

The charm fills a field from its own option of the same name, where there is one.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal

from . import charm_facts, names, namespaces, pods, seen

RestartPods = Literal["auto", "manual", "off"]
"""Whether pods without their sidecar are replaced: unasked, when asked for, or never. The charm
writes `off` while the model is not to join the mesh; the option has no such value."""
LISTENER_PORT = 15081
"""On 127.0.0.1, where the service answers the charm, which is in the same pod."""
LogLevel = Literal["debug", "info", "warning", "error"]


def words(text: str) -> tuple[str, ...]:
    """Split a comma-separated list, as options and annotations have it."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def budget(text: str) -> str:
    """Read how many may be away at once, `2` or `10%`, or raise ValueError."""
    number = text.strip().removesuffix("%")
    if not (number.isascii() and number.isdecimal() and 1 <= int(number[:9]) <= 100):
        raise ValueError(f"{text!r} is neither a number from 1 to 100 nor a share such as 10%")
    return f"{int(number)}%" if text.strip().endswith("%") else str(int(number))


def at_most(text: str, total: int) -> int:
    """Return how many of a total a budget allows: a share of it is rounded up, and never none."""
    number = int(text.removesuffix("%"))
    return max(1, -(-number * total // 100)) if text.endswith("%") else number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eligibility(pods.Members):
    """What tells which pods should have a sidecar."""

    model: str
    application: str
    mesh_revision: str = ""
    served_namespaces: frozenset[namespaces.Kind] = frozenset(namespaces.KINDS)
    restart_pods: RestartPods = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What tunes the rules about one pod's proxy."""

    wait_for_containers: tuple[str, ...] = ()
    """Containers whose end stops the proxy, in pods that have one of them."""
    ignore_containers: tuple[str, ...] = ()
    status_port: int = names.DEFAULT_STATUS_PORT
    """The mesh's, 0 where it is switched off."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Rules, Eligibility):
    """The settings of the service: the file that the charm writes and the service follows."""

    unit: str
    token: str = dataclasses.field(default="", repr=False)
    """That the listener wants: whoever may port-forward into the pod reaches it, too."""
    leader: bool = False
    """Whether this unit is Juju's leader, which alone evicts and deletes pods."""
    log_level: LogLevel = "info"
    joined: bool = False
    """Whether the model's pods are asked to join the mesh; before that, none lacks a sidecar."""
    mesh_namespace: str = ""
    """The namespace of Istio's own objects, which is not served; empty: not known."""
    proxy_revision: str = ""
    """That the injector writes into new pods; pods with another are old; empty: not known."""
    proxy_version: str = ""
    """Of istiod; a proxy with an earlier one is old; empty: not known."""
    proxy_shutdown: bool = True
    delete_broken_pods: bool = False
    restart_max_unavailable: str = "2"
    """Workloads that may have a pod being replaced at once, as `budget` returns it."""
    gateway: str | None = None
    """The gateway of which the charm is told: `namespace/name` of a named gateway's Service, or
    empty for the model's own; None without an ingress."""
    expected: seen.Expectation | None = None
    """What the gateway should have; None where this unit does not lead or writes no routes."""
    facts: charm_facts.CharmFacts | None = None
    """What the unit's last hook found, to be served as metrics; None before it ends."""

    def document(self) -> str:
        """Write the file's content; the same settings are the same text."""
        # A set has no order.
        return json.dumps(dataclasses.asdict(self), default=sorted)


def values(kind: type[Eligibility | Rules], source: object) -> dict[str, Any]:
    """Return what something that has options says of those of a kind, by their names."""
    return {field.name: getattr(source, field.name) for field in dataclasses.fields(kind)}
