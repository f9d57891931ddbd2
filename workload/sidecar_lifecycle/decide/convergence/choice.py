"""Choosing the pods to replace, and saying of every other one why it waits."""

from __future__ import annotations

import re
from collections import defaultdict

from integrator_contract import service
from integrator_contract.reasons import Reason

from .facts import Answer, Replica
from .ledger import Ledger
from .memory import Pause, Round


def choose(ledger: Ledger) -> bool | None:
    """Choose what to evict and what to ask the injector about.

    Returns:
        Whether the model had been settled long before us; None: nothing to decide.
    """
    _review_request(ledger)
    settled = _settled(ledger)
    candidates = _candidates(ledger, settled is True)
    _decide(ledger, candidates)
    ledger.pauses = {
        key: each
        for key, each in ledger.pauses.items()
        # To its end, also while the workload misses no pod for a moment; and while it is tried
        # again, so that what is said does not change each time.
        if ledger.now < each.until or (key in candidates and not ledger.is_changing(key))
    }
    return settled


def _review_request(ledger: Ledger) -> None:
    """Keep of what was asked for by hand the pods that can still be replaced."""
    request = ledger.memory.request
    if request is None:
        return
    ledger.requested = frozenset(
        each.uid
        for each in ledger.snapshot.replicas
        if each.uid in request.uids
        and each.fixable
        and not each.terminating
        and each.workload not in ledger.guards
    )


def _settled(ledger: Ledger) -> bool | None:
    """Tell whether the model had been running long before us when we first looked.

    It is decided once, so that neither a pod that is replaced meanwhile turns a proposal
    into evictions, nor what is left of a half-done convergence into a proposal.
    """
    missing = [each for each in ledger.snapshot.replicas if each.missing and each.fixable]
    if not missing:
        return ledger.memory.settled if ledger.rounds else None
    if ledger.memory.settled is not None:
        return ledger.memory.settled
    return all(_old(ledger, each) for each in missing)


def _old(ledger: Ledger, replica: Replica) -> bool:
    created = ledger.snapshot.application_created
    return created is not None and replica.created < created - ledger.limits.settled_margin


def _candidates(ledger: Ledger, settled: bool) -> dict[str, list[Replica]]:
    """Return the pods to replace, by workload; note why others are not."""
    found: dict[str, list[Replica]] = defaultdict(list)
    for replica in ledger.snapshot.replicas:
        asked = replica.uid in ledger.requested
        if not asked and not (replica.missing and replica.fixable):
            continue
        guard = ledger.guards.get(replica.workload)
        if guard is not None:
            ledger.waits[replica.uid] = (guard.reason, guard.message)
        elif asked or (ledger.mode == "auto" and not (settled and _old(ledger, replica))):
            found[replica.workload].append(replica)
        else:
            ledger.waits[replica.uid] = _proposal(ledger)
    return found


def _proposal(ledger: Ledger) -> tuple[str, str]:
    if ledger.mode == "auto":
        return Reason.SETTLED_BEFORE, "it ran long before this charm: run restart-uninjected"
    return Reason.NOT_ASKED, f"sidecar-convergence is {ledger.mode}: run restart-uninjected"


def _decide(ledger: Ledger, candidates: dict[str, list[Replica]]) -> None:
    down = _down(ledger)
    slots = _most_at_once(ledger) - len(ledger.rounds)
    for workload in sorted(candidates):
        replicas = candidates[workload]
        victim, wait = _victim(ledger, workload, replicas)
        if victim is not None and down is not None:
            wait = (Reason.MESH_DOWN, down.message)
        elif victim is not None and slots <= 0:
            wait = (Reason.QUEUED, "other workloads come first")
        elif victim is not None:
            wait, taken = _proceed(ledger, workload, victim)
            slots -= taken
        for each in replicas:
            ledger.waits[each.uid] = wait


def _most_at_once(ledger: Ledger) -> int:
    """Return how many workloads may miss a pod because of us; a share is one of those that run."""
    running = sum(desired > 0 for desired in ledger.snapshot.desired.values())
    return service.at_most(ledger.limits.max_unavailable, running)


def _down(ledger: Ledger) -> Answer | None:
    """Return what says that the injector does not answer, while that counts."""
    for answer in ledger.snapshot.answers.values():
        if answer.verdict == "down" and ledger.now < answer.at + ledger.limits.answer_ttl:
            ledger.wake(answer.at + ledger.limits.answer_ttl)
            return answer
    return None


