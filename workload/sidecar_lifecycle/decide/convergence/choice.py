"""Choice of the pods to replace, and the reason why each other pod waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from integrator_contract import service
from integrator_contract.answers import Trouble
from integrator_contract.names import PROXY, ROOT_CERTIFICATE
from integrator_contract.reasons import Reason

from .facts import Replica, Trial
from .memory import Hold, Round
from .plan import LONG_WAIT, READY_FOR, TRIAL_TTL, UNREADY_FOR, EvictionPlan, Look, Moves, Wait
from .review import review

_KINDS = ("Deployment", "StatefulSet", "DaemonSet")
"""Kinds of workloads; the first can spare a pod most easily."""
_JUDGED = (Reason.STILL_NO_SIDECAR, Reason.SIDECAR_AGAIN, Reason.WRONG_ORDER)
"""Reasons of holds after a replacement with the same fault."""
_LASTING = (Reason.NOT_READY, Reason.NOT_SETTLED, Reason.CHANGING, Reason.ORDERED_READY)
"""Reasons of waits that may never end."""
_NO_DRY_RUN = (Reason.NOT_SERVED, Reason.MESH_DOWN)
"""Obstacles because of which a dry run cannot show a right replacement."""


def decide(look: Look) -> Moves:
    """Decide the next actions."""
    plan = EvictionPlan(look)
    review(plan)
    _prune_request(plan)
    _choose_evictions(plan)
    return plan.make_moves()


def _choose_evictions(plan: EvictionPlan) -> None:
    candidates = _list_candidates(plan)
    obstacle = _find_obstacle(plan) if candidates else None
    victims: list[Replica] = []
    for workload, replicas in candidates.items():
        victim, wait = _choose_victim(plan, workload, replicas)
        if victim is not None:
            victims.append(victim)
            wait = obstacle or (Reason.QUEUED, "other workloads come first")
        for each in replicas:
            plan.waits[each.uid] = wait
    if obstacle is not None:
        victims = [each for each in victims if each.lost and obstacle[0] not in _NO_DRY_RUN]
    _take_wave(plan, victims)
    for victim in victims:
        for each in candidates[victim.workload]:
            plan.waits[each.uid] = plan.waits[victim.uid]
    _report_lasting_waits(plan, candidates)
    _report_lost_pods(plan)


def _report_lasting_waits(plan: EvictionPlan, candidates: dict[str, list[Replica]]) -> None:
    """Remember since when workloads wait, and name those that wait for long."""
    for workload, replicas in candidates.items():
        reason, message = plan.waits[replicas[0].uid]
        if reason not in _LASTING:
            continue
        since = plan.waiting[workload] = plan.look.memory.waiting.get(workload, plan.look.now)
        if plan.look.now < since + LONG_WAIT:
            continue
        leaving = plan.look.find_terminating(workload)
        is_graceful = leaving is not None and plan.look.now < leaving.ends_by
        passing = is_graceful or reason == Reason.NOT_SETTLED.value
        # Without a pod the operator is told to force the eviction, or to look at the workload.
        is_shown = reason == Reason.ORDERED_READY.value or not replicas[0].faulty
        unready = plan.look.find_unready(workload) if is_shown else None
        pod = unready.name if unready is not None else ""
        plan.troubles.append(Trouble(workload, reason, message, pod, passing=passing))


def _report_lost_pods(plan: EvictionPlan) -> None:
    """Name pods whose first container is wrong, and whose workload has no hold that tells so."""
    for each in plan.look.replicas:
        reason, _ = plan.waits.get(each.uid, ("", ""))
        if each.fault == "order" and reason and each.workload not in plan.holds:
            is_asked = reason != Reason.NOT_ASKED.value
            message = f"{each.name}: {each.message}" if is_asked else each.message
            trouble = Trouble(each.workload, each.reason, message, each.name, passing=is_asked)
            plan.troubles.append(trouble)


def _prune_request(plan: EvictionPlan) -> None:
    """Keep the pods of an operator's request that can still be replaced."""
    request = plan.look.memory.request
    if request is None:
        return
    judged = {workload for workload, hold in plan.holds.items() if hold.until is None}
    plan.requested = frozenset(
        each.uid
        for each in plan.look.replicas
        if each.uid in request.uids
        and each.fixable
        and not each.terminating
        and each.workload not in judged
    )


