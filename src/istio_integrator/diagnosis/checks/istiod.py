"""Is there an istiod, and does it inject?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import ops

from istio_integrator import findings, statuses
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.mesh import installation

INJECTORS = "kubectl get mutatingwebhookconfigurations"


@registry.check(
    "istiod",
    place=10,
    symptoms=("failed-calling-webhook",),
)
def istiod(facts: Facts) -> Iterable[Finding]:
    """Check whether there is an istiod, and whether it injects into a dry-run pod."""
    said = list(facts.discovery.statuses())
    return judge(facts.mesh, said, application=facts.application)


def judge(
    istio: installation.Mesh | None, said: Sequence[ops.StatusBase], *, application: str
) -> Iterable[Finding]:
    """Judge whether there is an istiod that injects."""
    found = report.of_statuses(said, INJECTORS)
    if istio is None:
        yield from (findings.broken(each.seen, each.next) for each in found)
        return
    for each in found:
        if each.level is findings.Level.BROKEN:
            yield each
    if istio.refusal is not None:
        yield from (each for each in found if each.level is findings.Level.DOUBTFUL)
    elif not istio.alive:
        show = f"kubectl -n {istio.namespace} get pods,endpoints -l app=istiod"
        if not istio.namespace:
            show = f"kubectl get mutatingwebhookconfiguration {istio.webhook_configuration}"
        told = statuses.parts(f"{istio.name} {istio.problem}".strip())
        yield findings.broken(told.seen, told.command or show)
    elif not istio.probed:
        yield findings.doubtful(
            f"{istio.name} is ready, but no dry-run pod could be tried",
            report.own_log(application),
        )
    else:
        yield findings.fine(f"{istio.name} gave a dry-run pod its sidecar")
