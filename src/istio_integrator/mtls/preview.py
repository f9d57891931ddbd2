"""Who could no longer reach whom with `mtls=strict`, and what stays open; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from istio_integrator import findings, texts
from istio_integrator.findings import Finding
from istio_integrator.mtls.exceptions import OPTION
from istio_integrator.mtls.plan import Plan


def judge(plan: Plan) -> Iterable[Finding]:
    """Say of objects alone who is cut off, and what stays open."""
    scene = plan.scene
    for victim in plan.victims:
        yield findings.broken(victim.seen, victim.remedy)
    for each in scene.tenants:
        yield findings.doubtful(each.seen, each.remedy)
    for named in scene.unmatched:
        yield findings.doubtful(
            f"{OPTION} has {named}, which is no Service or workload in the mesh with a port that "
            "is known",
            "write a port, or correct the name",
        )
    for workload in plan.outsiders:
        yield findings.doubtful(
            f"{workload} has no sidecar: members of the mesh would not answer it",
            f"let it join, or {scene.how_to_except('what it calls')}",
        )
    callers: dict[str, list[str]] = {}
    for need in scene.needs:
        if need.selector:
            callers.setdefault(f"{need.workload}:{need.port}", []).append(need.caller)
    for port, found in callers.items():
        yield findings.fine(f"{port} stays open to plain text for {texts.listed(found)}")
    opening: dict[str, list[str]] = {}
    for member in scene.members:
        decided = plan.decide(dict(member.labels))
        if decided.policy and not decided.is_strict:
            opening.setdefault(decided.policy.reference, []).append(member.workload)
    for reference, workloads in sorted(opening.items()):
        yield findings.fine(
            f"{reference}, which this charm did not make, keeps {texts.listed(workloads)} open "
            "to plain text"
        )


def forwarded(plan: Plan, routed: Collection[str]) -> Iterable[Finding]:
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
        yield findings.doubtful(
            f"{', '.join(sorted(receiving))} could no longer call {', '.join(called)} with the "
            "Host of a browser: a sidecar that does not know the Host sends plain text",
            f"if one does: {scene.how_to_except('what it calls')}",
        )


def unknown(plan: Plan) -> Finding:
    """Name the callers of which no object of the cluster tells."""
    return findings.doubtful(
        "calls in plain text from outside of the model are not known, such as of a Prometheus",
        'query istio_requests_total{reporter="destination",connection_security_policy="none"} and '
        f"{plan.scene.how_to_except('what is called')}",
    )
