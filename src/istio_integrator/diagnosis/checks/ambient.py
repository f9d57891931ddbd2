"""In ambient mode: are pods taken in, and what needs a waypoint?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster
from istio_integrator.policies import decide, policies
from istio_integrator.situation import model


@registry.check(
    "ambient", place=65, unfelt="pods that no ztunnel took in answer as if there were no mesh"
)
def ambient(facts: Facts) -> Iterable[Finding]:
    """In ambient mode, name the pods that no ztunnel has, and what needs a waypoint."""
    context = facts.context
    if context.data_plane != "ambient":
        return ()
    beyond: Sequence[str] = ()
    if facts.config.authorization != "off":
        authorization = policies.Authorization(context, facts.related, facts.seen, facts.ingress)
        beyond = decide.decide(authorization.asked(facts.config)).beyond
    return judge(facts.pods, beyond, application=facts.application)


def judge(
    pods: Iterable[cluster.Object], beyond: Sequence[str], *, application: str
) -> Iterable[Finding]:
    """Judge the pods, and the workloads whose relations say more than layer 4 holds."""
    if waiting := model.read_each(pods, _not_taken):
        yield findings.doubtful(
            f"no ztunnel has taken in {report.listed(sorted(waiting))}",
            "kubectl get pods --all-namespaces -l k8s-app=istio-cni-node",
        )
    else:
        yield findings.fine("ztunnel has taken in the pods of the model")
    if beyond:
        yield findings.doubtful(
            f"what is said of requests to {report.listed(sorted(beyond))} is ignored",
            "deploy a waypoint (istioctl waypoint apply), write policies for it, and run: "
            f"juju config {application} authorization=off",
        )


def _not_taken(pod: cluster.Object) -> list[str]:
    notes = cluster.at(pod, "metadata", "annotations")
    is_taken = notes.get(names.AMBIENT_REDIRECTION) == "enabled"
    outside = cluster.at(pod, "metadata", "labels").get(names.DATAPLANE_MODE) == "none"
    outside = (
        outside or names.SIDECAR_STATUS in notes or cluster.at(pod, "spec").get("hostNetwork")
    )
    is_waiting = cluster.is_ready(pod) and not is_taken and not outside
    return [str(pod["metadata"]["name"])] if is_waiting else []
