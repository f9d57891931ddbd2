"""The workload's answers to the charm, in JSON.

The charm reads no answer of another contract (`schema`), so both programs have the same fields.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json


class Action(enum.StrEnum):
    """Action for a pod's proxy."""

    WAIT = "wait"
    STOP = "stop"
    REPORT = "report"
    IGNORE = "ignore"


ACKNOWLEDGED = "acknowledged"
"""The result of a stop that the proxy agreed to."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProxyAnswer:
    """Decision about a pod's proxy, and the result of a stop."""

    namespace: str
    name: str
    decision: Action
    reason: str
    message: str
    containers: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    """Names in the pod's annotations that match none of its containers."""
    holding: tuple[str, ...] = ()
    """Containers that hold the pod after its proxy has gone."""
    ended: str = ""
    """When the last container that counts ended, as Kubernetes writes it; empty while one runs."""
    result: str = ""
    """Result of the stop; empty if none was tried."""
    transport: str = ""
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodAnswer:
    """The service's finding about a pod that lacks its sidecar or has an old one."""

    namespace: str
    name: str
    workload: str
    """Such as `StatefulSet/foo`; empty if no workload owns the pod."""
    fixable: bool
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Trouble:
    """Reason why pods are not replaced now."""

    workload: str
    """Empty if the reason concerns the whole model."""
    reason: str
    message: str
    pod: str = ""
    passing: bool = False
    """Whether it usually ends without the operator, as with a PodDisruptionBudget."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Progress of the model's pods into the mesh."""

    eligible: int
    """Pods that are in the mesh or have to join it, including pods being replaced."""
    in_mesh: int
    """Excludes replacements of evicted pods that are not Ready yet."""
    converging: int
    """Pods that are being replaced or will be replaced automatically."""
    proposed: int
    """Pods that are replaced only on an operator's request."""
    troubles: tuple[Trouble, ...]
    reported: int
    """Pods that lack their sidecar and are not evicted."""
    unwanted: int = 0
    """Pods that have a sidecar but should be outside of the mesh."""
    stale: int = 0
    """Pods in the mesh whose proxy has another revision or an earlier version than istiod."""
    word: str = ""
    """The service's hash of this summary, from `digest`."""

    def digest(self) -> str:
        """Return a hash of the summary without its old proxies."""
        values = {**dataclasses.asdict(self), "stale": 0, "word": ""}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The service's answer about pods, and the model's progress."""

    pods: tuple[PodAnswer, ...]
    summary: Summary
