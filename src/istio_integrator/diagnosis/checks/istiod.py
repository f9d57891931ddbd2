"""Is there an istiod, does it inject, and is the model's namespace a member?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from integrator_contract import names
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.istio import installation
from istio_integrator.kube import cluster
from istio_integrator.membership import decision
from istio_integrator.messages import Message, Said, Severity


@registry.check(
    "istiod",
    place=10,
    symptoms=("failed-calling-webhook",),
    look="kubectl get mutatingwebhookconfigurations",
)
def istiod(facts: Facts) -> Iterable[Message]:
    """Check whether there is an istiod, and whether it injects into a dry-run pod."""
    return judge(facts.mesh, [*facts.discovery.messages()], application=facts.application)


def judge(
    istio: installation.Mesh | None, said: Sequence[Message], *, application: str
) -> Iterable[Message]:
    """Judge whether there is an istiod that injects."""
    problems = [each for each in said if each.severity is not Severity.NOTE]
    if istio is None or not (istio.alive or istio.refusal):
        look = ""
        if istio is not None:
            look = f"kubectl -n {istio.namespace} get pods,endpoints -l app=istiod"
            if not istio.namespace:
                look = f"kubectl get mutatingwebhookconfiguration {istio.webhook_configuration}"
        for each in problems:
            yield dataclasses.replace(each, severity=Severity.BLOCKED, otherwise=look)
        return
    yield from problems
    if istio.refusal is None:
        if istio.probed:
            yield Said.ISTIOD_INJECTS(name=istio.name)
        else:
            yield Said.ISTIOD_NOT_TRIED(name=istio.name, application=application)


@registry.check("settings", place=15, unfelt="it says what the other checks cannot know")
def settings(facts: Facts) -> Iterable[Message]:
    """Name the mesh's settings that this cluster can't show, and the options in their place."""
    istio = facts.mesh
    if istio is None or istio.has_settings:
        return
    if not istio.installed_in:
        yield Said.ISTIOD_NAMESPACE_UNKNOWN(
            injector=istio.webhook_configuration, url=istio.url, application=facts.application
        )
    rules = facts.config.excluded_outbound_ports
    excluded = {port for rule in rules if rule.pods in ("", names.NAME) for port in rule.ports}
    if istio.captures_outbound and not excluded.issuperset(facts.controller.ports):
        ports = ", ".join(map(str, sorted(facts.controller.ports)))
        yield Said.OUTBOUND_POLICY_UNKNOWN(
            ports=ports, label=names.NAME, application=facts.application
        )


@registry.check(
    "namespace",
    place=30,
    symptoms=("a-pod-without-istio-proxy",),
    look="kubectl get namespace {model} --show-labels",
)
def namespace(facts: Facts) -> Iterable[Message]:
    """Check whether the model is a member, or a label contradicts another."""
    marks = cluster.at(facts.namespace, "metadata", "labels")
    yield judge_namespace(
        facts.membership,
        {key: marks[key] for key in decision.LABELS if key in marks},
        membership=facts.config.membership,
        model=facts.model,
        application=facts.application,
    )


def judge_namespace(
    decision: decision.Decision,
    marks: Mapping[str, str],
    *,
    membership: str,
    model: str,
    application: str,
) -> Message:
    """Judge the place of the model's namespace."""
    has = " and ".join(f"{key}={value}" for key, value in sorted(marks.items())) or "no label"
    problem = decision.problem
    if problem is not None and problem.severity is Severity.BLOCKED:
        return problem
    if membership != "namespace":
        why = ": mesh-mode=none" if membership == "none" else ": included-pods is set"
        return Said.NAMESPACE_AS_WANTED(namespace=model, labels=has, why=why)
    if problem is not None or not (decision.labels or decision.joined):
        text = problem.text if problem else "there is no Istio to join"
        return Said.NAMESPACE_NOT_JOINED(namespace=model, labels=has, problem=text)
    if decision.labels:
        return Said.NAMESPACE_OF_NO_MESH(namespace=model, labels=has, application=application)
    return Said.NAMESPACE_AS_WANTED(namespace=model, labels=has, why="")