def _list_candidates(plan: EvictionPlan) -> dict[str, list[Replica]]:
    """Return the pods to replace, by workload; note the reasons for the other pods."""
    found: dict[str, list[Replica]] = defaultdict(list)
    for replica in plan.look.replicas:
        asked = replica.uid in plan.requested
        if not asked and not (replica.faulty and replica.fixable):
            continue
        is_automatic = plan.look.mode == "auto" and replica.reason != Reason.EXCLUDED.value
        hold = plan.holds.get(replica.workload)
        if hold is not None and (hold.until is None or plan.look.now < hold.until):
            plan.waits[replica.uid] = (hold.reason, hold.message)
        elif asked or (is_automatic and not replica.forbids):
            found[replica.workload].append(replica)
        elif replica.reason != Reason.EXCLUDED.value:
            mode = f"restart-pods is {plan.look.mode}"
            why = f"it has {replica.forbids}" if is_automatic else mode
            message = f"{why}: run restart-uninjected"
            plan.waits[replica.uid] = (Reason.NOT_ASKED, message)
    return found


def _find_obstacle(plan: EvictionPlan) -> Wait | None:
    """Return the reason not to evict any pod of the model now, if any."""
    if not plan.look.is_served:
        message = f"istiod has not written the ConfigMap {ROOT_CERTIFICATE} into this namespace"
        plan.troubles.append(Trouble("", Reason.NOT_SERVED, message))
        return Reason.NOT_SERVED, message
    for trial in plan.look.trials.values():
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
    return plan.look.now < trial.at + TRIAL_TTL


def _name_required_proof(plan: EvictionPlan, replica: Replica) -> str:
    """Return the proof that one pod has to give before similar pods are replaced."""
    request = plan.look.memory.request
    if replica.in_mesh and request is not None:
        return f"request {request.id}"
    return plan.look.mesh


def _is_proven(plan: EvictionPlan, replica: Replica) -> bool:
    # A pod that leaves the mesh returns to its state before the mesh, and a lost pod has none.
    is_exempt = replica.fault == "unwanted" or replica.lost
    return is_exempt or _name_required_proof(plan, replica) in plan.proven


def _choose_victim(
    plan: EvictionPlan, workload: str, replicas: list[Replica]
) -> tuple[Replica | None, Wait]:
    """Return the pod of a workload that may be evicted now, or the reason to wait."""
    lost = [each for each in replicas if each.lost]
    if (change := _find_unfinished_change(plan, workload, is_lost=bool(lost))) is not None:
        return None, change
    is_proven = _is_proven(plan, replicas[0])
    serving, wait = _choose_serving_victim(plan, workload, replicas)
    broken = [each for each in replicas if _is_broken(plan, each, is_proven=is_proven)]
    comes_first = serving is not None or wait[0] == Reason.NOT_SETTLED.value
    victim = serving
    if lost or (broken and (is_proven or not comes_first)):
        # An ordered StatefulSet creates no pod before those of lower ordinals are Ready.
        choose = min if workload in plan.look.ordered else max
        victim = choose(lost or broken, key=_rank_by_ordinal)
    if victim is not None and (
        first := plan.look.find_unready_predecessor(workload, victim.ordinal)
    ):
        message = f"{workload} would recreate {victim.name} only after {first} is Ready"
        return None, (Reason.ORDERED_READY, message)
    return victim, wait


def _find_unfinished_change(plan: EvictionPlan, workload: str, *, is_lost: bool) -> Wait | None:
    """Return the change of a workload that has to end first, if any."""
    if workload in plan.rounds:
        return Reason.REPLACING, f"a pod of {workload} is being replaced"
    if (leaving := plan.look.find_terminating(workload)) is not None:
        return Reason.CHANGING, plan.look.describe_termination(leaving)
    if plan.look.desired.get(workload, 0) == 0:
        return Reason.CHANGING, f"{workload} is going away"
    if plan.look.lacks_pods(workload) and not is_lost:
        return Reason.CHANGING, plan.look.describe_missing(workload)
    return None


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
    return plan.look.now >= since + patience


def _choose_serving_victim(
    plan: EvictionPlan, workload: str, replicas: list[Replica]
) -> tuple[Replica | None, Wait]:
    serving = [each for each in replicas if each.ready]
    forced = [each for each in serving if _is_forced(plan, each)]
    unready = plan.look.find_unready(workload)
    if unready is not None and not forced:
        return None, (Reason.NOT_READY, f"{unready.name} is not Ready, so {workload} waits")
    serving = forced or serving
    settled = [each for each in serving if (each.ready_since or 0) + READY_FOR <= plan.look.now]
    if not settled:
        return None, (Reason.NOT_SETTLED, f"Ready for less than {READY_FOR:.0f} s")
    return max(settled, key=_rank_by_ordinal), ("", "")


