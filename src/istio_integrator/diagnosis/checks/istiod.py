"""Is there an istiod, does it inject, and is the model's namespace a member?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.istio import installation
from istio_integrator.kube import cluster
from istio_integrator.membership import decision
from istio_integrator.messages import Message, Severity

_INJECTORS = "kubectl get mutatingwebhookconfigurations"


@registry.check("istiod", place=10, symptoms=("failed-calling-webhook",))
def istiod(facts: Facts) -> Iterable[Finding]:
    """Check whether there is an istiod, and whether it injects into a dry-run pod."""
    said = list(facts.discovery.messages())
    return judge(facts.mesh, said, application=facts.application)


def judge(
    istio: installation.Mesh | None, said: Sequence[Message], *, application: str
) -> Iterable[Finding]:
    """Judge whether there is an istiod that injects."""
    found = report.of_messages(said, _INJECTORS)
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
        yield findings.broken(f"{istio.name} {istio.problem}".strip(), istio.remedy or show)
    elif not istio.probed:
        yield findings.doubtful(
            f"{istio.name} is ready, but no dry-run pod could be tried",
            report.own_log(application),
        )
    else:
        yield findings.fine(f"{istio.name} gave a dry-run pod its sidecar")


@registry.check("settings", place=15, unfelt="it says what the other checks cannot know")
def settings(facts: Facts) -> Iterable[Finding]:
    """Name the mesh's settings that this cluster can't show, and the options in their place."""
    istio = facts.mesh
    if istio is None or istio.has_settings:
        return
    if not istio.installed_in:
        yield findings.doubtful(
            f"{istio.webhook_configuration} calls {istio.url} and does not tell which namespace "
            "here is this Istio's: its settings, and policies for the whole mesh, are not known",
            f"juju config {facts.application} istiod-namespace=NAMESPACE",
        )
    rules = facts.config.excluded_outbound_ports
    excluded = {port for rule in rules if rule.pods in ("", names.NAME) for port in rule.ports}
    if istio.captures_outbound and not excluded.issuperset(facts.controller.ports):
        ports = ", ".join(map(str, sorted(facts.controller.ports)))
        yield findings.doubtful(
            "without a mesh configuration it is not known whether sidecars let charms call Juju's "
            f"controller at {ports}; they do not with outboundTrafficPolicy REGISTRY_ONLY",
            f"if so: juju config {facts.application} "
            f"excluded-outbound-ports='[{{pods: {names.NAME}, ports: [{ports}]}}]'",
        )


@registry.check("namespace", place=30, symptoms=("a-pod-without-istio-proxy",))
def namespace(facts: Facts) -> Iterable[Finding]:
    """Check whether the model is a member, or a label contradicts another."""
    marks = cluster.at(facts.namespace, "metadata", "labels")
    return judge_namespace(
        facts.membership,
        {key: marks[key] for key in decision.LABELS if key in marks},
        membership=facts.config.membership,
        model=facts.model,
    )


def judge_namespace(
    decision: decision.Decision, marks: Mapping[str, str], *, membership: str, model: str
) -> Iterable[Finding]:
    """Judge the place of the model's namespace."""
    has = " and ".join(f"{key}={value}" for key, value in sorted(marks.items())) or "no label"
    problem = decision.problem
    if problem is not None and problem.severity is Severity.BLOCKED:
        show = f"kubectl get namespace {model} --show-labels"
        yield from report.of_messages([problem], show)
    elif membership != "namespace":
        why = "mesh-mode=none" if membership == "none" else "included-pods is set"
        yield findings.fine(f"{why}: namespace {model} has {has}")
    elif problem is not None:
        yield findings.doubtful(f"namespace {model} has {has}: {problem.text}", _INJECTORS)
    elif decision.labels:
        yield findings.broken(
            f"namespace {model} has {has}, which is not the mesh's", "juju debug-log --replay"
        )
    elif decision.joined:
        yield findings.fine(f"namespace {model} has {has}")
    else:
        text = f"namespace {model} has {has}: there is no Istio to join"
        yield findings.doubtful(text, _INJECTORS)
