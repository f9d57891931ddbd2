"""Which of the model's pods have no sidecar, or an old one, and why?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract.answers import PodAnswer
from integrator_contract.reasons import Reason
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.lifecycle import answers

_WITH_SIDECAR = (Reason.SIDECAR_UNWANTED, Reason.EXCLUDED, Reason.WRONG_ORDER)
"""Why a pod is to be replaced though it has a sidecar."""


@registry.check(
    "sidecars",
    place=50,
    question="which pods have none, and why",
    reads="the workload's own rules",
    symptoms=("a-pod-without-istio-proxy", "stuck-in-terminating"),
)
def sidecars(facts: Facts) -> Iterable[Finding]:
    """Ask the workload which pods lack the sidecar that they should have."""
    if facts.mesh is None:
        return ()
    return judge(facts.uninjected, application=facts.application, model=facts.model)


@registry.check(
    "old proxies",
    place=60,
    question="which are of another revision or version",
    reads="the workload's own rules",
    unfelt="an old proxy works; `istioctl proxy-status` shows its version",
)
def old_proxies(facts: Facts) -> Iterable[Finding]:
    """Ask the workload which pods have a sidecar that new pods would not get."""
    if facts.mesh is None:
        return ()
    rows = facts.workload.stale() if facts.uninjected.summary.stale else ()
    return judge_old(rows, application=facts.application)


def judge(answer: answers.Answer, *, application: str, model: str) -> Iterable[Finding]:
    """Judge the pods that are not in the mesh as they should be, by what keeps them from it."""
    show = f"juju run {application}/leader list-uninjected"
    progress = answers.progress(
        answer.summary, application=application, model=model, is_automatic=False
    )
    said = report.of_statuses(progress, show)
    unmet = [each for each in said if each.level is not findings.Level.FINE]
    yield from unmet
    rows = [each for each in answer.pods if each.reason not in _WITH_SIDECAR]
    for message, pods in _by_message(rows).items():
        yield findings.doubtful(f"no sidecar: {report.listed(pods)}: {message}", show)
    rows = [each for each in answer.pods if each.reason in _WITH_SIDECAR]
    for message, pods in _by_message(rows).items():
        yield findings.doubtful(f"{report.listed(pods)}: {message}", show)
    if not unmet and not answer.pods:
        summary = answer.summary
        yield findings.fine(f"{summary.in_mesh}/{summary.eligible} pods in mesh")


def judge_old(rows: Sequence[PodAnswer], *, application: str) -> Iterable[Finding]:
    """Judge the proxies that are of another revision or version than new pods get."""
    for message, pods in _by_message(rows).items():
        yield findings.doubtful(
            f"old proxy: {report.listed(pods)}: {message}",
            f"juju run {application}/leader restart-stale",
        )
    if not rows:
        yield findings.fine("every proxy is of istiod's revision and version")


def _by_message(rows: Iterable[PodAnswer]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.message, []).append(f"{row.namespace}/{row.name}")
    return found
