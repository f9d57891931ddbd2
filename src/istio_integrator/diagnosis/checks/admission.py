"""Are new pods prepared, and admitted by the policies of other teams?"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from integrator_contract import names, refusals
from integrator_contract.rejections import Rejections
from istio_integrator.admission import rejections
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Said

_MOST_WORKLOADS = 10
"""Workloads of served namespaces that a report names."""


@registry.check("admission", place=80, symptoms=("a-notebook-without-network-at-its-start",))
def admission(facts: Facts) -> Iterable[Message]:
    """Check whether the admission webhook prepares a dry-run pod."""
    if not facts.admission.is_needed:
        yield Said.ADMISSION_OFF()
    elif problem := facts.admission_problem:
        labels = f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}"
        yield Said.PODS_NOT_PREPARED(problem=problem, namespace=facts.model, labels=labels)
    else:
        yield Said.ADMISSION_WORKS()


@registry.check("rejections", place=85, symptoms=("denied-the-request",))
def check_rejections(facts: Facts) -> Iterable[Message]:
    """Name the pods that another team's policy refuses, as dry runs and Events showed."""
    found = rejections.read(facts.context)
    yield from judge(found, model=facts.model, application=facts.application)
    served = {*facts.context.served_namespaces} - {facts.model}
    if served:
        yield from judge_events(facts.cluster.events("FailedCreate"), served)


def judge(found: Rejections, *, model: str, application: str) -> Iterable[Message]:
    """Judge the pods, and the changes of admission, that another team's policy refuses."""
    for change, refusal in sorted(found.changes.items()):
        option = rejections.OPTIONS.get(change)
        yield Said.CHANGE_LEFT_OUT(
            author=refusal.author,
            change=change,
            words=refusal.words,
            namespace=model,
            setting=f", or juju config {application} {option}" if option else "",
        )
    for workload, refusal in rejections.workloads(found):
        yield Said.PODS_REJECTED(workload=workload, refusal=refusal, namespace=model)
    if not (found.changes or found.workloads):
        yield Said.PODS_NOT_REJECTED()


def judge_events(events: Iterable[cluster.Object], served: Collection[str]) -> Iterable[Message]:
    """Name the workloads of served namespaces whose pods were refused, and by whom."""
    told: dict[tuple[str, str], str] = {}
    for event in events:
        with fences.around(cluster.reference(event)):
            about = cluster.at(event, "involvedObject")
            if about.get("namespace") in served:
                workload = (str(about["namespace"]), str(about["name"]))
                told[workload] = refusals.of_event(str(event.get("message", "")))
    for (namespace, name), refusal in [*told.items()][:_MOST_WORKLOADS]:
        workload = f"{namespace}/{name}"
        yield Said.PODS_WERE_REJECTED(workload=workload, refusal=refusal, namespace=namespace)
