"""Are new pods prepared?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding


@registry.check(
    "admission",
    place=80,
    symptoms=("a-notebook-without-network-at-its-start",),
)
def admission(facts: Facts) -> Iterable[Finding]:
    """Check whether the admission webhook prepares a dry-run pod."""
    if not facts.admission.is_needed:
        yield findings.fine("not needed: no namespace gets sidecars, and no option changes pods")
    elif problem := facts.admission_problem:
        pods = f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}"
        show = f"kubectl -n {facts.model} describe deployments,pods -l {pods}"
        yield findings.broken(f"new pods are not prepared: {problem}", show)
    else:
        yield findings.fine("the webhook prepared a dry-run pod")
