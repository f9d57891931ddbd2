"""Are new pods prepared, and admitted by the policies of other teams?"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from integrator_contract import names, refusals
from integrator_contract.rejections import Rejections
from istio_integrator import findings
from istio_integrator.admission import rejections
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences

_MOST_WORKLOADS = 10
"""Workloads of served namespaces that a report names."""


@registry.check("admission", place=80, symptoms=("a-notebook-without-network-at-its-start",))
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


@registry.check("rejections", place=85, symptoms=("denied-the-request",))
def check_rejections(facts: Facts) -> Iterable[Finding]:
    """Name the pods that another team's policy refuses, as dry runs and Events showed."""
    found = rejections.read(facts.context)
    yield from judge(found, model=facts.model, application=facts.application)
    served = {*facts.context.served_namespaces} - {facts.model}
    if served:
        yield from judge_events(facts.cluster.events("FailedCreate"), served)


def judge(found: Rejections, *, model: str, application: str) -> Iterable[Finding]:
    """Judge the pods, and the changes of admission, that another team's policy refuses."""
    for change, refusal in sorted(found.changes.items()):
        option = rejections.OPTIONS.get(change)
        setting = f", or juju config {application} {option}" if option else ""
        yield findings.broken(
            f"{refusal.author} forbids {change} on pods, so it is left out: {refusal.words}",
            f"exempt the namespace {model} from it{setting}",
        )
    for workload, refusal in rejections.workloads(found):
        yield findings.broken(
            f"new pods of {workload} are rejected: {refusal}",
            f"kubectl -n {model} describe {workload}",
        )
    if not (found.changes or found.workloads):
        yield findings.fine("no policy of another team refuses the model's pods")


def judge_events(events: Iterable[cluster.Object], served: Collection[str]) -> Iterable[Finding]:
    """Name the workloads of served namespaces whose pods were refused, and by whom."""
    told: dict[str, str] = {}
    for event in events:
        with fences.around(cluster.reference(event)):
            about = cluster.at(event, "involvedObject")
            if about.get("namespace") in served:
                workload = f"{about['namespace']}/{about['name']}"
                told[workload] = refusals.of_event(str(event.get("message", "")))
    for workload, refusal in [*told.items()][:_MOST_WORKLOADS]:
        namespace = workload.partition("/")[0]
        yield findings.doubtful(
            f"pods of {workload} were refused: {refusal}",
            f"kubectl -n {namespace} get events --field-selector reason=FailedCreate",
        )
