"""What one planning works on: the model as it is, what is remembered of it, what comes of both.

`review` writes in it how rounds and holds go, then `choice` which pods are replaced, and `plan`
reads what came out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from integrator_contract import answers, service
from integrator_contract.reasons import Reason

from .facts import Replica, Snapshot
from .memory import Hold, Memory, Round

# In seconds.
READY_FOR = 60.0
"""A pod that came up just now may be in the middle of something."""
UNREADY_FOR = 600.0
"""A pod that has not been Ready for this long is not coming up any more."""
FIRST_STAYS = 10.0
"""The first replacement has to be Ready for this long: a crash shows only after it."""
ANSWER_TTL = 5.0
"""How long the answer to a dry run counts; also the pause when the mesh is down."""
EVICTION_GRACE = 30.0
"""An eviction whose outcome is unknown shows within this time, or did not happen."""
REPLACEMENT_DEADLINE = 600.0
"""After this a replacement that is not Ready is reported; the others wait on."""


def retry_after(verdict: str) -> float:
    """Return after how many seconds a replacement that would not be right is tried again."""
    return 600.0 if verdict == "skips" else 30.0


@dataclass(frozen=True, slots=True)
class News:
    """Something that this plan found out, to be told once."""

    kind: Literal["held", "completed"]
    workload: str
    reason: str
    message: str
    replica: Replica | None = None


@dataclass(slots=True)
class Ledger:
    """The state of one planning."""

    snapshot: Snapshot
    memory: Memory
    mode: service.RestartPods
    max_unavailable: str
    """Workloads that may miss a pod because of us at the same time: a number, or a share."""
    now: float
    """Seconds since the epoch."""
    workloads: dict[str, list[Replica]] = field(init=False)
    """All pods of each workload, terminating ones included."""
    rounds: dict[str, Round] = field(init=False)
    """Under way, by workload."""
    holds: dict[str, Hold] = field(init=False)
    """By workload."""
    proven: set[str] = field(init=False)
    requested: frozenset[str] = frozenset()
    """UIDs of the pods that an operator asked to have replaced and that still can be."""
    waits: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Why each pod, by UID, is not replaced right now: a reason and a message."""
    ask: list[Replica] = field(default_factory=list[Replica])
    evict: list[Replica] = field(default_factory=list[Replica])
    news: list[News] = field(default_factory=list[News])
    troubles: list[answers.Trouble] = field(default_factory=list[answers.Trouble])
    """Of the replacements that are not right yet, and of the model as a whole."""
    wakes: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.workloads = defaultdict(list)
        for replica in self.snapshot.replicas:
            if replica.workload:
                self.workloads[replica.workload].append(replica)
        self.rounds = dict(self.memory.rounds)
        self.holds = dict(self.memory.holds)
        self.proven = set(self.memory.proven)

    def live(self, workload: str) -> list[Replica]:
        """Return the pods of a workload that are not terminating."""
        return [each for each in self.workloads[workload] if not each.terminating]

    def ready(self, workload: str) -> int:
        """Count the pods of a workload that serve."""
        return sum(each.ready for each in self.workloads[workload])

    def replacements(self, workload: str) -> list[Replica]:
        """Return the live pods that have come since the round of a workload began."""
        known = self.rounds[workload].known
        return [each for each in self.live(workload) if each.uid not in known]

    def is_changing(self, workload: str) -> bool:
        """Tell whether a pod of the workload is terminating."""
        return any(each.terminating for each in self.workloads[workload])

    def wake(self, at: float) -> None:
        """Note when something may change by the mere passing of time."""
        if at > self.now:
            self.wakes.append(at)

    def hold(
        self, replica: Replica, reason: Reason, message: str, *, retry: float | None = None
    ) -> None:
        """Leave the pod's workload alone.

        It is tried again after `retry` seconds; None: when its template or the mesh has changed.
        """
        is_judged = retry is None or reason is Reason.INJECTOR_SKIPS
        self.holds[replica.workload] = Hold(
            reason=reason,
            message=message,
            since=self.now,
            until=None if retry is None else self.now + retry,
            revision=replica.revision if is_judged else "",
            fingerprint=self.snapshot.fingerprint,
        )
        if retry is not None:
            self.wake(self.now + retry)
        if is_judged:
            self.news.append(News("held", replica.workload, reason, message, replica))
