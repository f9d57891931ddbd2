"""What to do next about pods that are to be replaced: a pure function of what is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from integrator_contract import answers, service
from integrator_contract.reasons import Reason

from .choice import choose
from .facts import Replica, Snapshot
from .ledger import Ledger, News
from .memory import Memory
from .review import review


@dataclass(frozen=True, slots=True)
class Row:
    """A pod that should be replaced."""

    replica: Replica
    reason: str
    message: str


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


def plan(
    snapshot: Snapshot,
    memory: Memory,
    *,
    mode: service.RestartPods,
    max_unavailable: str,
    now: float,
) -> Plan:
    """Decide what to do next."""
    ledger = Ledger(snapshot, memory, mode, max_unavailable, now)
    review(ledger)
    choose(ledger)
    rows = tuple(_row(ledger, each) for each in snapshot.replicas if each.faulty)
    return Plan(
        memory=_remember(ledger),
        ask=tuple(ledger.ask),
        evict=tuple(ledger.evict),
        rows=rows,
        summary=_summary(ledger, rows),
        news=tuple(ledger.news),
        wake_at=min(ledger.wakes, default=None),
    )


def _remember(ledger: Ledger) -> Memory:
    request = ledger.memory.request
    if request is not None:
        left = tuple(uid for uid in request.uids if uid in ledger.requested)
        request = msgspec.structs.replace(request, uids=left) if left else None
    current = f"request {request.id}" if request else ""
    requests = {each for each in ledger.proven if each.startswith("request ")} - {current}
    return Memory(
        rounds=ledger.rounds,
        holds=ledger.holds,
        proven=tuple(sorted(ledger.proven - requests)),
        request=request,
        answered=ledger.memory.answered,
    )


def _is_coming(ledger: Ledger, replica: Replica) -> bool:
    """Tell whether the pod replaces one that was evicted, and does not serve yet."""
    current = ledger.rounds.get(replica.workload)
    return (
        current is not None
        and replica.in_mesh
        and not (replica.ready or replica.terminating)
        and replica.uid not in current.known
    )


def _coming(ledger: Ledger, workload: str) -> int:
    """Count the pods that a round still owes its workload and that are no rows."""
    live = ledger.live(workload)
    absent = len(live) < ledger.snapshot.desired[workload]
    return absent + sum(_is_coming(ledger, each) for each in live)


def _row(ledger: Ledger, replica: Replica) -> Row:
    if not replica.fixable:
        return Row(replica, replica.reason, replica.message)
    return Row(replica, *ledger.waits.get(replica.uid, (replica.reason, replica.message)))


def _troubles(ledger: Ledger, rows: tuple[Row, ...]) -> tuple[answers.Trouble, ...]:
    """Return what keeps pods from being replaced, what needs a person first."""
    lacking = {row.replica.workload for row in rows if row.replica.fixable}
    budget = Reason.DISRUPTION_BUDGET.value
    held = [
        answers.Trouble(workload, hold.reason, hold.message, passing=hold.reason == budget)
        for workload, hold in sorted(ledger.holds.items())
        if workload in lacking
    ]
    return tuple(sorted((*ledger.troubles, *held), key=lambda each: each.passing))


def _summary(ledger: Ledger, rows: tuple[Row, ...]) -> answers.Summary:
    ours = [row for row in rows if row.replica.fixable and row.replica.wanted]
    in_mesh = sum(
        each.in_mesh and not each.terminating and not _is_coming(ledger, each)
        for each in ledger.snapshot.replicas
    )
    proposed = sum(row.reason == Reason.NOT_ASKED.value for row in ours)
    held = sum(row.replica.workload in ledger.holds for row in ours)
    stuck = {each.workload for each in ledger.troubles if not each.passing}
    coming = {workload: _coming(ledger, workload) for workload in ledger.rounds}
    on_the_way = sum(coming.values())
    overdue = sum(count for workload, count in coming.items() if workload in stuck)
    return answers.Summary(
        eligible=in_mesh + on_the_way + len(ours),
        in_mesh=in_mesh,
        converging=len(ours) - proposed - held + on_the_way - overdue,
        proposed=proposed,
        troubles=_troubles(ledger, rows),
        reported=sum(not row.replica.fixable and row.replica.wanted for row in rows),
        unwanted=sum(not row.replica.wanted for row in rows),
        stale=sum(bool(each.stale) and not each.terminating for each in ledger.snapshot.replicas),
    )
