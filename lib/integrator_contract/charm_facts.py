"""Facts that hooks write into the settings and the workload serves as metrics."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

Part = Literal[
    "admission",
    "config",
    "diagnosis",
    "ingress",
    "kube",
    "lifecycle",
    "membership",
    "mesh",
    "observability",
    "security",
    "training",
]
"""Part of the charm; a label of the metric of problems."""
Severity = Literal["blocked", "maintenance", "waiting"]
Guard = Literal["asks", "closed", "none"]
"""Authentication of the model's routes. `asks`: the authorization service decides about each
request. `closed`: no such service is available, so every request is denied. `none`: requests pass
without authentication."""
Owner = Literal["gateway", "webhook"]

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
GUARDS: tuple[Guard, ...] = get_args(Guard)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem that a part of the charm reports."""

    part: Part
    severity: Severity


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Validity of a certificate, in seconds of Unix time."""

    owner: Owner
    not_before: float
    not_after: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CharmFacts:
    """Results of one unit's last hook. Only the leader's have every fact."""

    looked: float
    """Time of the check, in seconds of Unix time."""
    problems: tuple[Problem, ...] = ()
    gateway_ready: bool | None = None
    """Whether the model's gateway exists and serves; None if the model has no ingress."""
    guard: Guard | None = None
    certificates: tuple[Certificate, ...] = ()
    progress: str = ""
    """The hash of the summary that the status shows; empty without a summary."""
    old_proxies: int | None = None
    """Pods whose proxy has another revision or an earlier version than istiod; None if unknown."""
