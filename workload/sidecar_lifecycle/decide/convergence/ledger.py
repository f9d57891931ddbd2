"""What one planning works on: the model as it is, what is remembered of it, what comes of both.

Three steps write in it, one after the other: `review` looks back on rounds and guards, `choice`
decides about the pods that miss their sidecar, and `summary` reads what came out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from integrator_contract import answers, service
from integrator_contract.reasons import Reason

from .facts import Replica, Snapshot
from .memory import Guard, Memory, Pause, Round
from .outcome import Limits, News


@dataclass(slots=True)
class Ledger:
    """The state of one planning."""

    snapshot: Snapshot
    memory: Memory
    mode: service.Convergence
    limits: Limits
    now: float
    """Seconds since the epoch."""
    workloads: dict[str, list[Replica]] = field(init=False)
    """All pods of each workload, terminating ones included."""
    rounds: dict[str, Round] = field(init=False)
    """Under way, by workload."""
    guards: dict[str, Guard] = field(init=False)
    pauses: dict[str, Pause] = field(init=False)
    requested: frozenset[str] = frozenset()
    """UIDs of the pods that somebody asked to have replaced and that still can be."""
    waits: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Why each pod, by UID, is not replaced right now: a reason and a message."""
    ask: list[Replica] = field(default_factory=list[Replica])
    """Pods of whose replacements the injector is to be asked."""
    evict: list[Replica] = field(default_factory=list[Replica])
    news: list[News] = field(default_factory=list[News])
    stuck: list[answers.Trouble] = field(default_factory=list[answers.Trouble])
    wakes: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.workloads = defaultdict(list)
        for replica in self.snapshot.replicas:
            if replica.workload:
                self.workloads[replica.workload].append(replica)
        self.rounds = dict(self.memory.rounds)
        self.guards = dict(self.memory.guards)
        self.pauses = dict(self.memory.pauses)

    def live(self, workload: str) -> list[Replica]:
        """Return the pods of a workload that are not terminating."""
        return [each for each in self.workloads.get(workload, ()) if not each.terminating]

    def is_changing(self, workload: str) -> bool:
        """Tell whether a pod of the workload is terminating."""
        return any(each.terminating for each in self.workloads[workload])

    def wake(self, at: float) -> None:
        """Note when something may change by the mere passing of time."""
        if at > self.now:
            self.wakes.append(at)

    def guard(self, workload: str, replica: Replica, reason: Reason, message: str) -> None:
        """Leave a workload alone from now on, and say so."""
        until = self.now + self.limits.skip_retry if reason == Reason.INJECTOR_SKIPS else None
        if until is not None:
            self.wake(until)
        self.guards[workload] = Guard(
            reason=reason,
            message=message,
            since=self.now,
            revision=replica.revision,
            fingerprint=self.snapshot.fingerprint,
            until=until,
        )
        self.news.append(News("guarded", workload, reason, message, replica))
