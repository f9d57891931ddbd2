"""Choice of the pods to replace, and the reason why each other pod waits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from integrator_contract import service
from integrator_contract.answers import Trouble
from integrator_contract.names import PROXY, ROOT_CERTIFICATE
from integrator_contract.reasons import Reason

from .facts import Replica, Trial
from .memory import Hold, Round
from .plan import READY_FOR, TRIAL_TTL, UNREADY_FOR, EvictionPlan
from .review import review

_KINDS = ("Deployment", "StatefulSet", "DaemonSet")
"""Kinds of workloads; the first can spare a pod most easily."""
_JUDGED = (Reason.STILL_NO_SIDECAR, Reason.SIDECAR_AGAIN, Reason.WRONG_ORDER)
"""Reasons of holds after a replacement with the same fault."""
Wait = tuple[str, str]
"""A reason and a message."""


def decide(plan: EvictionPlan) -> EvictionPlan:
    """Decide the next actions from the plan's model and memory."""
    review(plan)
    _review_request(plan)
    _choose(plan)
    return plan


def _choose(plan: EvictionPlan) -> None:
    candidates = _candidates(plan)
    obstacle = _obstacle(plan) if candidates else None
    victims: list[Replica] = []
    for workload, replicas in candidates.items():
        victim, wait = _victim(plan, workload, replicas)
        if victim is not None:
            victims.append(victim)
            wait = obstacle or (Reason.QUEUED, "other workloads come first")
        for each in replicas:
            plan.waits[each.uid] = wait
    if obstacle is None:
        _take(plan, victims)
        for victim in victims:
            for each in candidates[victim.workload]:
                plan.waits[each.uid] = plan.waits[victim.uid]


def _review_request(plan: EvictionPlan) -> None:
    """Keep the pods of an operator's request that can still be replaced."""
    request = plan.remembered.request
    if request is None:
        return
    judged = {workload for workload, hold in plan.holds.items() if hold.until is None}
    plan.requested = frozenset(
        each.uid
        for each in plan.replicas
        if each.uid in request.uids
        and each.fixable
        and not each.terminating
        and each.workload not in judged
    )


def _candidates(plan: EvictionPlan) -> dict[str, list[Replica]]:
    """Return the pods to replace, by workload; note the reasons for the other pods."""
    found: dict[str, list[Replica]] = defaultdict(list)
    for replica in plan.replicas:
        asked = replica.uid in plan.requested
        if not asked and not (replica.faulty and replica.fixable):
            continue
        hold = plan.holds.get(replica.workload)
        if hold is not None and (hold.until is None or plan.now < hold.until):
            plan.waits[replica.uid] = (hold.reason, hold.message)
        elif asked or (plan.mode == "auto" and replica.reason != Reason.EXCLUDED.value):
            found[replica.workload].append(replica)
        elif replica.reason != Reason.EXCLUDED.value:
            message = f"restart-pods is {plan.mode}: run restart-uninjected"
            plan.waits[replica.uid] = (Reason.NOT_ASKED, message)
            if replica.fault == "order":
                trouble = Trouble(replica.workload, replica.reason, replica.message, replica.name)
                plan.troubles.append(trouble)
    return found


def _obstacle(plan: EvictionPlan) -> Wait | None:
    """Return the reason not to evict any pod of the model now, if any."""
    if not plan.is_served:
        message = f"istiod has not written the ConfigMap {ROOT_CERTIFICATE} into this namespace"
        plan.troubles.append(Trouble("", Reason.NOT_SERVED, message))
        return Reason.NOT_SERVED, message
    for trial in plan.trials.values():
        if trial.reason is Reason.MESH_DOWN and _is_fresh(plan, trial):
            return Reason.MESH_DOWN, trial.message
    if plan.troubles:
        worst = min(plan.troubles, key=lambda each: each.passing)
        return worst.reason, worst.message
    for workload, current in plan.rounds.items():
        reason = Reason.FIRST_POD if current.proves else Reason.QUEUED
        return reason, f"a pod of {workload} is being replaced"
    return None


def _is_fresh(plan: EvictionPlan, trial: Trial) -> bool:
    return plan.now < trial.at + TRIAL_TTL


def _proof(plan: EvictionPlan, replica: Replica) -> str:
    """Return the proof that one pod has to give before similar pods are replaced."""
    request = plan.remembered.request
    if replica.in_mesh and request is not None:
        return f"request {request.id}"
    return plan.mesh


def _is_proven(plan: EvictionPlan, replica: Replica) -> bool:
    # A pod that leaves the mesh returns to its state before the mesh.
    return replica.fault == "unwanted" or _proof(plan, replica) in plan.proven


def _victim(
    plan: EvictionPlan, workload: str, replicas: list[Replica]
) -> tuple[Replica | None, Wait]:
    """Return the pod of a workload that may be evicted now, or the reason to wait."""
    if workload in plan.rounds:
        return None, (Reason.REPLACING, f"a pod of {workload} is being replaced")
    if plan.is_changing(workload):
        return None, (Reason.CHANGING, f"a pod of {workload} is terminating")
    if plan.desired.get(workload, 0) == 0:
        return None, (Reason.CHANGING, f"{workload} is going away")
    is_proven = _is_proven(plan, replicas[0])
    serving, wait = _serving(plan, workload, replicas)
    broken = [each for each in replicas if _is_broken(plan, each, is_proven=is_proven)]
    comes_first = serving is not None or wait[0] == Reason.NOT_SETTLED.value
    if broken and (is_proven or not comes_first):
        return max(broken, key=_ordinal), ("", "")
    return serving, wait


