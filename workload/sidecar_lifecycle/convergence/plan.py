"""What to do next about pods that missed their sidecar: a pure function of what is known."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from sidecar_lifecycle import names

from .facts import Answer, Replica, Snapshot
from .memory import Memory, Pause, Round
from .outcome import Limits, Plan, Row, Summary, Trouble
from .review import Review
from .settings import Mode


def plan(snapshot: Snapshot, memory: Memory, *, mode: Mode, limits: Limits, now: float) -> Plan:
    """Decide what to do next.

    Args:
        snapshot: the model as it is now.
        memory: what was remembered.
        mode: whether to act without being asked.
        limits: how far to go.
        now: seconds since the epoch.
    """
    return _Planner(snapshot, memory, mode, limits, now).run()


_Waits = dict[str, tuple[str, str]]


@dataclass(slots=True)
class _Planner:
    snapshot: Snapshot
    memory: Memory
    mode: Mode
    limits: Limits
    now: float
    past: Review = field(init=False)
    pauses: dict[str, Pause] = field(init=False)
    requested: frozenset[str] = frozenset()
    waits: _Waits = field(default_factory=_Waits)
    """Why each pod, by UID, is not replaced right now."""
    evict: list[Replica] = field(default_factory=list[Replica])

    def __post_init__(self) -> None:
        self.past = Review(self.snapshot, self.memory, self.limits, self.now)
        self.pauses = dict(self.memory.pauses)

    def run(self) -> Plan:
        self.past.run()
        self._review_request()
        settled = self._settled()
        candidates = self._candidates(settled is True)
        self._choose(candidates)
        self.pauses = {
            key: each
            for key, each in self.pauses.items()
            # It stays while it is tried again, so that what is said does not change each time.
            if key in candidates and (self.now < each.until or not self._is_changing(key))
        }
        rows = tuple(self._row(each) for each in self.snapshot.replicas if each.missing)
        return Plan(
            memory=self._remember(settled),
            ask=tuple(self.past.ask),
            evict=tuple(self.evict),
            rows=rows,
            summary=self._summary(rows, settled is True),
            news=tuple(self.past.news),
            wake_at=min(self.past.wakes, default=None),
        )

    # What is asked for, and what may be done unasked

    def _review_request(self) -> None:
        request = self.memory.request
        if request is None:
            return
        self.requested = frozenset(
            each.uid
            for each in self.snapshot.replicas
            if each.uid in request.uids
            and each.fixable
            and not each.terminating
            and each.workload not in self.past.guards
        )

    def _settled(self) -> bool | None:
        """Tell whether the model had been running long before us when we first looked.

        It is decided once, so that neither a pod that is replaced meanwhile turns a proposal
        into evictions, nor what is left of a half-done convergence into a proposal.
        """
        missing = [each for each in self.snapshot.replicas if each.missing and each.fixable]
        if not missing:
            return self.memory.settled if self.past.rounds else None
        if self.memory.settled is not None:
            return self.memory.settled
        return all(map(self._old, missing))

    def _old(self, replica: Replica) -> bool:
        created = self.snapshot.application_created
        return created is not None and replica.created < created - self.limits.settled_margin

    def _candidates(self, settled: bool) -> dict[str, list[Replica]]:
        """Return the pods to replace, by workload; note why others are not."""
        found: dict[str, list[Replica]] = defaultdict(list)
        for replica in self.snapshot.replicas:
            asked = replica.uid in self.requested
            if not asked and not (replica.missing and replica.fixable):
                continue
            guard = self.past.guards.get(replica.workload)
            if guard is not None:
                self.waits[replica.uid] = (guard.reason, guard.message)
            elif asked or (self.mode == "auto" and not (settled and self._old(replica))):
                found[replica.workload].append(replica)
            else:
                self.waits[replica.uid] = self._proposal()
        return found

    def _proposal(self) -> tuple[str, str]:
        if self.mode == "auto":
            return "SettledBefore", "it ran long before us: run restart-uninjected"
        return "NotAsked", f"sidecar-convergence is {self.mode}: run restart-uninjected"

    # Choosing

    def _choose(self, candidates: dict[str, list[Replica]]) -> None:
        down = self._down()
        slots = self.limits.max_unavailable - len(self.past.rounds)
        for workload in sorted(candidates):
            replicas = candidates[workload]
            victim, wait = self._victim(workload, replicas)
            if victim is not None and down is not None:
                wait = ("MeshDown", down.message)
            elif victim is not None and slots <= 0:
                wait = ("Queued", "other workloads come first")
            elif victim is not None:
                wait, taken = self._proceed(workload, victim)
                slots -= taken
            for each in replicas:
                self.waits[each.uid] = wait

    def _down(self) -> Answer | None:
        """Return what says that the injector does not answer, while that counts."""
        for answer in self.snapshot.answers.values():
            if answer.verdict == "down" and self.now < answer.at + self.limits.answer_ttl:
                self.past.wake(answer.at + self.limits.answer_ttl)
                return answer
        return None

    def _victim(
        self, workload: str, replicas: list[Replica]
    ) -> tuple[Replica | None, tuple[str, str]]:
        """Return the pod of a workload that may be evicted now, or why none may."""
        if workload in self.past.rounds:
            return None, ("Replacing", f"a pod of {workload} is being replaced")
        pause = self.pauses.get(workload)
        if pause is not None and self.now < pause.until:
            self.past.wake(pause.until)
            return None, (pause.reason, pause.message)
        if self._is_changing(workload):
            return None, ("Changing", f"a pod of {workload} is terminating")
        if self.snapshot.desired.get(workload, 0) == 0:
            return None, ("Changing", f"{workload} is going away")
        broken = [each for each in replicas if self._broken(each)]
        if broken:
            return max(broken, key=_ordinal), ("", "")
        return self._serving_victim(workload, replicas)

    def _is_changing(self, workload: str) -> bool:
        return any(each.terminating for each in self.past.workloads[workload])

    def _broken(self, replica: Replica) -> bool:
        """Tell whether evicting the pod takes nothing from anyone."""
        if replica.ready:
            return False
        age = self.now - replica.created
        asked = replica.uid in self.requested
        if asked:
            self.past.wake(replica.created + self.limits.ready_for)
        return replica.crash_looping or (asked and age >= self.limits.ready_for)

    def _serving_victim(
        self, workload: str, replicas: list[Replica]
    ) -> tuple[Replica | None, tuple[str, str]]:
        serving = [each for each in replicas if each.ready]
        if not serving:
            return None, ("NotReady", "it is neither Ready nor crash-looping")
        due = {each.uid: (each.ready_since or 0) + self.limits.ready_for for each in serving}
        settled = [each for each in serving if due[each.uid] <= self.now]
        if not settled:
            self.past.wake(min(due.values()))
            return None, ("NotSettled", f"Ready for less than {self.limits.ready_for:.0f} s")
        ready = sum(each.ready for each in self.past.workloads[workload])
        if self.snapshot.desired[workload] > 1 and ready < 2:
            return None, ("LastReadyReplica", f"it is the only Ready pod of {workload}")
        return max(settled, key=_ordinal), ("", "")

    def _proceed(self, workload: str, victim: Replica) -> tuple[tuple[str, str], int]:
        """Ask whether a replacement would get its sidecar; evict when it would.

        Returns:
            Why the workload's pods wait, and how many slots this takes.
        """
        answer = self._fresh_answer(workload)
        if answer is None:
            self.past.ask.append(victim)
            return ("Queued", "asking whether its replacement would get a sidecar"), 1
        if answer.verdict == "skips":
            reason = names.EventReason.INJECTOR_SKIPS
            self.past.guard(workload, victim, reason, answer.message)
            return (reason, answer.message), 0
        if answer.verdict != "injects":
            until = answer.at + self.limits.refused_retry
            self.past.wake(until)
            pause = Pause(reason="ReplacementRefused", message=answer.message, until=until)
            self.pauses[workload] = pause
            return (pause.reason, pause.message), 0
        self.evict.append(victim)
        replicas = self.past.workloads[workload]
        self.past.rounds[workload] = Round(
            pod=victim.name,
            uid=victim.uid,
            known=tuple(sorted(each.uid for each in replicas)),
            was_ready=victim.ready,
            ready_before=sum(each.ready for each in replicas),
            since=self.now,
            fingerprint=self.snapshot.fingerprint,
        )
        self.past.wake(self.now + self.limits.eviction_grace)
        return ("Replacing", f"a pod of {workload} is being replaced"), 1

    def _fresh_answer(self, workload: str) -> Answer | None:
        answer = self.snapshot.answers.get(workload)
        if answer is None:
            return None
        refused = answer.verdict == "refused"
        life = self.limits.refused_retry if refused else self.limits.answer_ttl
        return answer if self.now < answer.at + life else None

    # What comes out

    def _remember(self, settled: bool | None) -> Memory:
        request = self.memory.request
        if request is not None:
            left = tuple(uid for uid in request.uids if uid in self.requested)
            request = msgspec.structs.replace(request, uids=left) if left else None
        return Memory(
            rounds=self.past.rounds,
            guards=self.past.guards,
            pauses=self.pauses,
            settled=settled,
            request=request,
            answered=self.memory.answered,
        )

    def _is_coming(self, replica: Replica) -> bool:
        """Tell whether the pod replaces one that we took, and does not serve yet."""
        current = self.past.rounds.get(replica.workload)
        return (
            current is not None
            and replica.injected
            and not (replica.ready or replica.terminating)
            and replica.uid not in current.known
        )

    def _coming(self, workload: str) -> int:
        """Count the pods that a round still owes its workload and that are no rows."""
        pods = self.past.workloads.get(workload, [])
        live = sum(not each.terminating for each in pods)
        absent = live < self.snapshot.desired.get(workload, 0)
        return absent + sum(map(self._is_coming, pods))

    def _row(self, replica: Replica) -> Row:
        if not replica.fixable:
            return Row(replica, replica.reason, replica.message)
        return Row(replica, *self.waits.get(replica.uid, (replica.reason, replica.message)))

    def _summary(self, rows: tuple[Row, ...], settled: bool) -> Summary:
        fixable = [row for row in rows if row.replica.fixable]
        in_mesh = sum(
            each.injected and not each.terminating and not self._is_coming(each)
            for each in self.snapshot.replicas
        )
        proposed = sum(row.reason in ("SettledBefore", "NotAsked") for row in fixable)
        guarded = [
            Trouble(workload, guard.reason, guard.message)
            for workload, guard in sorted(self.past.guards.items())
        ]
        paused = [
            Trouble(workload, pause.reason, pause.message)
            for workload, pause in sorted(self.pauses.items())
        ]
        held = sum(
            row.replica.workload in self.past.guards or row.replica.workload in self.pauses
            for row in fixable
        )
        stuck = {each.workload for each in self.past.stuck}
        coming = {workload: self._coming(workload) for workload in self.past.rounds}
        on_the_way = sum(coming.values())
        overdue = sum(count for workload, count in coming.items() if workload in stuck)
        return Summary(
            eligible=in_mesh + on_the_way + len(fixable),
            in_mesh=in_mesh,
            converging=len(fixable) - proposed - held + on_the_way - overdue,
            proposed=proposed,
            guarded=(*guarded, *self.past.stuck),
            paused=tuple(paused),
            reported=len(rows) - len(fixable),
            settled_before_us=settled and proposed > 0,
            stale=sum(
                bool(each.stale) and not each.terminating for each in self.snapshot.replicas
            ),
        )


def _ordinal(replica: Replica) -> tuple[int, str]:
    """Order pods so that a StatefulSet's highest comes first to its end, as in its own updates."""
    found = re.search(r"-(\d+)$", replica.name)
    return (int(found[1]) if found else -1, replica.name)
