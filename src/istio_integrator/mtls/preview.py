"""Who could no longer reach whom with `mtls=strict`, and what stays open; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from istio_integrator import texts
from istio_integrator.messages import Message, Said, Severity
from istio_integrator.mtls.exceptions import OPTION
from istio_integrator.mtls.plan import Plan


def judge(plan: Plan) -> Iterable[Message]:
    """Say of objects alone who is cut off, and what stays open."""
    scene = plan.scene
    yield from plan.victims
    yield from (dataclasses.replace(each, severity=Severity.DOUBT) for each in scene.tenants)
    for named in scene.unmatched:
        yield Said.MTLS_EXCEPTION_AWAITED(option=OPTION, name=named)
    for workload in plan.outsiders:
        yield Said.CALLER_OUTSIDE_MESH(
            workload=workload, port="what it calls", application=scene.application
        )
    callers: dict[str, list[str]] = {}
    for need in scene.needs:
        if need.selector:
            callers.setdefault(f"{need.workload}:{need.port}", []).append(need.caller)
    for port, found in callers.items():
        yield Said.PORT_EXCEPTED(port=port, callers=texts.listed(found))
    opening: dict[str, list[str]] = {}
    for member in scene.members:
        decided = plan.decide(dict(member.labels))
        if decided.policy and not decided.is_strict:
            opening.setdefault(decided.policy.reference, []).append(member.workload)
    for reference, workloads in sorted(opening.items()):
        yield Said.POLICY_KEEPS_OPEN(policy=reference, workloads=texts.listed(workloads))


def forwarded(plan: Plan, routed: Collection[str]) -> Iterable[Message]:
    """Name the calls that would be refused if an application forwards the Host of a browser.

    Args:
        plan: What is decided.
        routed: The Services that routes of the gateway lead to.
    """
    scene = plan.scene
    receiving = {
        each.name
        for each in scene.services
        if each.name in routed and any(each.selector <= one.labels for one in scene.members)
    }
    if called := [port for service, port in scene.by_host if receiving - {service}]:
        yield Said.CALLS_BY_HOST(
            callers=", ".join(sorted(receiving)),
            target=", ".join(called),
            remedy=f"add what it calls to juju config {scene.application} {OPTION}",
        )
