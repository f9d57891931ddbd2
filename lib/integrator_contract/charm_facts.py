"""What the charm alone knows: its hooks write it into the settings, and the workload serves it."""

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
]
"""Of the charm; a label of the metric of problems."""
Severity = Literal["blocked", "maintenance", "waiting"]
Guard = Literal["asks", "closed", "none"]
"""What stands before the model's routes: somebody is asked about each request; there is nobody to
be asked, so none passes; or every request passes unasked."""
Owner = Literal["gateway", "webhook"]

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
GUARDS: tuple[Guard, ...] = get_args(Guard)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that a part says is not as it should be."""

    part: Part
    severity: Severity


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How long a certificate is valid, in seconds of Unix time."""

    owner: Owner
    not_before: float
    not_after: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CharmFacts:
    """What one unit's last hook has found; what only the leader looks at, others leave out."""

    looked: float
    """When the hook looked, in seconds of Unix time."""
    problems: tuple[Problem, ...] = ()
    gateway_ready: bool | None = None
    """Whether the model's gateway is there and serves; None where the model has no ingress."""
    guard: Guard | None = None
    certificates: tuple[Certificate, ...] = ()
    progress: str = ""
    """The word of the summary that the status was made of; empty where there was none."""
    old_proxies: int | None = None
    """Pods whose proxy is of another revision or an earlier istiod; None where nobody can say."""
