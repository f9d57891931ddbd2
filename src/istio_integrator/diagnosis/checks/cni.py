"""Is Istio's CNI plugin ready, and which init containers does it leave without a network?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences
from istio_integrator.mesh import installation

_NODE_LABELS = {"k8s-app": "istio-cni-node"}
"""The labels of the plugin's DaemonSet and pods, as Istio's charts write them."""

_EXCLUSIONS = (
    names.EXCLUDED_OUTBOUND_PORTS,
    names.EXCLUDED_OUTBOUND_RANGES,
    names.INCLUDED_OUTBOUND_RANGES,
)

_EVERYTHING = "*"
"""What istiod notes of ranges in each pod where the plugin redirects, unless told otherwise."""
_OF_ISTIO = "istio-"
"""What the names of Istio's own init containers begin with."""


@registry.check(
    "cni",
    place=40,
    question="is Istio's plugin ready; which init containers have no network",
    reads="the plugin's DaemonSet, pods",
    symptoms=("an-init-container-without-network",),
)
def cni(facts: Facts) -> Iterable[Finding]:
    """Look at the plugin's DaemonSet, where Istio uses the plugin, and at the model's pods."""
    daemon_sets: list[cluster.Object] = []
    if facts.mesh is not None and facts.mesh.cni:
        daemon_sets = facts.cluster.list(cluster.DAEMON_SET, labels=_NODE_LABELS)
    return judge(facts.mesh, facts.pods, daemon_sets, application=facts.application)


def judge(
    istio: installation.Mesh | None,
    pods: Iterable[cluster.Object],
    daemon_sets: Iterable[cluster.Object],
    *,
    application: str,
) -> Iterable[Finding]:
    """Judge Istio's CNI plugin, and init containers that it leaves without a network.

    The plugin redirects traffic from a pod's first moment, while a classic proxy starts after the
    init containers.
    """
    if istio is None:
        return
    if not istio.cni:
        yield findings.fine("no CNI plugin of Istio: redirection begins after init containers")
        return
    away: list[cluster.Object] = []
    for each in daemon_sets:
        with fences.around(cluster.reference(each)):
            if missing := _missing(each):
                away.append(each)
                yield findings.broken(
                    f"{cluster.reference(each)} is not ready on {missing} nodes: pods there "
                    "don't start",
                    f"kubectl -n {each['metadata']['namespace']} get pods -o wide -l "
                    "k8s-app=istio-cni-node",
                )
    cut: list[str] = []
    for pod in pods:
        with fences.around(cluster.reference(pod)):
            if _has_init_without_network(pod):
                cut.append(cluster.reference(pod))
    if cut:
        yield findings.doubtful(
            "init containers have no network before their classic proxy runs: "
            + report.listed(cut),
            f"juju config {application} excluded-outbound-ports=PORT, or job-sidecars=auto with "
            "kubelets from 1.33",
        )
    if not away and not cut:
        yield findings.fine("Istio's CNI plugin is ready, and no init container is cut off")


def _missing(daemonset: cluster.Object) -> int:
    status = cluster.at(daemonset, "status")
    return int(status.get("desiredNumberScheduled", 0)) - int(status.get("numberReady", 0))


def _has_init_without_network(pod: cluster.Object) -> bool:
    spec = cluster.at(pod, "spec")
    classic = any(each.get("name") == names.PROXY for each in cluster.parts(spec, "containers"))
    own = any(
        not str(each["name"]).startswith(_OF_ISTIO)
        for each in cluster.parts(spec, "initContainers")
    )
    annotations = cluster.at(pod, "metadata", "annotations")
    excluded = {annotations.get(key) for key in _EXCLUSIONS} - {None, "", _EVERYTHING}
    return classic and own and not excluded
