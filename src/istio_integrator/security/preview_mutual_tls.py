"""Who could no longer reach whom with `mtls=strict`, and what stays open; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from istio_integrator import findings
from istio_integrator.findings import Finding
from istio_integrator.ingress import observed
from istio_integrator.security import exceptions, mutual_tls_plan

OPTION = "mtls"


def judge(situation: mutual_tls_plan.Situation, plan: mutual_tls_plan.Plan) -> Iterable[Finding]:
    """Say of objects alone who is cut off, and what stays open."""
    for victim in plan.victims:
        yield findings.broken(victim.seen, victim.remedy)
    for each in exceptions.tenants(situation.scene, plan.needs, application=situation.application):
        yield findings.doubtful(each.seen, each.remedy)
    for named in exceptions.unmatched(situation.scene):
        seen = (
            f"{exceptions.OPTION} has {named}, which is no Service or workload in the mesh with a "
            "port that is known"
        )
        yield findings.doubtful(seen, "write a port, or correct the name")
    for workload in situation.outsiders:
        yield findings.doubtful(
            f"{workload} has no sidecar: members of the mesh would not answer it",
            f"let it join, or {exceptions.how_to_except(situation.application, 'what it calls')}",
        )
    callers: dict[tuple[str, int], list[str]] = {}
    for need in plan.needs:
        if need.selector:
            callers.setdefault((need.workload, need.port), []).append(need.caller)
    for (workload, port), found in callers.items():
        seen = f"{workload}:{port} stays open to plain text for {observed.listed(found)}"
        yield findings.fine(seen)
    yield from _opened_by_others(situation, plan)


def forwarded(
    situation: mutual_tls_plan.Situation, plan: mutual_tls_plan.Plan, routed: Collection[str]
) -> Iterable[Finding]:
    """Name the calls that would be refused if an application forwards the Host of a browser.

    Args:
        situation: What is decided by.
        plan: What is decided.
        routed: The Services that routes of the gateway lead to.
    """
    members = situation.scene.members
    receiving = {
        each.name
        for each in situation.scene.services
        if each.name in routed and any(one.labels.issuperset(each.selector) for one in members)
    }
    refusing = exceptions.by_host(situation.scene, plan.needs)
    if called := [port for service, port in refusing if receiving - {service}]:
        yield findings.doubtful(
            f"{', '.join(sorted(receiving))} could no longer call {', '.join(called)} with the "
            "Host of a browser: a sidecar that does not know the Host sends plain text",
            f"if one does: {exceptions.how_to_except(situation.application, 'what it calls')}",
        )


def unknown(application: str) -> Finding:
    """Name the callers of which no object of the cluster tells."""
    return findings.doubtful(
        "calls in plain text from outside of the model are not known, such as of a Prometheus",
        'query istio_requests_total{reporter="destination",connection_security_policy="none"} and '
        f"{exceptions.how_to_except(application, 'what is called')}",
    )


def _opened_by_others(
    situation: mutual_tls_plan.Situation, plan: mutual_tls_plan.Plan
) -> Iterable[Finding]:
    """Name policies of others by which pods stay open as a whole."""
    policies = mutual_tls_plan.with_ours(situation, plan.opened)
    found: dict[str, list[str]] = {}
    for member in situation.scene.members:
        decided = situation.decide(policies, dict(member.labels))
        if decided.policy and not decided.is_strict:
            found.setdefault(decided.policy.reference, []).append(member.workload)
    for reference, workloads in sorted(found.items()):
        seen = (
            f"{reference}, which this charm did not make, keeps {observed.listed(workloads)} open"
        )
        yield findings.fine(f"{seen} to plain text")
