"""Is the model's namespace a member of the mesh, or does a label contradict another?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import ops

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster
from istio_integrator.membership import decision

from .istiod import INJECTORS


@registry.check(
    "namespace",
    place=30,
    symptoms=("a-pod-without-istio-proxy",),
)
def namespace(facts: Facts) -> Iterable[Finding]:
    """Check whether the model is a member, or a label contradicts another."""
    marks = cluster.at(facts.namespace, "metadata", "labels")
    return judge(
        facts.membership,
        {key: marks[key] for key in decision.LABELS if key in marks},
        membership=facts.config.membership,
        model=facts.model,
    )


def judge(
    decision: decision.Decision, marks: Mapping[str, str], *, membership: str, model: str
) -> Iterable[Finding]:
    """Judge the place of the model's namespace."""
    has = " and ".join(f"{key}={value}" for key, value in sorted(marks.items())) or "no label"
    if decision.blocked:
        show = f"kubectl get namespace {model} --show-labels"
        yield from report.of_statuses([ops.BlockedStatus(decision.blocked)], show)
    elif membership != "namespace":
        why = "mesh-mode=none" if membership == "none" else "included-pods is set"
        yield findings.fine(f"{why}: namespace {model} has {has}")
    elif decision.waiting:
        yield findings.doubtful(f"namespace {model} has {has}: {decision.waiting}", INJECTORS)
    elif decision.labels:
        yield findings.broken(
            f"namespace {model} has {has}, which is not the mesh's", "juju debug-log --replay"
        )
    elif decision.joined:
        yield findings.fine(f"namespace {model} has {has}")
    else:
        text = f"namespace {model} has {has}: there is no Istio to join"
        yield findings.doubtful(text, INJECTORS)