def _take_wave(plan: EvictionPlan, victims: list[Replica]) -> None:
    """Take the pods of this wave, up to max_unavailable; the first pod is replaced alone."""
    running = sum(desired > 0 for desired in plan.look.desired.values())
    most = service.resolve_budget(plan.look.max_unavailable, running)
    left = most
    for victim in sorted(victims, key=lambda each: _rank_victim(plan, each)):
        is_proven = _is_proven(plan, victim)
        is_alone = victim.fault == "unwanted" or not is_proven
        if not is_proven:
            if (judged := _find_earlier_hold(plan, victim)) is not None:
                plan.waits[victim.uid] = (Reason.FIRST_POD, judged.message)
                continue
            if not victim.ready and _is_coming_up(plan, victims):
                plan.waits[victim.uid] = (Reason.NOT_READY, "a Ready pod is replaced first")
                continue
        if left == 0 or (is_alone and left < most):
            continue
        plan.waits[victim.uid], is_taken = _try_or_evict_pod(plan, victim)
        if is_taken:
            left = 0 if is_alone else left - 1


def _find_earlier_hold(plan: EvictionPlan, victim: Replica) -> Hold | None:
    request = plan.look.memory.request
    since = request.at if victim.in_mesh and request is not None else 0.0
    for workload, hold in plan.holds.items():
        # The status shows no hold of a workload without pods, so that nobody would see the cause.
        is_running = plan.look.desired.get(workload, 0) > 0
        if is_running and hold.until is None and hold.reason in _JUDGED and hold.since >= since:
            return hold
    return None


def _is_coming_up(plan: EvictionPlan, victims: Iterable[Replica]) -> bool:
    """Tell whether a Ready pod can be taken instead, now or soon."""
    is_soon = any(reason == Reason.NOT_SETTLED.value for reason, _ in plan.waits.values())
    return is_soon or any(each.ready and each.fault for each in victims)


def _rank_victim(plan: EvictionPlan, victim: Replica) -> tuple[bool, bool, int, str]:
    kind = victim.workload.partition("/")[0]
    spare = not victim.ready or plan.look.count_ready(victim.workload) > 1
    return victim.fault != "unwanted", not spare, _KINDS.index(kind), victim.workload


def _try_or_evict_pod(plan: EvictionPlan, victim: Replica) -> tuple[Wait, bool]:
    """Evict a pod if a trial shows that its replacement would be right; else ask for a trial.

    Returns why the workload's pods wait, and whether this uses a slot of the wave.
    """
    workload = victim.workload
    trial = plan.look.trials.get(workload)
    if trial is None or not _is_fresh(plan, trial):
        plan.ask.append(victim)
        return (Reason.QUEUED, "asking whether its replacement would be right"), True
    is_insisted = _is_forced(plan, victim) and trial.reason is Reason.REPLACEMENT_REFUSED
    if not trial.is_right_for(victim) and not is_insisted:
        reason = trial.reason or Reason.SIDECAR_AGAIN
        message = trial.message or "its replacement would have a sidecar, too"
        plan.hold_workload(victim, reason, message)
        return (reason, message), False
    # Beside a Ready pod only a forced eviction finds ailments: its replacement may have the same.
    pods = plan.look.list_live_pods(workload) if victim.ready else [victim]
    ailments = [ailment for each in pods for ailment in each.ailments]
    plan.evict.append(victim)
    plan.rounds[workload] = Round(
        uid=victim.uid,
        known=tuple(sorted(each.uid for each in plan.look.list_pods(workload))),
        was_ready=victim.ready,
        ready_before=plan.look.count_ready(workload),
        since=plan.look.now,
        fingerprint=plan.look.fingerprint,
        broken=tuple(sorted({each.container for each in ailments} - {PROXY})),
        proves="" if _is_proven(plan, victim) else _name_required_proof(plan, victim),
    )
    return (Reason.REPLACING, f"a pod of {workload} is being replaced"), True


def _is_forced(plan: EvictionPlan, replica: Replica) -> bool:
    request = plan.look.memory.request
    return request is not None and request.force and replica.uid in plan.requested


def _rank_by_ordinal(replica: Replica) -> tuple[int, str]:
    """Order pods so that a StatefulSet's highest ordinal goes first, as in its own updates."""
    return replica.ordinal, replica.name
