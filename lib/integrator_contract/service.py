"""The settings of the service and the results of hooks: files that the service follows."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from . import charm_facts, names, namespaces, pods, seen

RestartPods = Literal["auto", "manual"]
"""Whether pods that lack their sidecar are replaced automatically or on request."""
LISTENER_PORT = 15081
"""On 127.0.0.1, where the service answers the charm in the same pod."""
ANSWER_SECONDS = {"GET": 12.0, "POST": 28.0}
"""How long the charm waits. The service itself stops after 10 s, or after 25 s for a POST."""
_Path = TypeVar("_Path", bound=pathlib.PurePath)
LogLevel = Literal["debug", "info", "warning", "error"]


def split_list(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of an option or annotation."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def parse_budget(text: str) -> str:
    """Read how many may be unavailable at once, `2` or `10%`, or raise ValueError."""
    number = text.strip().removesuffix("%")
    if not (number.isascii() and number.isdecimal() and 1 <= int(number[:9]) <= 100):
        raise ValueError(f"{text!r} is neither a number from 1 to 100 nor a share such as 10%")
    return f"{int(number)}%" if text.strip().endswith("%") else str(int(number))


def resolve_budget(text: str, total: int) -> int:
    """Return how many of a total a budget allows: a percentage is rounded up, to at least 1."""
    number = int(text.removesuffix("%"))
    return max(1, -(-number * total // 100)) if text.endswith("%") else number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eligibility(pods.Members):
    """The settings that decide which pods should have a sidecar."""

    model: str
    application: str
    mesh_revision: str = ""
    served_namespaces: frozenset[namespaces.Kind] = frozenset(namespaces.KINDS)
    restart_pods: RestartPods = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """The settings of the rules about one pod's proxy."""

    wait_for_containers: tuple[str, ...] = ()
    """Containers whose end stops the proxy, in pods that have one of them."""
    ignore_containers: tuple[str, ...] = ()
    status_port: int = names.DEFAULT_STATUS_PORT
    """The mesh's status port; 0 if it is disabled."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gateway:
    """The Service of a named gateway; without a name the model's own gateway."""

    namespace: str = ""
    name: str = ""
    selector: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """The labels of its pods; empty: unknown."""
    secrets: tuple[str, ...] = ()
    """The Secrets with its certificate, in its namespace: the operator's and the charm's."""


@dataclasses.dataclass(frozen=True)
class _File:
    def encode(self) -> str:
        """Write the file's content; equal values give equal text."""
        # A set has no order of its own.
        return json.dumps(dataclasses.asdict(self), default=sorted)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Rules, Eligibility, _File):
    """The settings of the service: the file that the charm writes and the service follows."""

    unit: str
    token: str = dataclasses.field(default="", repr=False)
    """The listener's bearer token: every user who may port-forward into the pod reaches the
    listener."""
    leader: bool = False
    """Whether this unit is Juju's leader; only the leader evicts and deletes pods."""
    log_level: LogLevel = "info"
    joined: bool = False
    """Whether the model's pods are to join the mesh; until then no pod lacks a sidecar."""
    mesh_namespace: str = ""
    """Istio's namespace, which is not served; empty: unknown."""
    proxy_revision: str = ""
    """The revision that the injector writes into new pods; other proxies are old; empty:
    unknown."""
    proxy_version: str = ""
    """The version of istiod; earlier proxies are old; empty: unknown."""
    proxy_shutdown: bool = True
    delete_broken_pods: bool = False
    restart_max_unavailable: str = "2"
    """Workloads that may have a pod replaced at the same time, as `parse_budget` returns it."""
    gateway: Gateway | None = None
    """The gateway to report to the charm; None without an ingress."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results(_File):
    """The results of the unit's last hook: a file that the charm writes at the end of each."""

    facts: charm_facts.CharmFacts
    """Served as metrics."""
    expected: seen.Expectation | None = None
    """The expected configuration of the gateway; None if this unit is not the leader or has no
    routes."""


def name_results_file(settings: _Path) -> _Path:
    """Return the file of the results, by that of the settings."""
    return settings.with_suffix(".results.json")


def select_fields(kind: type[Eligibility | Rules], source: object) -> dict[str, Any]:
    """Return the attributes of `source` that a kind has as fields, by their names."""
    return {field.name: getattr(source, field.name) for field in dataclasses.fields(kind)}