def _is_broken(plan: EvictionPlan, replica: Replica, *, is_proven: bool) -> bool:
    """Tell whether the pod can be evicted without harm to the application."""
    if replica.ready:
        return False
    since, patience = replica.unready_since, UNREADY_FOR
    if any(each.reason == "CrashLoopBackOff" for each in replica.ailments):
        # Such a pod is repeatedly Ready for a moment.
        since, patience = replica.created, 0.0 if is_proven else patience
    if replica.uid in plan.requested:
        since, patience = replica.created, min(patience, READY_FOR)
    return plan.now >= since + patience


def _serving(
    plan: EvictionPlan, workload: str, replicas: list[Replica]
) -> tuple[Replica | None, Wait]:
    serving = [each for each in replicas if each.ready]
    if not serving:
        return None, (Reason.NOT_READY, "it is not Ready")
    for each in plan.live(workload):
        if each.in_mesh and not each.ready:
            return None, (Reason.NOT_READY, f"{each.name}, which is in the mesh, is not Ready")
    settled = [each for each in serving if (each.ready_since or 0) + READY_FOR <= plan.now]
    if not settled:
        return None, (Reason.NOT_SETTLED, f"Ready for less than {READY_FOR:.0f} s")
    if plan.desired[workload] > 1 and plan.ready(workload) < 2:
        return None, (Reason.LAST_READY_REPLICA, f"it is the only Ready pod of {workload}")
    return max(settled, key=_ordinal), ("", "")


def _take(plan: EvictionPlan, victims: list[Replica]) -> None:
    """Take the pods of this wave, up to max_unavailable; the first pod is replaced alone."""
    running = sum(desired > 0 for desired in plan.desired.values())
    most = service.at_most(plan.max_unavailable, running)
    left = most
    for victim in sorted(victims, key=lambda each: _rank(plan, each)):
        is_proven = _is_proven(plan, victim)
        is_alone = victim.fault == "unwanted" or not is_proven
        if not is_proven:
            if (judged := _judged(plan, victim)) is not None:
                plan.waits[victim.uid] = (Reason.FIRST_POD, judged.message)
                continue
            if not victim.ready and _is_coming_up(plan, victims):
                plan.waits[victim.uid] = (Reason.NOT_READY, "a Ready pod is replaced first")
                continue
        if left == 0 or (is_alone and left < most):
            continue
        plan.waits[victim.uid], is_taken = _proceed(plan, victim)
        if is_taken:
            left = 0 if is_alone else left - 1


def _judged(plan: EvictionPlan, victim: Replica) -> Hold | None:
    request = plan.remembered.request
    since = request.at if victim.in_mesh and request is not None else 0.0
    for workload, hold in plan.holds.items():
        # The status shows no hold of a workload without pods, so that nobody would see the cause.
        is_running = plan.desired.get(workload, 0) > 0
        if is_running and hold.until is None and hold.reason in _JUDGED and hold.since >= since:
            return hold
    return None


def _is_coming_up(plan: EvictionPlan, victims: Iterable[Replica]) -> bool:
    """Tell whether a Ready pod can be taken instead, now or soon."""
    is_soon = any(reason == Reason.NOT_SETTLED.value for reason, _ in plan.waits.values())
    return is_soon or any(each.ready and each.fault for each in victims)


def _rank(plan: EvictionPlan, victim: Replica) -> tuple[bool, bool, int, str]:
    kind = victim.workload.partition("/")[0]
    spare = not victim.ready or plan.ready(victim.workload) > 1
    return victim.fault != "unwanted", not spare, _KINDS.index(kind), victim.workload


def _proceed(plan: EvictionPlan, victim: Replica) -> tuple[Wait, bool]:
    """Evict a pod if a trial shows that its replacement would be right; else ask for a trial.

    Returns why the workload's pods wait, and whether this uses a slot of the wave.
    """
    workload = victim.workload
    trial = plan.trials.get(workload)
    if trial is None or not _is_fresh(plan, trial):
        plan.ask.append(victim)
        return (Reason.QUEUED, "asking whether its replacement would be right"), True
    request = plan.remembered.request
    is_forced = request is not None and request.force and victim.uid in plan.requested
    is_insisted = is_forced and trial.reason is Reason.REPLACEMENT_REFUSED
    if not trial.is_right_for(victim) and not is_insisted:
        reason = trial.reason or Reason.SIDECAR_AGAIN
        message = trial.message or "its replacement would have a sidecar, too"
        plan.hold(victim, reason, message)
        return (reason, message), False
    plan.evict.append(victim)
    plan.rounds[workload] = Round(
        uid=victim.uid,
        known=tuple(sorted(each.uid for each in plan.workloads[workload])),
        was_ready=victim.ready,
        ready_before=plan.ready(workload),
        since=plan.now,
        fingerprint=plan.fingerprint,
        broken=tuple(sorted({each.container for each in victim.ailments} - {PROXY})),
        proves="" if _is_proven(plan, victim) else _proof(plan, victim),
    )
    return (Reason.REPLACING, f"a pod of {workload} is being replaced"), True


def _ordinal(replica: Replica) -> tuple[int, str]:
    """Order pods so that a StatefulSet's highest ordinal goes first, as in its own updates."""
    found = re.search(r"-(\d+)$", replica.name)
    return (int(found[1]) if found else -1, replica.name)
