"""What a planning came to: what to remember, a row for each pod, and the counts."""

from __future__ import annotations

import dataclasses
import math

import msgspec

from integrator_contract import answers
from integrator_contract.reasons import Reason

from .facts import Replica
from .ledger import Ledger
from .memory import Memory, Pace
from .outcome import Plan, Row


def summarize(ledger: Ledger, settled: bool | None) -> Plan:
    """Return what the ledger says in the end."""
    rows = tuple(_row(ledger, each) for each in ledger.snapshot.replicas if each.missing)
    summary = _summary(ledger, rows, settled is True)
    pace = _pace(ledger, summary.converging)
    return Plan(
        memory=_remember(ledger, settled, pace),
        ask=tuple(ledger.ask),
        evict=tuple(ledger.evict),
        rows=rows,
        summary=dataclasses.replace(summary, minutes_left=_minutes_left(pace, summary.converging)),
        news=tuple(ledger.news),
        wake_at=min(ledger.wakes, default=None),
    )


def _pace(ledger: Ledger, converging: int) -> Pace | None:
    """Return how fast it goes; a pace ends with its convergence."""
    over = sum(news.kind == "completed" for news in ledger.news)
    pace = ledger.memory.pace
    if pace is None:
        return Pace(since=ledger.now) if ledger.evict else None
    if converging == 0 and not ledger.rounds:
        return None
    if not over:
        return pace
    return msgspec.structs.replace(pace, done=pace.done + over, latest=ledger.now)


def _minutes_left(pace: Pace | None, converging: int) -> int:
    """Estimate by what is over; it changes only when that, or what is left, does."""
    if pace is None or not pace.done:
        return 0
    return math.ceil((pace.latest - pace.since) / pace.done * converging / 60)


def _remember(ledger: Ledger, settled: bool | None, pace: Pace | None) -> Memory:
    request = ledger.memory.request
    if request is not None:
        left = tuple(uid for uid in request.uids if uid in ledger.requested)
        request = msgspec.structs.replace(request, uids=left) if left else None
    return Memory(
        rounds=ledger.rounds,
        guards=ledger.guards,
        pauses=ledger.pauses,
        settled=settled,
        request=request,
        answered=ledger.memory.answered,
        pace=pace,
    )


def _is_coming(ledger: Ledger, replica: Replica) -> bool:
    """Tell whether the pod replaces one that we took, and does not serve yet."""
    current = ledger.rounds.get(replica.workload)
    return (
        current is not None
        and replica.in_mesh
        and not (replica.ready or replica.terminating)
        and replica.uid not in current.known
    )


def _coming(ledger: Ledger, workload: str) -> int:
    """Count the pods that a round still owes its workload and that are no rows."""
    pods = ledger.workloads.get(workload, [])
    live = sum(not each.terminating for each in pods)
    absent = live < ledger.snapshot.desired[workload]
    return absent + sum(_is_coming(ledger, each) for each in pods)


def _row(ledger: Ledger, replica: Replica) -> Row:
    if not replica.fixable:
        return Row(replica, replica.reason, replica.message)
    return Row(replica, *ledger.waits.get(replica.uid, (replica.reason, replica.message)))


def _summary(ledger: Ledger, rows: tuple[Row, ...], settled: bool) -> answers.Summary:
    fixable = [row for row in rows if row.replica.fixable]
    in_mesh = sum(
        each.in_mesh and not each.terminating and not _is_coming(ledger, each)
        for each in ledger.snapshot.replicas
    )
    proposed = sum(row.reason in (Reason.SETTLED_BEFORE, Reason.NOT_ASKED) for row in fixable)
    guarded = [
        answers.Trouble(workload, guard.reason, guard.message)
        for workload, guard in sorted(ledger.guards.items())
    ]
    paused = [
        answers.Trouble(workload, pause.reason, pause.message)
        for workload, pause in sorted(ledger.pauses.items())
        if any(row.replica.workload == workload for row in fixable)
    ]
    held = sum(
        row.replica.workload in ledger.guards or row.replica.workload in ledger.pauses
        for row in fixable
    )
    stuck = {each.workload for each in ledger.stuck}
    coming = {workload: _coming(ledger, workload) for workload in ledger.rounds}
    on_the_way = sum(coming.values())
    overdue = sum(count for workload, count in coming.items() if workload in stuck)
    return answers.Summary(
        eligible=in_mesh + on_the_way + len(fixable),
        in_mesh=in_mesh,
        converging=len(fixable) - proposed - held + on_the_way - overdue,
        proposed=proposed,
        guarded=(*guarded, *ledger.stuck),
        paused=tuple(paused),
        reported=len(rows) - len(fixable),
        settled_before_us=settled and proposed > 0,
        stale=sum(bool(each.stale) and not each.terminating for each in ledger.snapshot.replicas),
    )
