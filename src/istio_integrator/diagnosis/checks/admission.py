"""Are new pods prepared, and admitted by the policies of other teams?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names, refusals
from istio_integrator.admission import rejections
from istio_integrator.admission.admission import Admission
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Template

_OPERATOR = "/modeloperator"
_MOST_WORKLOADS = 10
"""Workloads of served namespaces that a report names at most."""


@registry.check("admission", place=80, symptoms=("a-notebook-without-network-at-its-start",))
def check_admission(facts: Facts) -> Iterable[Message]:
    """Check whether the admission webhook prepares a dry-run pod."""
    webhook = Admission(facts)
    if not webhook.is_needed:
        yield Template.ADMISSION_OFF()
    elif (problem := webhook.find_problem()) is None:
        yield Template.ADMISSION_WORKS()
    elif problem.template in (Template.ADMISSION_STARTING, Template.ADMISSION_HINDERED):
        labels = f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}"
        words = problem.finding.removeprefix("admission: ")
        yield Template.PODS_NOT_PREPARED(
            problem=words, namespace=facts.situation.model, labels=labels
        )
    else:
        # Another team's refusal of the dry-run pod shows nothing about the webhook.
        yield problem


@registry.check("rejections", place=85, symptoms=("denied-the-request",))
def check_rejections(facts: Facts) -> Iterable[Message]:
    """Name the pods that policies of other teams reject, by dry runs and Events."""
    found = rejections.read(facts.situation)
    yield from rejections.report(found, facts.situation)
    # Juju's modeloperator comes first.
    for workload in sorted(found.workloads, key=lambda name: (not name.endswith(_OPERATOR), name)):
        refusal = found.workloads[workload]
        yield Template.PODS_REJECTED(
            workload=workload, refusal=refusal, namespace=facts.situation.model
        )
    served = {facts.situation.model, *facts.served_namespaces}
    refused = {**found.changes, **found.workloads, **found.sidecars}
    named = {*map(str, refused.values())}
    told: dict[str, tuple[str, str]] = {}
    # An optional role gives the right to list Events of other namespaces than the model.
    listed = facts.situation.cluster.list_events(
        "FailedCreate", facts.situation.model if len(served) == 1 else None
    )
    for event in listed:
        with fences.isolate(cluster.reference(event)):
            about = cluster.at(event, "involvedObject")
            namespace, name = str(about["namespace"]), str(about["name"])
            refusal = refusals.read_event(str(event.get("message", "")), name)
            if namespace in served and (
                namespace != facts.situation.model or refusal not in named
            ):
                told[f"{namespace}/{name}"] = (namespace, refusal)
    for place, (namespace, refusal) in [*told.items()][:_MOST_WORKLOADS]:
        yield Template.PODS_WERE_REJECTED(workload=place, refusal=refusal, namespace=namespace)
    if not (refused or told):
        yield Template.PODS_NOT_REJECTED()
