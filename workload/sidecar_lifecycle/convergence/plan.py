"""What to do next about pods that missed their sidecar: a pure function of what is known."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from .facts import Answer, Replica, Snapshot
from .memory import Guard, Memory, Pause, Round
from .settings import Mode

REMEDY = "fix it, then run restart-uninjected, or annotate it with convergence=disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far and how fast convergence goes; times in seconds."""

    max_unavailable: int = 2
    """Workloads that may miss a pod because of us at the same time."""
    ready_for: float = 60.0
    """A pod that came up just now may be in the middle of something."""
    settled_margin: float = 3600.0
    """Pods this much older than our application were there long before us."""
    answer_ttl: float = 5.0
    """How long the answer to a dry-run counts; also the pause when the mesh is down."""
    refused_retry: float = 30.0
    skip_retry: float = 600.0
    eviction_grace: float = 30.0
    """An eviction whose outcome is unknown shows within this time, or did not happen."""
    replacement_deadline: float = 600.0
    """After this a replacement that is not Ready is reported; its slot stays taken."""


@dataclass(frozen=True, slots=True)
class Row:
    """A pod without the sidecar that it should have."""

    replica: Replica
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A workload that needs a person."""

    workload: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class News:
    """Something that this plan found out, to be told once."""

    kind: Literal["guarded", "completed"]
    workload: str
    reason: str
    message: str
    replica: Replica | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The counts behind the status."""

    eligible: int
    """Pods in the mesh, and those that are ours to bring there."""
    in_mesh: int
    converging: int
    """Pods being replaced, or that will be without anyone asking."""
    proposed: int
    """Pods that wait to be asked for."""
    guarded: tuple[Trouble, ...]
    reported: int
    """Pods without the sidecar that they should have, and not ours to evict."""
    settled_before_us: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to remember, what to ask, what to evict, and what to say."""

    memory: Memory
    """To be stored before anything is evicted."""
    ask: tuple[Replica, ...]
    evict: tuple[Replica, ...]
    rows: tuple[Row, ...]
    summary: Summary
    news: tuple[News, ...]
    wake_at: float | None
    """When something may change by the mere passing of time."""

    def reasons(self) -> Counter[str]:
        """Count the pods without a sidecar by reason."""
        return Counter(row.reason for row in self.rows)


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
    workloads: dict[str, list[Replica]] = field(init=False)
    rounds: dict[str, Round] = field(init=False)
    guards: dict[str, Guard] = field(init=False)
    pauses: dict[str, Pause] = field(init=False)
    requested: frozenset[str] = frozenset()
    waits: _Waits = field(default_factory=_Waits)
    """Why each pod, by UID, is not replaced right now."""
    stuck: list[Trouble] = field(default_factory=list[Trouble])
    ask: list[Replica] = field(default_factory=list[Replica])
    evict: list[Replica] = field(default_factory=list[Replica])
    news: list[News] = field(default_factory=list[News])
    wakes: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.workloads = defaultdict(list)
        for replica in self.snapshot.replicas:
            if replica.workload:
                self.workloads[replica.workload].append(replica)
        self.rounds = dict(self.memory.rounds)
        self.guards = dict(self.memory.guards)
        self.pauses = dict(self.memory.pauses)

    def run(self) -> Plan:
        self._review_guards()
        for workload in sorted(self.memory.rounds):
            self._review_round(workload)
        self._review_request()
        settled = self._settled()
        candidates = self._candidates(settled is True)
        self._choose(candidates)
        self.pauses = {key: each for key, each in self.pauses.items() if key in candidates}
        rows = tuple(self._row(each) for each in self.snapshot.replicas if each.missing)
        return Plan(
            memory=self._remember(settled),
            ask=tuple(self.ask),
            evict=tuple(self.evict),
            rows=rows,
            summary=self._summary(rows, settled is True),
            news=tuple(self.news),
            wake_at=min(self.wakes, default=None),
        )

    def _wake(self, at: float) -> None:
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
                self._wake(guard.until)

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

    def _guard(self, workload: str, replica: Replica, reason: str, message: str) -> None:
        until = self.now + self.limits.skip_retry if reason == "InjectorSkips" else None
        if until is not None:
            self._wake(until)
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
            self._wake(until)

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
            self._guard(workload, replica, "StillNoSidecar", f"{message}: {REMEDY}")
        elif answer.verdict == "skips":
            self._guard(workload, replica, "InjectorSkips", answer.message)

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
        self._wake(until)
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
            and each.workload not in self.guards
        )

    def _settled(self) -> bool | None:
        """Tell whether the model had been running long before us when we first looked.

        It is decided once, so that neither a pod that is replaced meanwhile turns a proposal
        into evictions, nor what is left of a half-done convergence into a proposal.
        """
        missing = [each for each in self.snapshot.replicas if each.missing and each.fixable]
        if not missing:
            return self.memory.settled if self.rounds else None
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
            guard = self.guards.get(replica.workload)
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
        slots = self.limits.max_unavailable - len(self.rounds)
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
                self._wake(answer.at + self.limits.answer_ttl)
                return answer
        return None

    def _victim(
        self, workload: str, replicas: list[Replica]
    ) -> tuple[Replica | None, tuple[str, str]]:
        """Return the pod of a workload that may be evicted now, or why none may."""
        if workload in self.rounds:
            return None, ("Replacing", f"a pod of {workload} is being replaced")
        pause = self.pauses.get(workload)
        if pause is not None and self.now < pause.until:
            self._wake(pause.until)
            return None, (pause.reason, pause.message)
        if any(each.terminating for each in self.workloads[workload]):
            return None, ("Changing", f"a pod of {workload} is terminating")
        if self.snapshot.desired.get(workload, 0) == 0:
            return None, ("Changing", f"{workload} is going away")
        broken = [each for each in replicas if self._broken(each)]
        if broken:
            return max(broken, key=_ordinal), ("", "")
        return self._serving_victim(workload, replicas)

    def _broken(self, replica: Replica) -> bool:
        """Tell whether evicting the pod takes nothing from anyone."""
        if replica.ready:
            return False
        age = self.now - replica.created
        asked = replica.uid in self.requested
        if asked:
            self._wake(replica.created + self.limits.ready_for)
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
            self._wake(min(due.values()))
            return None, ("NotSettled", f"Ready for less than {self.limits.ready_for:.0f} s")
        ready = sum(each.ready for each in self.workloads[workload])
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
            self.ask.append(victim)
            return ("Queued", "asking whether its replacement would get a sidecar"), 1
        if answer.verdict == "skips":
            self._guard(workload, victim, "InjectorSkips", answer.message)
            return ("InjectorSkips", answer.message), 0
        if answer.verdict != "injects":
            self._wake(answer.at + self.limits.refused_retry)
            return ("ReplacementRefused", answer.message), 0
        self.evict.append(victim)
        self.pauses.pop(workload, None)
        replicas = self.workloads[workload]
        self.rounds[workload] = Round(
            pod=victim.name,
            uid=victim.uid,
            known=tuple(sorted(each.uid for each in replicas)),
            was_ready=victim.ready,
            ready_before=sum(each.ready for each in replicas),
            since=self.now,
            fingerprint=self.snapshot.fingerprint,
        )
        self._wake(self.now + self.limits.eviction_grace)
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
            rounds=self.rounds,
            guards=self.guards,
            pauses=self.pauses,
            settled=settled,
            request=request,
            answered=self.memory.answered,
        )

    def _row(self, replica: Replica) -> Row:
        if not replica.fixable:
            return Row(replica, replica.reason, replica.message)
        return Row(replica, *self.waits.get(replica.uid, (replica.reason, replica.message)))

    def _summary(self, rows: tuple[Row, ...], settled: bool) -> Summary:
        fixable = [row for row in rows if row.replica.fixable]
        in_mesh = sum(each.injected and not each.terminating for each in self.snapshot.replicas)
        proposed = sum(row.reason in ("SettledBefore", "NotAsked") for row in fixable)
        guarded = [
            Trouble(workload, guard.reason, guard.message)
            for workload, guard in sorted(self.guards.items())
        ]
        held = sum(row.replica.workload in self.guards for row in fixable)
        stuck = {each.workload for each in self.stuck}
        absent = {
            workload
            for workload in self.rounds
            if workload not in stuck
            and not any(row.replica.workload == workload for row in fixable)
        }
        return Summary(
            eligible=in_mesh + len(fixable),
            in_mesh=in_mesh,
            converging=len(fixable) - proposed - held + len(absent),
            proposed=proposed,
            guarded=(*guarded, *self.stuck),
            reported=len(rows) - len(fixable),
            settled_before_us=settled and proposed > 0,
        )


def _ordinal(replica: Replica) -> tuple[int, str]:
    """Order pods so that a StatefulSet's highest comes first to its end, as in its own updates."""
    found = re.search(r"-(\d+)$", replica.name)
    return (int(found[1]) if found else -1, replica.name)
