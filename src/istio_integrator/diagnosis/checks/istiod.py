"""Does an istiod exist, does it inject, and is the model's namespace a member?"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

from integrator_contract import names
from istio_integrator.admission.admission import Admission
from istio_integrator.asked import membership
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Severity, Template


@registry.check(
    "istiod",
    place=10,
    symptoms=("failed-calling-webhook",),
    look="kubectl get mutatingwebhookconfigurations",
)
def check_istiod(facts: Facts) -> Iterable[Message]:
    """Check whether there is an istiod, and whether it injects into a dry-run pod."""
    search = facts.discovered or facts.situation.discover()
    istio, said = search.mesh, search.messages
    problems = [each for each in said if each.severity is not Severity.NOTE]
    if istio is None or not (istio.alive or istio.proxy.refusal):
        look = ""
        if istio is not None:
            injector = istio.injector
            look = f"kubectl -n {injector.namespace} get pods,endpoints -l app=istiod"
            if not injector.namespace:
                look = f"kubectl get mutatingwebhookconfiguration {injector.webhook_configuration}"
        for each in problems:
            yield dataclasses.replace(each, severity=Severity.BLOCKED, otherwise=look)
        return
    yield from problems
    if istio.proxy.probed:
        yield Template.ISTIOD_INJECTS(name=istio.name)
    elif istio.proxy.refusal is None:
        yield Template.ISTIOD_NOT_TRIED(name=istio.name, application=facts.situation.application)


@registry.check("settings", place=15, unfelt="it names settings that other checks cannot read")
def check_settings(facts: Facts) -> Iterable[Message]:
    """Name the mesh's settings that this cluster can't show, and the options in their place."""
    istio, wanted = facts.mesh, facts.situation.controller.ports
    if istio is None or istio.settings.has_settings:
        return
    if not istio.injector.installed_in:
        yield Template.ISTIOD_NAMESPACE_UNKNOWN(
            injector=istio.injector.webhook_configuration,
            url=istio.injector.url,
            application=facts.situation.application,
        )
    rules = facts.situation.config.excluded_outbound_ports
    excluded = {port for rule in rules if rule.pods in ("", names.NAME) for port in rule.ports}
    if istio.proxy.captures_outbound and not excluded.issuperset(wanted):
        yield Template.OUTBOUND_POLICY_UNKNOWN(
            ports=", ".join(map(str, sorted(wanted))),
            label=names.NAME,
            application=facts.situation.application,
        )


@registry.check(
    "namespace",
    place=30,
    symptoms=("a-pod-without-istio-proxy",),
    look="kubectl get namespace {model} --show-labels",
)
def check_namespace(facts: Facts) -> Iterable[Message]:
    """Check whether the model is a member, or a label contradicts another."""
    found = facts.situation.cluster.get(cluster.NAMESPACE, facts.situation.model) or {}
    marks = cluster.at(found, "metadata", "labels")
    present = sorted(f"{key}={marks[key]}" for key in membership.LABELS if key in marks)
    place = {"namespace": facts.situation.model, "labels": " and ".join(present) or "no label"}
    decide = functools.partial(membership.decide, facts.situation, facts.mesh, found)
    decided, wanted = decide(), facts.situation.config.membership
    if decided.labels and not decided.problem:
        # The namespace waits for the webhook.
        decided = decide(are_pods_prepared=Admission(facts).find_problem() is None)
    if decided.problem is not None:
        yield decided.problem
    elif wanted != "namespace":
        why = ": mesh-mode=none" if wanted == "none" else ": included-pods is set"
        yield Template.NAMESPACE_AS_WANTED(why=why, **place)
    elif decided.labels:
        yield Template.NAMESPACE_OF_NO_MESH(application=facts.situation.application, **place)
    elif decided.joined:
        yield Template.NAMESPACE_AS_WANTED(why="", **place)
