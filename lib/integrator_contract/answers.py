"""What the workload answers as JSON, and the charm reads.

A newer workload may say more, and an earlier one less where there is a default.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json


class Action(enum.StrEnum):
    """What to do about a pod's proxy."""

    WAIT = "wait"
    STOP = "stop"
    REPORT = "report"
    IGNORE = "ignore"


ACKNOWLEDGED = "acknowledged"
"""The result of a stop that the proxy agreed to."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProxyAnswer:
    """What is decided about a pod's proxy, and what came of a stop."""

    namespace: str
    name: str
    decision: Action
    reason: str
    message: str
    containers: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    """Names in the pod's annotations that no container of it has."""
    holding: tuple[str, ...] = ()
    """Containers that hold the pod after its proxy has gone."""
    ended: str = ""
    """When the last container that counts ended, as Kubernetes writes it; empty while one runs."""
    result: str = ""
    """Of the stop; empty where none was tried."""
    transport: str = ""
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodAnswer:
    """What the service says about a pod without its sidecar, or with an old one."""

    namespace: str
    name: str
    workload: str
    """Such as `StatefulSet/foo`; empty where none owns the pod."""
    fixable: bool
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Trouble:
    """Why pods are not replaced now."""

    workload: str
    """Empty where it is about the whole model."""
    reason: str
    message: str
    pod: str = ""
    passing: bool = False
    """Whether it is expected to pass without the operator, as a PodDisruptionBudget is."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How far the model is in the mesh."""

    eligible: int
    """Pods in the mesh, and those that are to be brought there, also while they are replaced."""
    in_mesh: int
    """Without those that come in place of an evicted one and do not serve yet."""
    converging: int
    """Pods being replaced, or that will be without anyone asking."""
    proposed: int
    """Pods that are replaced only when an operator asks for it."""
    troubles: tuple[Trouble, ...]
    reported: int
    """Pods without the sidecar that they should have, and that are not evicted."""
    unwanted: int = 0
    """Pods outside of the mesh that have a sidecar all the same."""
    stale: int = 0
    """Pods in the mesh whose proxy is of another revision or of an earlier istiod."""
    word: str = ""
    """That the service has for this, of what it looks at: the model, without old proxies."""

    def named(self) -> str:
        """Return a word for what the service looks at, which no other summary has."""
        values = {**dataclasses.asdict(self), "stale": 0, "word": ""}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What the service answers about pods, and how far the model is."""

    pods: tuple[PodAnswer, ...]
    summary: Summary
