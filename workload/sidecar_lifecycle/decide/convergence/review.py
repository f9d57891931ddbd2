"""Looking back: which holds still count, and how the rounds under way are going."""

from __future__ import annotations

import msgspec

from integrator_contract.answers import Trouble
from integrator_contract.reasons import Reason

from .facts import Replica, expected
from .ledger import (
    EVICTION_GRACE,
    FIRST_STAYS,
    REPLACEMENT_DEADLINE,
    Ledger,
    News,
    retry_after,
)
from .memory import Hold, Round

_REMEDY = "fix it, then run restart-uninjected, or annotate it with restart-pods=disabled"

_AGAIN = {
    "missing": (Reason.STILL_NO_SIDECAR, "has no sidecar either"),
    "unwanted": (Reason.SIDECAR_AGAIN, "has a sidecar again"),
    "order": (Reason.WRONG_ORDER, "has its containers in the wrong order again"),
}
"""Of a replacement that is no better, by its fault."""


def review(ledger: Ledger) -> None:
    """Keep of the holds and rounds that were remembered what still counts."""
    for workload, hold in ledger.memory.holds.items():
        if _is_lifted(ledger, workload, hold):
            del ledger.holds[workload]
        elif hold.until is not None:
            ledger.wake(hold.until)
    for workload in sorted(ledger.memory.rounds):
        _review_round(ledger, workload)


def _is_lifted(ledger: Ledger, workload: str, hold: Hold) -> bool:
    """Tell whether the workload or the mesh is not any more what the hold was about."""
    live = ledger.live(workload)
    faulty = [each for each in live if each.faulty]
    request = ledger.memory.request
    asked = request.uids if request is not None and request.at > hold.since else ()
    if (
        any(each.uid in asked for each in live)
        or workload not in ledger.snapshot.desired
        or (hold.fingerprint and hold.fingerprint != ledger.snapshot.fingerprint)
        or (hold.revision and any(each.revision != hold.revision for each in faulty))
    ):
        return True
    if hold.until is None:
        return bool(live) and not faulty
    # It stays while the workload is tried again, so that the status does not change each time.
    return ledger.now >= hold.until and (not faulty or ledger.is_changing(workload))


def _review_round(ledger: Ledger, workload: str) -> None:
    current = ledger.rounds[workload]
    live = ledger.live(workload)
    gone = workload not in ledger.snapshot.desired
    if gone or (live and not any(each.fixable for each in live)):
        del ledger.rounds[workload]
        return
    victim = next((each for each in ledger.workloads[workload] if each.uid == current.uid), None)
    if victim is not None and not victim.terminating:
        # Its eviction is under way, or it never happened.
        until = current.since + EVICTION_GRACE
        if ledger.now >= until:
            del ledger.rounds[workload]
        ledger.wake(until)
        return
    judged = _judge(ledger, workload)
    is_over = victim is None or victim.ended
    if judged and is_over and _is_restored(ledger, workload):
        _finish(ledger, workload)
    else:
        _watch(ledger, workload, victim)


def _judge(ledger: Ledger, workload: str) -> bool:
    """Look at replacements that are no better; return False while the answer is open."""
    current = ledger.rounds[workload]
    bad = [each for each in ledger.replacements(workload) if each.faulty]
    if not bad:
        return True
    if current.fingerprint == ledger.snapshot.fingerprint:
        answer = ledger.snapshot.answers.get(workload)
        if answer is None or answer.uid not in {each.uid for each in bad}:
            ledger.ask.append(bad[0])
            return False
        if answer.verdict == expected(bad[0]):
            reason, what = _AGAIN[bad[0].fault]
            message = f"{bad[0].name}, created in place of an evicted pod, {what}: {_REMEDY}"
            ledger.hold(bad[0], reason, message)
        elif answer.verdict == "skips":
            retry = retry_after(answer.verdict)
            ledger.hold(bad[0], Reason.INJECTOR_SKIPS, answer.message, retry=retry)
    # Whether blamed, or excused because the injector was away when the replacement was
    # made: it is one of the old ones from now on, and the round waits for readiness only.
    uids = tuple(each.uid for each in bad)
    ledger.rounds[workload] = msgspec.structs.replace(current, known=current.known + uids)
    return True


def _is_restored(ledger: Ledger, workload: str) -> bool:
    """Tell whether the workload has back what was taken from it."""
    current = ledger.rounds[workload]
    desired = ledger.snapshot.desired[workload]
    if len(ledger.live(workload)) < desired:
        return False
    if current.was_ready and ledger.ready(workload) < min(desired, current.ready_before):
        return False
    return all(_is_right(ledger, current, each) for each in ledger.replacements(workload))


def _is_right(ledger: Ledger, current: Round, replica: Replica) -> bool:
    """Tell whether a replacement is Ready, or no worse than a pod that was not Ready."""
    if replica.ready_since is not None:
        since = replica.ready_since + (FIRST_STAYS if current.proves else 0)
        ledger.wake(since)
        return since <= ledger.now
    broken = {each.container for each in replica.ailments}
    return not current.was_ready and broken <= set(current.broken)


def _finish(ledger: Ledger, workload: str) -> None:
    replacements = ledger.replacements(workload)
    current = ledger.rounds.pop(workload)
    if current.proves and replacements:
        ledger.proven.add(current.proves)
    message = f"{current.pod} was replaced"
    ledger.news.append(News("completed", workload, Reason.REPLACED, message))


def _watch(ledger: Ledger, workload: str, victim: Replica | None) -> None:
    """Say what keeps a replacement from being right."""
    current = ledger.rounds[workload]
    until = current.since + REPLACEMENT_DEADLINE
    ledger.wake(until)
    is_late = ledger.now >= until
    late = f"after {round(REPLACEMENT_DEADLINE / 60)} minutes"
    new = next((each for each in ledger.replacements(workload) if not each.ready), None)
    ailments = new.ailments if new else ()
    ailment = next((each for each in ailments if each.container not in current.broken), None)
    refused = ledger.snapshot.refused.get(workload)
    why = f": {ailment}" if ailment else ""
    pod = new.name if new else ""
    reason = Reason.REPLACEMENT_HANGS
    if ailment and ailment.hangs:
        message = f"the replacement {pod} cannot start{why}"
    elif refused and ledger.snapshot.lacks_pods(workload):
        message, pod = f"a new pod of {workload} is refused: {refused}", ""
    elif is_late and victim is not None and new is None:
        reason, pod = Reason.REPLACEMENT_NOT_READY, victim.name
        message = f"the evicted pod {pod} is still terminating {late}"
    elif is_late:
        reason = Reason.REPLACEMENT_NOT_READY
        subject = f"the replacement {pod}" if new else f"a new pod of {workload}"
        message = f"{subject} is not Ready {late}{why}"
    elif new is not None:
        reason, message = Reason.REPLACEMENT_STARTING, f"waiting for {pod} to be Ready"
    else:
        return
    passing = reason is Reason.REPLACEMENT_STARTING
    ledger.troubles.append(Trouble(workload, reason, message, pod, passing=passing))
