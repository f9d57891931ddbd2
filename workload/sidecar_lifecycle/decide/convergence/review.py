"""Review of the remembered holds and the rounds in progress."""

from __future__ import annotations

import msgspec

from integrator_contract.answers import Trouble
from integrator_contract.reasons import Reason

from .facts import Replica
from .memory import Hold, Round
from .plan import EVICTION_GRACE, FIRST_STAYS, LONG_WAIT, EvictionPlan

_REMEDY = "fix it, then run restart-uninjected, or annotate it with restart-pods=disabled"

_AGAIN = {
    "missing": (Reason.STILL_NO_SIDECAR, "has no sidecar either"),
    "unwanted": (Reason.SIDECAR_AGAIN, "has a sidecar again"),
    "order": (Reason.WRONG_ORDER, "has its containers in the wrong order again"),
}
"""Reason and message for a replacement with the same fault, by fault."""


def review(plan: EvictionPlan) -> None:
    """Drop the remembered holds and rounds that have ended."""
    for workload, hold in plan.look.memory.holds.items():
        if _is_lifted(plan, workload, hold):
            del plan.holds[workload]
    for workload in sorted(plan.look.memory.rounds):
        _review_round(plan, workload)


def _is_lifted(plan: EvictionPlan, workload: str, hold: Hold) -> bool:
    """Tell whether a change of the workload or the mesh ends the hold."""
    live = plan.look.list_live_pods(workload)
    faulty = [each for each in live if each.faulty]
    request = plan.look.memory.request
    asked = request.uids if request is not None and request.at > hold.since else ()
    if (
        any(each.uid in asked for each in live)
        or workload not in plan.look.desired
        or (hold.fingerprint and hold.fingerprint != plan.look.fingerprint)
        or (hold.revision and any(each.revision != hold.revision for each in faulty))
    ):
        return True
    if hold.until is None:
        return bool(live) and not faulty
    # The hold stays during another try, so that the status does not change each time.
    return plan.look.now >= hold.until and (
        not faulty or plan.look.find_terminating(workload) is not None
    )


def _review_round(plan: EvictionPlan, workload: str) -> None:
    current = plan.rounds[workload]
    live = plan.look.list_live_pods(workload)
    gone = workload not in plan.look.desired
    if gone or (live and not any(each.fixable for each in live)):
        del plan.rounds[workload]
        return
    victim = next(
        (each for each in plan.look.list_pods(workload) if each.uid == current.uid), None
    )
    if victim is not None and not victim.terminating:
        # Its eviction is in progress, or it never happened.
        if plan.look.now >= current.since + EVICTION_GRACE:
            del plan.rounds[workload]
        return
    judged = _judge_replacements(plan, workload)
    is_over = victim is None or victim.ended
    if judged and is_over and _is_restored(plan, workload):
        if current.proves and plan.list_replacements(workload):
            plan.proven.add(current.proves)
        del plan.rounds[workload]
    else:
        _report_round(plan, workload, victim)


def _judge_replacements(plan: EvictionPlan, workload: str) -> bool:
    """Judge replacements with a fault; return False while a trial is pending."""
    current = plan.rounds[workload]
    bad = [each for each in plan.list_replacements(workload) if each.faulty]
    if not bad:
        return True
    if current.fingerprint == plan.look.fingerprint:
        trial = plan.look.trials.get(workload)
        if trial is None or trial.uid not in {each.uid for each in bad}:
            plan.ask.append(bad[0])
            return False
        if trial.is_right_for(bad[0]):
            reason, what = _AGAIN[bad[0].fault]
            message = f"{bad[0].name}, created in place of an evicted pod, {what}: {_REMEDY}"
            plan.hold_workload(bad[0], reason, message, is_lasting=True)
        elif trial.reason is Reason.INJECTOR_SKIPS:
            plan.hold_workload(bad[0], trial.reason, trial.message)
    # From now on these replacements count as old pods, and the round waits only for readiness.
    # This is also so if the injector was down when they were created.
    uids = tuple(each.uid for each in bad)
    plan.rounds[workload] = msgspec.structs.replace(current, known=current.known + uids)
    return True


def _is_restored(plan: EvictionPlan, workload: str) -> bool:
    """Tell whether the workload has its desired pods and its earlier Ready pods again."""
    current = plan.rounds[workload]
    desired = plan.look.desired[workload]
    if len(plan.look.list_live_pods(workload)) < desired:
        return False
    if current.was_ready and plan.look.count_ready(workload) < min(desired, current.ready_before):
        return False
    return all(_is_successful(plan, current, each) for each in plan.list_replacements(workload))


def _is_successful(plan: EvictionPlan, current: Round, replica: Replica) -> bool:
    """Tell whether a replacement is Ready, or no worse than a pod that was not Ready."""
    if replica.ready_since is not None:
        return replica.ready_since + (FIRST_STAYS if current.proves else 0) <= plan.look.now
    broken = {each.container for each in replica.ailments}
    return bool(broken or not current.was_ready) and broken <= set(current.broken)


def _report_round(plan: EvictionPlan, workload: str, victim: Replica | None) -> None:
    current = plan.rounds[workload]
    is_late = plan.look.now >= current.since + LONG_WAIT
    late = f"after {round(LONG_WAIT / 60)} minutes"
    new = next((each for each in plan.list_replacements(workload) if not each.ready), None)
    ailments = new.ailments if new else ()
    ailment = next((each for each in ailments if each.container not in current.broken), None)
    why = f": {ailment}" if ailment else ""
    pod, passing = new.name if new else "", False
    is_refused = workload in plan.look.refused
    if ailment and ailment.hangs:
        message = f"the replacement {pod} cannot start{why}"
    elif plan.look.lacks_pods(workload) and (is_refused or (victim is None and new is None)):
        message, pod = (
            plan.look.describe_missing(workload),
            plan.look.find_unready_predecessor(workload),
        )
        passing = not (is_refused or is_late)
        if passing and not pod:
            return
    elif new is not None:
        message, passing = f"waiting for {pod} to be Ready", not is_late
        if is_late:
            message = f"the replacement {pod} is not Ready {late}{why}"
    elif victim is not None and is_late:
        pod, passing = victim.name, plan.look.now < victim.ends_by
        message = f"the evicted pod {plan.look.describe_termination(victim)}"
    else:
        return
    reason = Reason.REPLACEMENT_STARTING if passing else Reason.REPLACEMENT_HANGS
    plan.troubles.append(Trouble(workload, reason, message, pod, passing=passing))
