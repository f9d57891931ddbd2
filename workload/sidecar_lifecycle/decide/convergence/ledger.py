"""What one planning works on: the model as it is, what is remembered of it, what comes of both.

`review` writes in it how rounds and holds go, then `choice` which pods are replaced, and `plan`
reads what came out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from integrator_contract import answers, service
from integrator_contract.reasons import Reason

from .facts import Replica, Snapshot
from .memory import Hold, Memory, Round
from .outcome import Limits, News


@dataclass(slots=True)
class Ledger:
    """The state of one planning."""

    snapshot: Snapshot
    memory: Memory
    mode: service.RestartPods
    limits: Limits
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
