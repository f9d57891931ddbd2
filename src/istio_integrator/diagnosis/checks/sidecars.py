"""Which of the model's pods have no sidecar, or an old one, and why?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract.answers import Listing, PodAnswer
from integrator_contract.reasons import Reason
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.lifecycle import answers

_WITH_SIDECAR = (Reason.SIDECAR_UNWANTED, Reason.EXCLUDED, Reason.WRONG_ORDER)
"""Why a pod is to be replaced though it has a sidecar."""


@registry.check(
    "sidecars", place=50, symptoms=("a-pod-without-istio-proxy", "stuck-in-terminating")
)
def sidecars(facts: Facts) -> Iterable[Finding]:
    """Name the pods without a sidecar or with one of an old revision or version, and why."""
    if facts.mesh is None:
        return ()
    answer = facts.workload.uninjected()
    old = facts.workload.stale() if answer.summary.stale else ()
    return judge(answer, old, application=facts.application, model=facts.model)


def judge(
    answer: Listing, old: Iterable[PodAnswer], *, application: str, model: str
) -> Iterable[Finding]:
    """Judge the pods that are not in the mesh as they should be, by what keeps them from it."""
    show = f"juju run {application}/leader list-uninjected"
    summary = answer.summary
    progress = answers.progress(summary, application=application, model=model, is_automatic=False)
    said = report.of_messages(progress, show)
    unmet = [each for each in said if each.level is not findings.Level.FINE]
    yield from unmet
    rows: dict[tuple[str, str], list[str]] = {}
    for row in answer.pods:
        head = "" if row.reason in _WITH_SIDECAR else "no sidecar: "
        rows.setdefault((head, row.message), []).append(f"{row.namespace}/{row.name}")
    for row in old:
        rows.setdefault(("old proxy: ", row.message), []).append(f"{row.namespace}/{row.name}")
    for (head, message), pods in rows.items():
        action = "restart-stale" if head.startswith("old") else "list-uninjected"
        text = f"{head}{report.listed(pods)}: {message}"
        yield findings.doubtful(text, f"juju run {application}/leader {action}")
    if not unmet and not rows:
        yield findings.fine(f"{summary.in_mesh}/{summary.eligible} pods in mesh")
