"""In ambient mode: are pods taken in, which options do nothing, what needs a waypoint?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.config import config
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences
from istio_integrator.security import policies_survey, policies_upkeep

_WITHOUT_EFFECT = (
    "hold_application",
    "job_sidecars",
    "excluded_outbound_ports",
)
"""Options about the model's sidecars, where somebody has chosen another value than the default."""


@registry.check(
    "ambient",
    place=65,
    question="in ambient mode: are pods taken in, which options do nothing, what needs a waypoint",
    reads="the model's pods, what `service-mesh` relations say",
    unfelt="pods that no ztunnel took in answer as if there were no mesh",
)
def ambient(facts: Facts) -> Iterable[Finding]:
    """Look at the model's pods, the options, and what relations say of requests."""
    context = facts.context
    if context.data_plane != "ambient":
        return ()
    beyond: Sequence[str] = ()
    behind: Sequence[str] = ()
    if facts.config.authorization != "off":
        asked = policies_survey.asked(context, facts.related, facts.seen, facts.ingress)
        _, beyond = policies_upkeep.decided(context, asked)
        behind = [
            f"{each.name} ({'/'.join(each.waypoint)})"
            for each in asked.model.services
            if each.waypoint
        ]
    return judge(facts.pods, beyond, behind, options=facts.config, application=facts.application)


def judge(
    pods: Iterable[cluster.Object],
    beyond: Sequence[str],
    behind: Sequence[str] = (),
    *,
    options: config.Config,
    application: str,
) -> Iterable[Finding]:
    """Judge a model in ambient mode.

    Args:
        pods: The model's.
        beyond: The workloads of whose callers more is said than layer 4 holds.
        behind: Services that are called through waypoints, each with its own.
        options: The charm's.
        application: Ours.
    """
    waiting: list[str] = []
    taken = 0
    for pod in pods:
        with fences.around(cluster.reference(pod)):
            is_taken = _is_taken(pod)
            taken += is_taken
            if not is_taken and _should_be(pod):
                waiting.append(str(pod["metadata"]["name"]))
    if waiting:
        yield findings.doubtful(
            f"no ztunnel has taken in {report.listed(sorted(waiting))}",
            "kubectl get pods --all-namespaces -l k8s-app=istio-cni-node",
        )
    else:
        yield findings.fine(f"ztunnel has taken in {taken} pods of the model")
    defaults = config.Config()
    chosen = [
        each for each in _WITHOUT_EFFECT if getattr(options, each) != getattr(defaults, each)
    ]
    if chosen:
        shown = ", ".join(each.replace("_", "-") for each in chosen)
        yield findings.fine(f"without effect on pods in ambient mode: {shown}")
    if behind:
        shown = report.listed(sorted(behind))
        yield findings.fine(f"who may call through a waypoint is up to its policies: {shown}")
    if beyond:
        yield findings.doubtful(
            f"what is said of requests to {report.listed(sorted(beyond))} is ignored",
            "deploy a waypoint (istioctl waypoint apply), write policies for it, and run: "
            f"juju config {application} authorization=off",
        )


def _is_taken(pod: cluster.Object) -> bool:
    notes = cluster.at(pod, "metadata", "annotations")
    return notes.get(names.AMBIENT_REDIRECTION) == "enabled"


def _should_be(pod: cluster.Object) -> bool:
    metadata, spec = cluster.at(pod, "metadata"), cluster.at(pod, "spec")
    outside = cluster.at(metadata, "labels").get(names.DATAPLANE_MODE) == "none"
    left = names.SIDECAR_STATUS in cluster.at(metadata, "annotations")
    return cluster.is_ready(pod) and not (outside or left or spec.get("hostNetwork"))
