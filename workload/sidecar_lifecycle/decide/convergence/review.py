"""Looking back: which guards still hold, and how the rounds under way are going."""

from __future__ import annotations

import msgspec

from integrator_contract import answers
from integrator_contract.reasons import Reason

from .facts import Answer, Replica
from .ledger import Ledger
from .memory import Guard, Round
from .outcome import REMEDY, News


def review(ledger: Ledger) -> None:
    """Keep of the guards and rounds that were remembered what still holds."""
    _review_guards(ledger)
    for workload in sorted(ledger.memory.rounds):
        _review_round(ledger, workload)


def _review_guards(ledger: Ledger) -> None:
    for workload, guard in ledger.memory.guards.items():
        if _lifted(ledger, workload, guard):
            del ledger.guards[workload]
        elif guard.until is not None:
            ledger.wake(guard.until)


def _lifted(ledger: Ledger, workload: str, guard: Guard) -> bool:
    """Tell whether the workload, or the mesh, is not any more what the guard was about."""
    live = ledger.live(workload)
    request = ledger.memory.request
    asked = request is not None and request.at > guard.since
    if asked and request is not None and any(each.uid in request.uids for each in live):
        return True
    missing = [each for each in live if each.missing]
    return (
        workload not in ledger.snapshot.desired
        or guard.fingerprint != ledger.snapshot.fingerprint
        or (guard.until is not None and ledger.now >= guard.until)
        or any(each.revision != guard.revision for each in missing)
        or (bool(live) and not missing)
    )


def _review_round(ledger: Ledger, workload: str) -> None:
    current = ledger.rounds[workload]
    live = ledger.live(workload)
    gone = workload not in ledger.snapshot.desired
    if gone or (live and not any(each.fixable for each in live)):
        del ledger.rounds[workload]
        return
    victim = next(
        (each for each in ledger.workloads.get(workload, ()) if each.uid == current.uid), None
    )
    if victim is not None and not victim.terminating:
        _review_pending(ledger, workload, current)
        return
    judged = _judge(ledger, workload, live)
    is_over = victim is None or victim.ended
    if judged and is_over and _restored(ledger, workload, live):
        finished = ledger.rounds.pop(workload)
        message = f"{finished.pod} was replaced"
        ledger.news.append(News("completed", workload, Reason.REPLACED, message))
        return
    _watch_deadline(ledger, workload, current, victim)


def _review_pending(ledger: Ledger, workload: str, current: Round) -> None:
    """The pod is still there: its eviction is under way, or it never happened."""
    until = current.since + ledger.limits.eviction_grace
    if ledger.now >= until:
        del ledger.rounds[workload]
    else:
        ledger.wake(until)


def _judge(ledger: Ledger, workload: str, live: list[Replica]) -> bool:
    """Look at replacements without a sidecar; return False while the answer is open."""
    current = ledger.rounds[workload]
    bad = [each for each in live if each.missing and each.uid not in current.known]
    if not bad:
        return True
    if current.fingerprint == ledger.snapshot.fingerprint:
        answer = ledger.snapshot.answers.get(workload)
        if answer is None or answer.uid not in {each.uid for each in bad}:
            ledger.ask.append(bad[0])
            return False
        _blame(ledger, workload, bad[0], answer)
    # Whether blamed, or excused because the injector was away when the replacement was
    # made: it is one of the old ones from now on, and the round waits for readiness only.
    uids = tuple(each.uid for each in bad)
    ledger.rounds[workload] = msgspec.structs.replace(current, known=current.known + uids)
    return True


def _blame(ledger: Ledger, workload: str, replica: Replica, answer: Answer) -> None:
    if answer.verdict == "injects":
        message = f"{replica.name}, created in place of an evicted pod, has no sidecar either"
        reason = Reason.STILL_NO_SIDECAR
        if ledger.snapshot.data_plane == "ambient":
            message = f"{replica.name}, created in place of an evicted pod, is no better"
            reason = Reason.SIDECAR_AGAIN
        ledger.guard(workload, replica, reason, f"{message}: {REMEDY}")
    elif answer.verdict == "skips":
        ledger.guard(workload, replica, Reason.INJECTOR_SKIPS, answer.message)


def _restored(ledger: Ledger, workload: str, live: list[Replica]) -> bool:
    """Tell whether the workload has back what we took from it."""
    current = ledger.rounds[workload]
    desired = ledger.snapshot.desired[workload]
    if len(live) < desired:
        return False
    if not current.was_ready:
        return True
    replacements = [each for each in live if each.uid not in current.known]
    ready = sum(each.ready for each in live)
    return ready >= min(desired, current.ready_before) and all(each.ready for each in replacements)


def _watch_deadline(ledger: Ledger, workload: str, current: Round, victim: Replica | None) -> None:
    until = current.since + ledger.limits.replacement_deadline
    ledger.wake(until)
    if ledger.now < until:
        return
    if victim is not None:
        message = f"{victim.name} has been terminating for a long time"
    else:
        message = f"the replacement of {current.pod} does not become Ready"
    minutes = round((ledger.now - current.since) / 60)
    ledger.stuck.append(
        answers.Trouble(
            workload, Reason.REPLACEMENT_NOT_READY, f"{message} ({minutes} min): {REMEDY}"
        )
    )
