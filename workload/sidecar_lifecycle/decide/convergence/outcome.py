"""What a plan says: the limits it keeps to, and the values it consists of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from integrator_contract import answers, service

from .facts import Replica
from .memory import Memory

REMEDY = "fix it, then run restart-uninjected, or annotate it with restart-pods=disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far and how fast convergence goes; times in seconds."""

    max_unavailable: str = service.Options.restart_max_unavailable
    """Workloads that may miss a pod because of us at the same time: a number, or a share."""
    ready_for: float = 60.0
    """A pod that came up just now may be in the middle of something."""
    unready_for: float = 600.0
    """A pod that has not been Ready for this long is not coming up any more."""
    first_stays: float = 10.0
    """The first replacement has to be Ready for this long: a crash shows only after it."""
    answer_ttl: float = 5.0
    """How long the answer to a dry-run counts; also the pause when the mesh is down."""
    refused_retry: float = 30.0
    skip_retry: float = 600.0
    eviction_grace: float = 30.0
    """An eviction whose outcome is unknown shows within this time, or did not happen."""
    replacement_deadline: float = 600.0
    """After this a replacement that is not Ready is reported; the others wait on."""

    def retry(self, verdict: str) -> float:
        """Return after how many seconds a replacement that would not be right is tried again."""
        return self.skip_retry if verdict == "skips" else self.refused_retry


@dataclass(frozen=True, slots=True)
class Row:
    """A pod that should be replaced."""

    replica: Replica
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class News:
    """Something that this plan found out, to be told once."""

    kind: Literal["held", "completed"]
    workload: str
    reason: str
    message: str
    replica: Replica | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to remember, what to ask, what to evict, and what to say."""

    memory: Memory
    """To be stored before anything is evicted."""
    ask: tuple[Replica, ...]
    evict: tuple[Replica, ...]
    rows: tuple[Row, ...]
    summary: answers.Summary
    news: tuple[News, ...]
    wake_at: float | None
    """When something may change by the mere passing of time."""

    def reasons(self) -> Counter[str]:
        """Count the pods that should be replaced by reason."""
        return Counter(row.reason for row in self.rows)
