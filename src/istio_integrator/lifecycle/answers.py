"""Messages about the workload's counts, without I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from integrator_contract.answers import Summary, Trouble
from integrator_contract.reasons import Reason
from istio_integrator import error_messages
from istio_integrator.facts import Facts
from istio_integrator.kube import errors
from istio_integrator.messages import Message, Severity, Template
from istio_integrator.situation.situation import Situation

_MORE_THAN_COUNTS = (Reason.REPLACEMENT_STARTING, Reason.WRONG_ORDER)
"""Reasons of waits whose message is more useful than the number of pods to be replaced."""

_FORCE = "restart-uninjected force=true"


def report_progress(
    summary: Summary, facts: Facts, *, is_automatic: bool = False
) -> Iterable[Message]:
    """Turn the workload's counts into messages.

    If pods are replaced automatically, the message has the command and the option that stop it.
    """
    situation, mesh = facts.situation, facts.mesh
    application = situation.application
    pods = f"{summary.in_mesh}/{summary.eligible}"
    option = "restart-pods=manual"
    stop = {
        "command": f"juju config {application} {option}",
        "more": f"{option} stops the restarts",
    }
    nothing = {"command": "", "more": ""}
    blocking = [each for each in summary.troubles if not each.passing]
    passing = [each for each in summary.troubles if each.passing]
    for trouble in blocking[:1]:
        yield _report_trouble(trouble, len(blocking) - 1, situation)
    for trouble in passing[:1]:
        is_named = trouble.pod or trouble.workload in trouble.message
        subject = "" if is_named else f"{trouble.workload} waits: "
        hint = stop if trouble.pod and is_automatic else nothing
        yield Template.PODS_WAIT(pods=pods, problem=f"{subject}{trouble.message}", **hint)
    # Juju would show the maintenance message instead of the waiting one.
    is_told = any(each.reason in _MORE_THAN_COUNTS for each in passing)
    if summary.converging and not is_told:
        hint = stop if is_automatic else nothing
        said = Template.PODS_TO_BE_REPLACED(pods=pods, count=summary.converging, **hint)
        if mesh is not None and not mesh.alive:
            # Juju prefers maintenance to waiting, which would hide that istiod is down.
            said = dataclasses.replace(said, severity=Severity.WAITING)
        yield said
    elif summary.proposed:
        is_forbidden = situation.config.restart_pods == "auto"
        why = f", {summary.proposed} forbid eviction" if is_forbidden else ""
        yield Template.PODS_TO_RESTART(pods=pods, why=why, application=application)
    elif summary.in_mesh < summary.eligible and not summary.troubles:
        left = summary.eligible - summary.in_mesh
        yield Template.PODS_TO_BE_REPLACED(pods=pods, count=left, **nothing)
    reported = f", {summary.reported} need a restart by hand" if summary.reported else ""
    outside = (
        f", {summary.unwanted} outside the mesh with a sidecar: restart-uninjected"
        if summary.unwanted
        else ""
    )
    old = f", {summary.stale} with an old proxy: restart-stale" if summary.stale else ""
    yield Template.PODS_IN_MESH(pods=pods, details=f"{reported}{outside}{old}")


def _report_trouble(trouble: Trouble, others: int, situation: Situation) -> Message:
    """Name the blocked workload, and the command that shows or fixes the cause."""
    application, model = situation.application, situation.model
    if trouble.reason == Reason.FORBIDDEN.value:
        error = errors.ForbiddenError(trouble.message)
        return error_messages.explain_error(error, application=application)
    command = f"juju run {application}/leader list-uninjected"
    if trouble.reason == Reason.NOT_SERVED.value:
        command = f"kubectl get namespace {model} --show-labels"
    elif trouble.reason == Reason.WRONG_ORDER.value and trouble.pod:
        command = f"juju run {application}/leader restart-uninjected"
    elif trouble.pod:
        command = f"kubectl -n {model} describe pod {trouble.pod}"
    elif trouble.reason == Reason.NOT_READY.value:
        command = f"juju run {application}/leader {_FORCE}"
    elif trouble.reason in (Reason.CHANGING.value, Reason.REPLACEMENT_HANGS.value):
        command = f"kubectl -n {model} describe {trouble.workload}"
    about = f"{trouble.workload}: " if trouble.workload not in trouble.message else ""
    more = f", and {others} more" if others else ""
    if command.endswith(_FORCE):
        # The command is so long that the status shows another one.
        more += f" ({_FORCE} ends this)"
    return Template.PODS_HANG(problem=f"{about}{trouble.message}{more}", command=command)
