"""Looking back: which guards still hold, and how the rounds under way are going."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from sidecar_lifecycle import names

from .facts import Answer, Replica, Snapshot
from .memory import Guard, Memory, Round
from .outcome import REMEDY, Limits, News, Trouble


@dataclass(slots=True)
class Review:
    """What is left of the rounds and guards that were remembered, and what came of the others."""

    snapshot: Snapshot
    memory: Memory
    limits: Limits
    now: float
    workloads: dict[str, list[Replica]] = field(init=False)
    rounds: dict[str, Round] = field(init=False)
    guards: dict[str, Guard] = field(init=False)
    stuck: list[Trouble] = field(default_factory=list[Trouble])
    ask: list[Replica] = field(default_factory=list[Replica])
    news: list[News] = field(default_factory=list[News])
    wakes: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.workloads = defaultdict(list)
        for replica in self.snapshot.replicas:
            if replica.workload:
                self.workloads[replica.workload].append(replica)
        self.rounds = dict(self.memory.rounds)
        self.guards = dict(self.memory.guards)

    def run(self) -> None:
        """Look at everything that was remembered."""
        self._review_guards()
        for workload in sorted(self.memory.rounds):
            self._review_round(workload)

    def wake(self, at: float) -> None:
        """Note when something may change by the mere passing of time."""
        if at > self.now:
            self.wakes.append(at)

    def _live(self, workload: str) -> list[Replica]:
        return [each for each in self.workloads.get(workload, ()) if not each.terminating]

    # Guards

    def _review_guards(self) -> None:
        for workload, guard in self.memory.guards.items():
            if self._lifted(workload, guard):
                del self.guards[workload]
            elif guard.until is not None:
                self.wake(guard.until)

    def _lifted(self, workload: str, guard: Guard) -> bool:
        """Tell whether the workload, or the mesh, is not any more what the guard was about."""
        live = self._live(workload)
        request = self.memory.request
        asked = request is not None and request.at > guard.since
        if asked and request is not None and any(each.uid in request.uids for each in live):
            return True
        missing = [each for each in live if each.missing]
        return (
            workload not in self.snapshot.desired
            or guard.fingerprint != self.snapshot.fingerprint
            or (guard.until is not None and self.now >= guard.until)
            or any(each.revision != guard.revision for each in missing)
            or (bool(live) and not missing)
        )

    def guard(
        self, workload: str, replica: Replica, reason: names.EventReason, message: str
    ) -> None:
        """Leave a workload alone from now on, and say so."""
        until = (
            self.now + self.limits.skip_retry
            if reason == names.EventReason.INJECTOR_SKIPS
            else None
        )
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

    # Rounds under way

    def _review_round(self, workload: str) -> None:
        current = self.rounds[workload]
        live = self._live(workload)
        gone = workload not in self.snapshot.desired
        if gone or (live and not any(each.fixable for each in live)):
            del self.rounds[workload]
            return
        victim = next(
            (each for each in self.workloads.get(workload, ()) if each.uid == current.uid), None
        )
        if victim is not None and not victim.terminating:
            self._review_pending(workload, current)
            return
        judged = self._judge(workload, live)
        if judged and victim is None and self._restored(workload, live):
            finished = self.rounds.pop(workload)
            message = f"{finished.pod} was replaced"
            self.news.append(News("completed", workload, "Replaced", message))
            return
        self._watch_deadline(workload, current, victim)

    def _review_pending(self, workload: str, current: Round) -> None:
        """The pod is still there: its eviction is under way, or it never happened."""
        until = current.since + self.limits.eviction_grace
        if self.now >= until:
            del self.rounds[workload]
        else:
            self.wake(until)

    def _judge(self, workload: str, live: list[Replica]) -> bool:
        """Look at replacements without a sidecar; return False while the answer is open."""
        current = self.rounds[workload]
        bad = [each for each in live if each.missing and each.uid not in current.known]
        if not bad:
            return True
        if current.fingerprint == self.snapshot.fingerprint:
            answer = self.snapshot.answers.get(workload)
            if answer is None or answer.uid not in {each.uid for each in bad}:
                self.ask.append(bad[0])
                return False
            self._blame(workload, bad[0], answer)
        # Whether blamed, or excused because the injector was away when the replacement was
        # made: it is one of the old ones from now on, and the round waits for readiness only.
        uids = tuple(each.uid for each in bad)
        self.rounds[workload] = msgspec.structs.replace(current, known=current.known + uids)
        return True

    def _blame(self, workload: str, replica: Replica, answer: Answer) -> None:
        if answer.verdict == "injects":
            message = f"{replica.name}, created in place of an evicted pod, has no sidecar either"
            self.guard(
                workload, replica, names.EventReason.STILL_NO_SIDECAR, f"{message}: {REMEDY}"
            )
        elif answer.verdict == "skips":
            self.guard(workload, replica, names.EventReason.INJECTOR_SKIPS, answer.message)

    def _restored(self, workload: str, live: list[Replica]) -> bool:
        """Tell whether the workload has back what we took from it."""
        current = self.rounds[workload]
        desired = self.snapshot.desired[workload]
        if len(live) < desired:
            return False
        if not current.was_ready:
            return True
        replacements = [each for each in live if each.uid not in current.known]
        ready = sum(each.ready for each in live)
        return ready >= min(desired, current.ready_before) and all(
            each.ready for each in replacements
        )

    def _watch_deadline(self, workload: str, current: Round, victim: Replica | None) -> None:
        until = current.since + self.limits.replacement_deadline
        self.wake(until)
        if self.now < until:
            return
        if victim is not None:
            message = f"{victim.name} has been terminating for long"
        else:
            message = f"the replacement of {current.pod} does not become Ready"
        minutes = round((self.now - current.since) / 60)
        self.stuck.append(
            Trouble(workload, "ReplacementNotReady", f"{message} ({minutes} min): {REMEDY}")
        )