def _victim(
    ledger: Ledger, workload: str, replicas: list[Replica]
) -> tuple[Replica | None, tuple[str, str]]:
    """Return the pod of a workload that may be evicted now, or why none may."""
    if workload in ledger.rounds:
        return None, (Reason.REPLACING, f"a pod of {workload} is being replaced")
    pause = ledger.pauses.get(workload)
    if pause is not None and ledger.now < pause.until:
        ledger.wake(pause.until)
        return None, (pause.reason, pause.message)
    if ledger.is_changing(workload):
        return None, (Reason.CHANGING, f"a pod of {workload} is terminating")
    if ledger.snapshot.desired.get(workload, 0) == 0:
        return None, (Reason.CHANGING, f"{workload} is going away")
    broken = [each for each in replicas if _broken(ledger, each)]
    if broken:
        return max(broken, key=_ordinal), ("", "")
    return _serving_victim(ledger, workload, replicas)


def _broken(ledger: Ledger, replica: Replica) -> bool:
    """Tell whether evicting the pod takes nothing from anyone."""
    if replica.ready:
        return False
    age = ledger.now - replica.created
    asked = replica.uid in ledger.requested
    if asked:
        ledger.wake(replica.created + ledger.limits.ready_for)
    return replica.crash_looping or (asked and age >= ledger.limits.ready_for)


def _serving_victim(
    ledger: Ledger, workload: str, replicas: list[Replica]
) -> tuple[Replica | None, tuple[str, str]]:
    serving = [each for each in replicas if each.ready]
    if not serving:
        return None, (Reason.NOT_READY, "it is neither Ready nor crash-looping")
    due = {each.uid: (each.ready_since or 0) + ledger.limits.ready_for for each in serving}
    settled = [each for each in serving if due[each.uid] <= ledger.now]
    if not settled:
        ledger.wake(min(due.values()))
        return None, (Reason.NOT_SETTLED, f"Ready for less than {ledger.limits.ready_for:.0f} s")
    ready = sum(each.ready for each in ledger.workloads[workload])
    if ledger.snapshot.desired[workload] > 1 and ready < 2:
        return None, (Reason.LAST_READY_REPLICA, f"it is the only Ready pod of {workload}")
    return max(settled, key=_ordinal), ("", "")


def _proceed(ledger: Ledger, workload: str, victim: Replica) -> tuple[tuple[str, str], int]:
    """Ask whether a replacement would get its sidecar; evict when it would.

    Returns:
        Why the workload's pods wait, and how many slots this takes.
    """
    answer = _fresh_answer(ledger, workload)
    if answer is None:
        ledger.ask.append(victim)
        return (Reason.QUEUED, "asking whether its replacement would get a sidecar"), 1
    if answer.verdict == "skips":
        reason = Reason.INJECTOR_SKIPS
        ledger.guard(workload, victim, reason, answer.message)
        return (reason, answer.message), 0
    if answer.verdict != "injects":
        until = answer.at + ledger.limits.refused_retry
        ledger.wake(until)
        pause = Pause(reason=Reason.REPLACEMENT_REFUSED, message=answer.message, until=until)
        ledger.pauses[workload] = pause
        return (pause.reason, pause.message), 0
    ledger.evict.append(victim)
    replicas = ledger.workloads[workload]
    ledger.rounds[workload] = Round(
        pod=victim.name,
        uid=victim.uid,
        known=tuple(sorted(each.uid for each in replicas)),
        was_ready=victim.ready,
        ready_before=sum(each.ready for each in replicas),
        since=ledger.now,
        fingerprint=ledger.snapshot.fingerprint,
    )
    ledger.wake(ledger.now + ledger.limits.eviction_grace)
    return (Reason.REPLACING, f"a pod of {workload} is being replaced"), 1


def _fresh_answer(ledger: Ledger, workload: str) -> Answer | None:
    answer = ledger.snapshot.answers.get(workload)
    if answer is None:
        return None
    refused = answer.verdict == "refused"
    life = ledger.limits.refused_retry if refused else ledger.limits.answer_ttl
    return answer if ledger.now < answer.at + life else None


def _ordinal(replica: Replica) -> tuple[int, str]:
    """Order pods so that a StatefulSet's highest comes first to its end, as in its own updates."""
    found = re.search(r"-(\d+)$", replica.name)
    return (int(found[1]) if found else -1, replica.name)
